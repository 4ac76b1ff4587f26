//! The rule of words: some have no place in comments, texts, names and commits.
//!
//! Subjects are things of the program, not persons; and an idea that has a standard term has no
//! second word.

use std::path::Path;

use super::finding::Finding;

/// Words for persons; quoted names of accounts are not meant.
const PERSONS: &[&str] = &[
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("him", "self"),
];

/// The lines of a text that have such a word.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(i, line)| persons(line).map(move |word| (i, word)));
    found
        .map(|(i, word)| {
            Finding::at(
                file,
                i + 1,
                format!("`{word}`: name a thing of the program"),
            )
        })
        .collect()
}

/// The words for persons in a line.
pub(super) fn persons(line: &str) -> impl Iterator<Item = &'static str> + '_ {
    let words = line.split(|c: char| !c.is_alphabetic() && c != '"');
    words.filter_map(|word| {
        let is_quoted = word.len() > 1 && word.starts_with('"') && word.ends_with('"');
        let word = word.trim_matches('"');
        let banned = PERSONS.iter().find(|p| word.eq_ignore_ascii_case(p));
        banned.filter(|_| !is_quoted).copied()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persons_are_found() {
        let word = PERSONS.first().copied().unwrap_or_default();
        let upper = word.to_uppercase();
        let text = format!("// fine\n// {word}, and {upper}.\n fn {word}_waits() {{}}\n");
        let lines: Vec<_> = check(Path::new("a.rs"), &text)
            .iter()
            .map(|f| f.line)
            .collect();
        assert_eq!(lines, [Some(2), Some(2), Some(3)]);
        assert!(check(Path::new("a.rs"), &format!("user(\"{word}\"), {word}s")).is_empty());
        assert_eq!(
            check(Path::new("a.rs"), &format!("\"{word} waits\"")).len(),
            1
        );
    }
}
