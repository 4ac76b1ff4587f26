//! The rule of type names: within a crate's sources each is used once.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::file_names::sources_of;
use super::finding::Finding;
use super::tokens::{group, line, word};

/// The words that introduce a type.
const KINDS: &[&str] = &["struct", "enum", "union", "trait", "type"];

/// The types, of sources by path and without tests, whose name another file of their crate has too.
/// A file may have variants of a type, one for each configuration.
pub(super) fn check<'a>(
    sources: impl Iterator<Item = (&'a Path, &'a TokenStream)>,
) -> Vec<Finding> {
    let mut by_name: BTreeMap<(&Path, String), BTreeMap<&Path, usize>> = BTreeMap::new();
    for (file, tokens) in sources.filter(|(file, _)| !file.ends_with("tests.rs")) {
        let Some(folder) = sources_of(file) else {
            continue;
        };
        for (line, name) in types(tokens.clone()) {
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

/// The types of a source, at its top and in modules within it, with their lines. Those within
/// functions, traits and implementations do not count.
fn types(tokens: TokenStream) -> Vec<(usize, String)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut all = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some((kind, name)) = word(Some(token)).zip(word(tokens.get(at + 1))) else {
            continue;
        };
        if KINDS.contains(&kind.as_str()) {
            all.push((line(token), name));
        } else if let ("mod", Some(body)) = (&*kind, group(tokens.get(at + 2), Delimiter::Brace)) {
            all.extend(types(body.stream()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::tokens::without_tests;
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        let files = files.iter().map(|(path, code)| {
            let tokens = without_tests(code.parse().unwrap());
            (Path::new(*path), tokens)
        });
        let files: Vec<_> = files.collect();
        check(files.iter().map(|(path, tokens)| (*path, tokens))).len()
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
