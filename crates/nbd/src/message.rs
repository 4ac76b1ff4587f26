//! Text of others that a terminal is to show.

/// Text without the characters that could control a terminal or begin a line.
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
