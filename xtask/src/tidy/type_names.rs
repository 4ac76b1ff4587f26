//! The rule of type names: within a crate's sources each is used once.

use std::collections::BTreeMap;
use std::path::Path;

use super::blank::{line_of, words};
use super::file_names::sources_of;
use super::finding::Finding;

/// What introduces a type.
const KINDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// The types, of blanked sources by path, whose name another file of their crate has too. A file
/// may have variants of a type, one for each configuration.
pub(super) fn check<'a>(sources: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<Finding> {
    let mut by_name: BTreeMap<(&Path, &str), BTreeMap<&Path, usize>> = BTreeMap::new();
    for (file, code) in sources {
        let is_test = file.ends_with("tests.rs");
        let Some(folder) = sources_of(file).filter(|_| !is_test) else {
            continue;
        };
        for (line, name) in types(code) {
            let files = by_name.entry((folder, name)).or_default();
            files.entry(file).or_insert(line);
        }
    }
    let mut all = Vec::new();
    for ((_, name), files) in by_name.iter().filter(|(_, files)| files.len() > 1) {
        for (file, &line) in files {
            let what = format!("another type of this crate is called {name}");
            all.push(Finding::at(file, line, what));
        }
    }
    all
}

/// The types of a source outside of functions, traits and implementations, with their lines.
fn types(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut words = words(code).peekable();
    std::iter::from_fn(move || {
        loop {
            let (at, word) = words.next()?;
            let start = code.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
            let is_item = !code.get(start..at)?.starts_with(char::is_whitespace);
            if is_item && KINDS.contains(&word) {
                let (_, name) = words.peek()?;
                return Some((line_of(code, at), *name));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        let files = files.iter().map(|(path, code)| (Path::new(*path), *code));
        check(files).len()
    }

    #[test]
    fn types_of_one_name_are_found() {
        let one = "pub(crate) struct A;\nimpl T for A {\n    type B = u8;\n}\n";
        let other = "pub enum A {}\ntype B = u8;\ntrait C {}\n";
        assert_eq!(count(&[("a/src/x.rs", one), ("a/src/y.rs", other)]), 2);
        assert_eq!(count(&[("a/src/x.rs", one), ("b/src/y.rs", other)]), 0);
        assert_eq!(
            count(&[("a/src/x.rs", one), ("a/src/tests/y.rs", other)]),
            0
        );
        let both = "#[cfg(a)]\nstruct A;\n#[cfg(not(a))]\nstruct A;\n";
        assert_eq!(count(&[("a/src/x.rs", both)]), 0);
    }
}
