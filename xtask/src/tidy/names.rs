//! The rule of names: words with more than one meaning are no names of types and functions.

use std::path::Path;

use proc_macro2::TokenStream;

use super::finding::Finding;
use super::tokens::{each_level, line, word};

/// Words, and what introduces them as names.
const GENERIC: &[(&[&str], &[&str])] = &[
    (
        &["struct", "enum", "trait", "type", "union"],
        &["What", "Wish", "Moving", "Place", "Keep", "Kept", "Keeper"],
    ),
    (&["fn"], &["go_on", "keep", "kept", "place"]),
];

/// Files of the process that holds a mount's descriptor, whose name is in the glossary.
const OF_THE_KEEPER: &[&str] = &[
    "crates/fuse/src/keeper.rs",
    "crates/cli/src/serve.rs",
    "crates/fuse/src/keeper_service.rs",
];

/// The names of a source that say nothing.
pub(super) fn check(file: &Path, tokens: &TokenStream) -> Vec<Finding> {
    let mut all = Vec::new();
    if OF_THE_KEEPER.iter().any(|own| file == Path::new(own)) {
        return all;
    }
    each_level(tokens, &mut |level| {
        for two in level.windows(2) {
            let Some((kind, name)) = word(two.first()).zip(word(two.last())) else {
                continue;
            };
            let is_generic = |(kinds, names): &(&[&str], &[&str])| {
                kinds.contains(&kind.as_str()) && names.contains(&name.as_str())
            };
            if GENERIC.iter().any(is_generic) {
                let first = two.first().map_or(0, line);
                let what = format!("{kind} {name}: name which one (STYLE's terms)");
                all.push(Finding::at(file, first, what));
            }
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_names_are_found() {
        let count = |file: &str, code: &str| {
            let tokens = code.parse().unwrap();
            check(Path::new(file), &tokens).len()
        };
        assert_eq!(
            count("a.rs", "struct Wish; impl A { fn keep(&self) {} }"),
            2
        );
        assert_eq!(
            count("a.rs", "struct Whatever; fn keep_size() { keep() }"),
            0
        );
        assert_eq!(count("crates/cli/src/serve.rs", "fn keep() {}"), 0);
    }
}
