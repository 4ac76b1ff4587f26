//! Rust sources without what is not code: comments and the contents of strings become spaces.
//!
//! # Invariants
//! The result has the length and the line ends of the source, so a position in one is a position in
//! the other.

/// `text` with comments, strings and characters blanked; quotation marks stay.
pub(super) fn blank(text: &str) -> String {
    let mut blanker = Blanker {
        bytes: text.as_bytes(),
        at: 0,
        out: Vec::with_capacity(text.len()),
    };
    while blanker.at < blanker.bytes.len() {
        blanker.step();
    }
    // What is not ASCII stands in comments and strings; elsewhere it was copied whole.
    String::from_utf8_lossy(&blanker.out).into_owned()
}

struct Blanker<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl Blanker<'_> {
    fn step(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let after_word = self
            .out
            .last()
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        if rest.starts_with(b"//") {
            let len = rest.iter().position(|b| *b == b'\n');
            self.hide(len.unwrap_or(rest.len()));
        } else if rest.starts_with(b"/*") {
            self.hide(comment(rest));
        } else if let Some((open, len)) = raw_string(rest).filter(|_| !after_word) {
            self.copy(open);
            self.hide(len.saturating_sub(open + 1));
            self.copy(1);
        } else if rest.starts_with(b"\"") {
            self.copy(1);
            self.hide(string(rest.get(1..).unwrap_or_default()));
            self.copy(1);
        } else if let Some(len) = character(rest) {
            self.hide(len);
        } else {
            self.copy(1);
        }
    }

    fn copy(&mut self, len: usize) {
        let end = (self.at + len).min(self.bytes.len());
        self.out
            .extend_from_slice(self.bytes.get(self.at..end).unwrap_or_default());
        self.at = end;
    }

    fn hide(&mut self, len: usize) {
        let end = (self.at + len).min(self.bytes.len());
        let hidden = self.bytes.get(self.at..end).unwrap_or_default();
        let spaces = hidden
            .iter()
            .map(|b| if *b == b'\n' { b'\n' } else { b' ' });
        self.out.extend(spaces);
        self.at = end;
    }
}

/// The length of the block comment at the start of `rest`; such comments nest.
fn comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while let Some(pair) = rest.get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The lengths of the raw string at the start of `rest`: up to and with its first quotation mark,
/// and up to, with, its last.
fn raw_string(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = [&b"r"[..], b"br", b"cr"]
        .into_iter()
        .find(|p| rest.starts_with(p))?;
    let hashes = rest
        .get(prefix.len()..)?
        .iter()
        .take_while(|b| **b == b'#')
        .count();
    let open = prefix.len() + hashes + 1;
    (rest.get(open - 1) == Some(&b'"')).then_some(())?;
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let body = rest.get(open..)?;
    let len = body.windows(end.len()).position(|w| w == end);
    Some((open, open + len.unwrap_or(body.len()) + 1))
}

/// The length of a string's contents.
fn string(body: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = body.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    body.len()
}

/// The length of the character literal at the start of `rest`; none for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    let body = rest.strip_prefix(b"'")?;
    if body.first() == Some(&b'\\') {
        let end = body.iter().skip(2).position(|b| *b == b'\'')?;
        return Some(end + 4);
    }
    let end = body.iter().take(5).position(|b| *b == b'\'')?;
    let is_one = std::str::from_utf8(body.get(..end)?).is_ok_and(|s| s.chars().count() == 1);
    is_one.then_some(end + 2)
}

/// `code`, already blanked, without items that are compiled for tests only.
pub(super) fn without_tests(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let attribute_len = balanced(from, '[', ']');
        let (attribute, after) = from.split_at(attribute_len);
        if is_for_tests(attribute) {
            let (item, after) = after.split_at(item_len(after));
            for text in [attribute, item] {
                out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            }
            rest = after;
        } else {
            out.push_str(attribute);
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn is_for_tests(attribute: &str) -> bool {
    let words: Vec<&str> = attribute
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    match words.as_slice() {
        ["test"] => true,
        ["cfg", conditions @ ..] => {
            conditions.contains(&"test")
                && !conditions.contains(&"not")
                && !conditions.contains(&"any")
        }
        _ => false,
    }
}

/// The length of an item behind one of its attributes: to its semicolon or its closing brace.
fn item_len(after: &str) -> usize {
    let mut at = 0;
    while let Some(rest) = after.get(at..) {
        let Some(next) = rest.find(['#', '(', '{', ';', ',']) else {
            break;
        };
        at += next;
        let here = after.get(at..).unwrap_or_default();
        match here.chars().next() {
            Some('#') => at += 1 + balanced(here.get(1..).unwrap_or_default(), '[', ']'),
            Some('(') => at += balanced(here, '(', ')'),
            Some('{') => {
                let end = at + balanced(here, '{', '}');
                // `use x::{a, b};` and a field's or variant's comma go on behind the brace.
                let tail = after.get(end..).unwrap_or_default();
                return end + usize::from(tail.starts_with([';', ',']));
            }
            _ => return at + 1,
        }
    }
    after.len()
}

/// The length from the first `open` in `text` to the `close` that belongs to it.
pub(super) fn balanced(text: &str, open: char, close: char) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && depth > 0 {
            depth -= 1;
            if depth == 0 {
                return at + c.len_utf8();
            }
        }
    }
    text.len()
}

/// The line, from one on, of a position.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|b| **b == b'\n').count() + 1
}

/// The words (identifiers) of a blanked source, with their positions.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = code.get(at..)?;
        let start = at + rest.find(is_word)?;
        let rest = code.get(start..)?;
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        at = start + len;
        Some((start, rest.get(..len)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_in_place() {
        let text = "a(\"x}\\\"y\"); // {\nb('{', '\\n', r#\"\"{\"#); /* { /* */ { */ c::<'a>('é')";
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(!code.contains(['{', '}', 'x', 'y', 'é']));
        assert!(code.contains("c::<'a>("));
    }

    #[test]
    fn items_for_tests_are_blanked() {
        let text = "use a::b;\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n f {}\n}\nfn c() {}\n";
        let code = without_tests(text);
        assert!(code.contains("fn c") && code.contains("a::b") && !code.contains("mod tests"));
        let other = "#[cfg(test)] use x::{y};\n#[cfg(not(test))] mod g;\n#[test]\nfn h() { z }\n";
        let code = without_tests(other);
        assert!(code.contains("mod g") && !code.contains(['x', 'y', 'h', 'z']));
        let macros = "#[cfg(all(test, unix))]\nfn a(x: u8) -> u8 { 1 }\nstruct B;";
        assert_eq!(without_tests(macros).trim(), "struct B;");
    }

    #[test]
    fn words_have_positions() {
        let all: Vec<_> = words("a.b_1 (c)").collect();
        assert_eq!(all, [(0, "a"), (2, "b_1"), (7, "c")]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
