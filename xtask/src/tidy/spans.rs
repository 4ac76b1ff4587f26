//! The code in a Markdown text: what stands in backticks, in fences and in indented blocks.

/// A piece of code within one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span<'a> {
    /// Its line, counted from one.
    pub(super) line: usize,
    pub(super) text: &'a str,
    /// A whole line of a block.
    pub(super) is_block: bool,
}

/// All pieces, in order.
pub(super) fn code_spans(text: &str) -> impl Iterator<Item = Span<'_>> {
    let mut fenced = false;
    let mut after_blank = true;
    let mut indented = false;
    // A piece that goes on in the next line is no name.
    let mut open = false;
    text.lines().enumerate().flat_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        // An indented block stands behind an empty line, not inside of a paragraph or an item.
        let deep = line.starts_with("    ");
        indented = deep && (indented || after_blank);
        after_blank = line.trim().is_empty();
        let is_block = !is_fence && (fenced || indented);
        let block = is_block.then(|| line.trim()).into_iter();
        let is_text = !(is_block || is_fence || after_blank);
        let marks = if is_text {
            line.matches('`').count()
        } else {
            0
        };
        let was_open = is_text && open;
        open = was_open ^ (marks % 2 == 1);
        let first = 1 + usize::from(was_open);
        let inline = line.split('`').take(marks).skip(first).step_by(2);
        block.chain(inline).map(move |text| Span {
            line: i + 1,
            text,
            is_block,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_code_is_found() {
        let text = "a `b` c `d`\n```sh\ne `f`\n```\n\n    g\n    h\n\ni\n    `j` k\nl `m\nn` `o`\n";
        let spans: Vec<_> = code_spans(text)
            .map(|s| (s.line, s.text, s.is_block))
            .collect();
        let expected = [
            (1, "b", false),
            (1, "d", false),
            (3, "e `f`", true),
            (6, "g", true),
            (7, "h", true),
            (10, "j", false),
            (12, "o", false),
        ];
        assert_eq!(spans, expected);
    }
}
