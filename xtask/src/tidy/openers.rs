//! The rule of first words: a line of documentation opens with a noun or a verb.

use std::path::Path;

use super::finding::Finding;

/// Words that open a question instead of saying what an item is.
const QUESTIONS: &[&str] = &["What", "Whether", "Where"];

/// The lines of a source's documentation that open with such a word.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let lines = (1..).zip(text.lines());
    let found = lines.filter_map(|(number, line)| {
        let word = opener(line).filter(|word| QUESTIONS.contains(word))?;
        let what = format!("opens with `{word}`: say what it is");
        Some(Finding::at(file, number, what))
    });
    found.collect()
}

/// The first word of a line of documentation.
fn opener(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let doc = line
        .strip_prefix("/// ")
        .or_else(|| line.strip_prefix("//! "))?;
    let item = doc.strip_prefix("- ").unwrap_or(doc);
    item.split(|c: char| !c.is_alphanumeric()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_found() {
        let count = |text: &str| check(Path::new("a.rs"), text).len();
        assert_eq!(
            count("//! What x is.\n    /// Where y lies.\n/// - Whether z\n"),
            3
        );
        assert_eq!(
            count("// What x is.\n/// Whatever\n/// Returns whether\n"),
            0
        );
    }
}
