//! The rule of the changes that no test can notice: each line of their list gives a reason, and
//! names a function that is in its file.

use std::path::Path;

use super::finding::Finding;
use crate::mutations::survivors::{Entry, LIST, entries};

/// The list; empty if there is none.
pub(super) fn read(root: &Path) -> String {
    std::fs::read_to_string(root.join(LIST)).unwrap_or_default()
}

/// Checks `list` against the texts of the sources.
pub(super) fn check<'a>(
    list: &str,
    source: impl Copy + Fn(&str) -> Option<&'a str>,
) -> Vec<Finding> {
    let faults = entries(list).filter_map(|entry| {
        let fault = fault(&entry, source)?;
        Some(Finding::at(Path::new(LIST), entry.line, fault))
    });
    faults.collect()
}

/// Returns the fault of a line.
fn fault<'a>(entry: &Entry<'_>, source: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    if entry.reason.is_empty() {
        return Some("a line without a reason".to_owned());
    }
    let Some((file, change)) = entry.change.split_once(": ") else {
        return Some("a line without a file and a change".to_owned());
    };
    let Some(text) = source(file) else {
        return Some(format!("there is no {file}"));
    };
    let name = function(change);
    let declared = |end: &str| text.contains(&format!("fn {name}{end}"));
    let is_there = declared("(") || declared("<");
    (!is_there).then(|| format!("there is no function {name} in {file}"))
}

/// The function of a change: `b` of `replace < by == in A::b`.
fn function(change: &str) -> &str {
    let path = change.rsplit_once(" in ").map_or(change, |(_, path)| path);
    path.rsplit_once("::").map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_its_function() {
        assert_eq!(function("replace the body with None in A::b"), "b");
        assert_eq!(function("delete `x in y;` in drop"), "drop");
    }

    #[test]
    fn a_line_needs_a_reason_a_file_and_its_function() {
        let told = |line: &str| {
            let entry = entries(line).next()?;
            let source = |file: &str| (file == "a.rs").then_some("fn f<T>() {}\nfn g() {}");
            fault(&entry, source)
        };
        assert_eq!(told("a.rs: delete `x();` in f # why"), None);
        assert_eq!(told("a.rs: replace `a < b` by > in A::g # why"), None);
        assert!(told("a.rs: delete `x();` in f").is_some());
        assert!(told("b.rs: delete `x();` in f # why").is_some());
        assert!(told("a.rs: replace `a < b` by > in A::h # why").is_some());
    }
}
