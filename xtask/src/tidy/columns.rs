//! The rule of columns: a line of code, of a comment or of Markdown has at most 100.

use std::path::Path;

use super::finding::Finding;

/// Longest line, in characters.
const LONGEST: usize = 100;

/// The lines of a Rust source, a script or a document that are too long.
pub(super) fn check(file: &Path, text: &str) -> Vec<Finding> {
    let is_document = file.extension().is_some_and(|e| e == "md");
    let lines = text.lines().enumerate();
    let long = lines.filter(|(_, line)| line.chars().count() > LONGEST);
    long.filter(|(_, line)| !(has_address(line) || is_document && may_be_long(line)))
        .map(|(i, line)| {
            let columns = line.chars().count();
            Finding::at(
                file,
                i + 1,
                format!("{columns} columns, more than {LONGEST}"),
            )
        })
        .collect()
}

/// Tables and links of Markdown cannot be broken.
fn may_be_long(line: &str) -> bool {
    line.trim_start().starts_with('|') || line.contains("](") || line.starts_with('[')
}

fn has_address(line: &str) -> bool {
    line.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_found() {
        let count = |file: &str, text: &str| check(Path::new(file), text).len();
        let fine = "é".repeat(LONGEST);
        assert_eq!(count("a.rs", &fine), 0);
        assert_eq!(count("a.rs", &format!("{fine}x\n// {fine}")), 2);
        assert_eq!(count("a.md", &format!("{fine} x\n")), 1);
        assert_eq!(count("a.md", &format!("| {fine} x |\n[a](b.md) {fine}")), 0);
        assert_eq!(count("a.rs", &format!("// https://a.b/{fine}")), 0);
    }
}
