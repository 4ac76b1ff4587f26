//! Text for a terminal, from names and messages that are not trusted.

/// Text without the characters that could control a terminal or begin a line.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
