//! Rust sources as tokens: without comments, strings as one token each, brackets in pairs. Macros'
//! bodies are tokens as well, which a syntax tree would not show.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, LineColumn, TokenStream, TokenTree};

/// The line of a token, from one on.
pub(super) fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

/// Returns whether a token is the identifier `word`.
pub(super) fn is_word(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

/// Returns whether a token is the punctuation `c`.
pub(super) fn is_punct(token: Option<&TokenTree>, c: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c)
}

/// The identifier that a token is.
pub(super) fn word(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// The bracketed group that a token is.
pub(super) fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Calls `visit` with the tokens of each bracket, those around all of them first.
pub(super) fn each_level(tokens: &TokenStream, visit: &mut impl FnMut(&[TokenTree])) {
    let level: Vec<TokenTree> = tokens.clone().into_iter().collect();
    visit(&level);
    for token in &level {
        if let TokenTree::Group(group) = token {
            each_level(&group.stream(), visit);
        }
    }
}

/// `tokens` without the items that are compiled for tests only.
pub(super) fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut out = TokenStream::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        let is_hash = is_punct(Some(&token), '#');
        let attribute = group(rest.peek(), Delimiter::Bracket).filter(|_| is_hash);
        if attribute.is_some_and(is_for_tests) {
            rest.next();
            skip_item(&mut rest);
            continue;
        }
        let TokenTree::Group(group) = &token else {
            out.extend([token]);
            continue;
        };
        let mut inner = Group::new(group.delimiter(), without_tests(group.stream()));
        inner.set_span(group.span());
        out.extend([TokenTree::from(inner)]);
    }
    out
}

fn is_for_tests(attribute: &Group) -> bool {
    let words = words(attribute.stream());
    let has = |word: &str| words.contains(word);
    let alone = words.len() == 1 && has("test");
    alone || has("cfg") && has("test") && !has("not") && !has("any")
}

/// All identifiers.
fn words(tokens: TokenStream) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    each_level(&tokens, &mut |level| {
        all.extend(level.iter().filter_map(|token| word(Some(token))));
    });
    all
}

/// Skips an item behind one of its attributes: to its semicolon, its comma or its closing brace.
fn skip_item(rest: &mut std::iter::Peekable<impl Iterator<Item = TokenTree>>) {
    let (mut angles, mut before) = (0, ' ');
    while let Some(token) = rest.next() {
        let c = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match c {
            '<' => angles += 1,
            '>' if !"-=".contains(before) => angles -= 1,
            ';' => return,
            ',' if angles == 0 => return,
            _ => {}
        }
        before = c;
        if group(Some(&token), Delimiter::Brace).is_some() {
            // `use x::{a, b};` and a field's or variant's comma go on behind the brace.
            if is_punct(rest.peek(), ';') || is_punct(rest.peek(), ',') {
                rest.next();
            }
            return;
        }
    }
}

/// The parts of a list, without empty ones: what stands between commas outside of angle brackets.
pub(super) fn parts(list: &Group) -> Vec<Vec<TokenTree>> {
    let mut all = vec![Vec::new()];
    let (mut angles, mut before) = (0, ' ');
    for token in list.stream() {
        let c = match &token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        angles += i32::from(c == '<') - i32::from(c == '>' && !"-=".contains(before));
        before = c;
        match all.last_mut() {
            Some(part) if c != ',' || angles > 0 => part.push(token),
            _ => all.push(Vec::new()),
        }
    }
    all.retain(|part| !part.is_empty());
    all
}

/// The words (identifiers) of a text.
pub(super) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// The words of the code: identifiers, and the words of strings that are no documentation.
pub(super) fn words_of_code(tokens: &TokenStream) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    each_level(tokens, &mut |level| {
        if is_word(level.first(), "doc") {
            return;
        }
        for token in level {
            match token {
                TokenTree::Ident(ident) => drop(all.insert(ident.to_string())),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    all.extend(words_of(&text).map(str::to_owned));
                }
                _ => {}
            }
        }
    });
    all
}

/// Tokens as text, with a space wherever the source has any; without documentation.
pub(super) fn render<'a>(tokens: impl IntoIterator<Item = &'a TokenTree>) -> String {
    let mut writer = Writer::default();
    tokens.into_iter().for_each(|token| writer.token(token));
    writer.text
}

#[derive(Default)]
struct Writer {
    text: String,
    end: Option<LineColumn>,
}

impl Writer {
    fn token(&mut self, token: &TokenTree) {
        let TokenTree::Group(group) = token else {
            // What messages say is no part of an interface.
            let text = token.to_string();
            let text = if text.starts_with('"') {
                "\" \""
            } else {
                &text
            };
            return self.piece(token.span().start(), token.span().end(), text);
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        let (first, last) = (group.span_open(), group.span_close());
        self.piece(first.start(), first.end(), open);
        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
        let is_doc = |at: usize| {
            let attribute = group_at(&inside, at);
            attribute.is_some_and(|it| is_word(it.stream().into_iter().next().as_ref(), "doc"))
        };
        for (at, token) in inside.iter().enumerate() {
            if !(is_doc(at) || at > 0 && is_doc(at - 1)) {
                self.token(token);
            }
        }
        self.piece(last.start(), last.end(), close);
    }

    fn piece(&mut self, start: LineColumn, end: LineColumn, text: &str) {
        if self.end.is_some_and(|before| before != start) {
            self.text.push(' ');
        }
        self.text.push_str(text);
        self.end = Some(end);
    }
}

/// The attribute whose `#` stands at `at`.
fn group_at(tokens: &[TokenTree], at: usize) -> Option<&Group> {
    let is_hash = is_punct(tokens.get(at), '#');
    group(tokens.get(at + 1), Delimiter::Bracket).filter(|_| is_hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str) -> String {
        let tokens: Vec<TokenTree> = without_tests(text.parse().unwrap()).into_iter().collect();
        render(&tokens)
    }

    #[test]
    fn items_for_tests_are_left_out() {
        let text = "use a::b;\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n f {}\n}\nfn c() {}";
        assert_eq!(stripped(text), "use a::b; fn c() {}");
        let other = "#[cfg(test)] use x::{y};\n#[cfg(not(test))] mod g;\n#[test]\nfn h() { z }";
        assert_eq!(stripped(other), "#[cfg(not(test))] mod g;");
        let generic = "#[cfg(all(test, unix))]\nfn a<T, U>(x: u8) -> u8 { 1 }\nstruct B;";
        assert_eq!(stripped(generic), "struct B;");
        let field = "struct B { #[cfg(test)] a: Vec<(u8, u8)>, b: u8 }";
        assert_eq!(stripped(field), "struct B { b: u8 }");
    }

    #[test]
    fn text_has_the_spaces_of_the_source() {
        let text = "pub fn g(\n    &self, // why\n) -> [u8;  4] { /// doc\n a::<'b>() }";
        assert_eq!(
            stripped(text),
            "pub fn g( &self, ) -> [u8; 4] { a::<'b>() }"
        );
    }
}
