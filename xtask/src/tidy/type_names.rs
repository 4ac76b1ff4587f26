//! The rule of type names: within a crate's sources each is used once.

use std::collections::BTreeMap;
use std::path::Path;

use super::blank::{line_of, without_tests, words};
use super::file_names::sources_of;
use super::finding::Finding;

/// What introduces a type.
const KINDS: &[&str] = &["struct", "enum", "union", "trait", "type"];
/// Spaces of a line for each module that it stands in, as rustfmt writes them.
const INDENT: usize = 4;

/// The types, of blanked sources by path, whose name another file of their crate has too. A file
/// may have variants of a type, one for each configuration.
pub(super) fn check<'a>(sources: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<Finding> {
    let stripped: Vec<(&Path, String)> = sources
        .filter(|(file, _)| !file.ends_with("tests.rs"))
        .map(|(file, code)| (file, without_tests(code)))
        .collect();
    let mut by_name: BTreeMap<(&Path, &str), BTreeMap<&Path, usize>> = BTreeMap::new();
    for (file, code) in &stripped {
        let Some(folder) = sources_of(file) else {
            continue;
        };
        for (line, name) in types(code) {
            let files = by_name.entry((folder, name)).or_default();
            files.entry(*file).or_insert(line);
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

/// The types of a source, at its top and in modules within it, with their lines. Those within
/// functions, traits and implementations do not count.
fn types(code: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    // Of each open brace, whether a module is inside.
    let mut modules: Vec<bool> = Vec::new();
    let (mut before, mut last, mut end) = ("", "", 0);
    let mut words = words(code).peekable();
    while let Some((at, word)) = words.next() {
        for c in code.get(end..at).unwrap_or_default().chars() {
            match c {
                '{' => modules.push(before == "mod"),
                '}' => drop(modules.pop()),
                _ => {}
            }
        }
        let line = code.get(..at).unwrap_or_default();
        let line = line.rsplit('\n').next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        let is_item = indent == INDENT * modules.len() && modules.iter().all(|is| *is);
        if is_item && KINDS.contains(&word) {
            all.extend(words.peek().map(|(_, name)| (line_of(code, at), *name)));
        }
        (before, last, end) = (last, word, at + word.len());
    }
    all
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

    #[test]
    fn types_of_modules_within_a_file_count() {
        let top = "struct A;\n";
        let inner = "mod m {\n    use b::{c};\n    mod n {\n        pub struct A {}\n    }\n}\n";
        assert_eq!(count(&[("a/src/x.rs", top), ("a/src/y.rs", inner)]), 2);
        let other = "fn f() {\n    struct A;\n}\n#[cfg(test)]\nmod m {\n    struct A;\n}\n";
        assert_eq!(count(&[("a/src/x.rs", top), ("a/src/y.rs", other)]), 0);
        let after = "mod m {}\ntype A = u8;\n";
        assert_eq!(count(&[("a/src/x.rs", top), ("a/src/y.rs", after)]), 2);
    }
}
