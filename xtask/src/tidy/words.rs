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

/// Words that texts have no place for, with what to name instead: pronouns of persons, and second
/// words for an idea that has a term.
const OTHERS: &[(&str, &str)] = &[
    (concat!("w", "ho"), "a thing of the program"),
    (concat!("w", "hom"), "a thing of the program"),
    (concat!("set", "tle"), "wait, drain, write back or commit"),
    (
        concat!("set", "tles"),
        "waits, drains, writes back or commits",
    ),
    (concat!("set", "tled"), "durable, resolved or decided"),
];

/// The lines of a text that have such a word. The changelog speaks of the past, by its names.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let is_past = file.ends_with("CHANGELOG.md");
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let persons = persons(line).map(|word| (word, "a thing of the program"));
        let others = others(line).filter(|_| !is_past);
        for (word, term) in persons.chain(others) {
            all.push(Finding::at(file, i + 1, format!("`{word}`: name {term}")));
        }
    }
    all
}

/// The words for persons in a line.
pub(super) fn persons(line: &str) -> impl Iterator<Item = &'static str> + '_ {
    words(line).filter_map(|word| {
        let banned = PERSONS.iter().find(|p| word.eq_ignore_ascii_case(p));
        banned.copied()
    })
}

/// The other words in a line, with what to name instead.
fn others(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    words(line).filter_map(|word| {
        let banned = OTHERS.iter().find(|(b, _)| word.eq_ignore_ascii_case(b));
        banned.copied()
    })
}

/// The words of a line, but for those that are quoted.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_alphabetic() && c != '"');
    words.filter_map(|word| {
        let is_quoted = word.len() > 1 && word.starts_with('"') && word.ends_with('"');
        (!is_quoted).then(|| word.trim_matches('"'))
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

    #[test]
    fn other_words_are_found() {
        let (word, term) = OTHERS.last().copied().unwrap_or_default();
        let count = |file: &str, text: &str| check(Path::new(file), text).len();
        assert_eq!(
            count("a.rs", &format!("model.{word}();\n// un{word} it")),
            1
        );
        assert_eq!(count("docs/A.md", &format!("The writers {word}.")), 1);
        assert_eq!(
            count("CHANGELOG.md", &format!("`{word}` has another name")),
            0
        );
        assert_eq!(count("a.rs", &format!("// {term}")), 0);
    }
}
