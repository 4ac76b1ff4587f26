//! The names in a source file: what it imports, what it names by a path, and what it declares.

use std::collections::BTreeSet;

use super::tokens::{group, is_punct, is_word, line, word};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as written, with the inline modules that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) line: usize,
    /// Names of the modules of this file around it.
    pub(super) inside: Vec<String>,
    pub(super) segments: Vec<String>,
    /// The name that a `use` gives it; `*` for a glob. None for a path in other code.
    pub(super) alias: Option<String>,
    /// A re-export.
    pub(super) is_public: bool,
}

/// The names in a source without tests.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) named: Vec<Named>,
    /// The items that it declares.
    pub(super) items: BTreeSet<String>,
    /// The words outside of `use` declarations.
    pub(super) words: BTreeSet<String>,
}

/// The words that introduce an item's name.
const KINDS: &[&str] = &[
    "struct", "enum", "trait", "type", "fn", "const", "static", "union",
];

impl Names {
    pub(super) fn read(tokens: &TokenStream) -> Names {
        let mut names = Names::default();
        names.scan(tokens.clone(), &[]);
        names
    }

    fn scan(&mut self, tokens: TokenStream, inside: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let (next, after) = (tokens.get(at + 1), tokens.get(at + 2));
            if let TokenTree::Group(group) = token {
                self.scan(group.stream(), inside);
            }
            let Some(name) = word(Some(token)) else {
                at += 1;
                continue;
            };
            if name == "use" && !is_punct(next, '<') {
                at += self.declaration(&tokens, at, inside);
                continue;
            }
            if let (Some(declared), true) = (word(next), KINDS.contains(&name.as_str())) {
                self.items.insert(declared);
            } else if name == "macro_rules" {
                self.items.extend(word(after));
            }
            let body = group(after, Delimiter::Brace).filter(|_| name == "mod");
            if let (Some(body), Some(module)) = (body, word(next)) {
                self.scan(body.stream(), &[inside, &[module]].concat());
            }
            if name == "mod" {
                at += 3;
                continue;
            }
            // `pub(in PATH)` only says where an item is visible.
            if name == "pub" && group(next, Delimiter::Parenthesis).is_some() {
                at += 2;
                continue;
            }
            let segments = path(tokens.get(at..).unwrap_or_default());
            let goes_on = is_punct(next, ':') && is_punct(after, ':');
            let before = at.checked_sub(1).and_then(|before| tokens.get(before));
            // The rest of a path, or a macro's `$crate`.
            let is_within = is_punct(before, ':') && at >= 2 && is_punct(tokens.get(at - 2), ':');
            let len = segments.len() * 3 - 2;
            self.words.extend(segments.iter().cloned());
            if goes_on && !is_within && !is_punct(before, '$') {
                self.named.push(Named {
                    line: line(token),
                    inside: inside.to_vec(),
                    segments,
                    alias: None,
                    is_public: false,
                });
            }
            at += len;
        }
    }

    /// Takes the `use` declaration at `at`, and returns its length.
    fn declaration(&mut self, tokens: &[TokenTree], at: usize, inside: &[String]) -> usize {
        let rest = tokens.get(at..).unwrap_or_default();
        let end = rest.iter().position(|token| is_punct(Some(token), ';'));
        let len = end.map_or(rest.len(), |end| end + 1);
        let before = |by: usize| at.checked_sub(by).and_then(|at| tokens.get(at));
        let in_part = group(before(1), Delimiter::Parenthesis).is_some();
        let is_public = is_word(before(1), "pub") || in_part && is_word(before(2), "pub");
        let mut found = Vec::new();
        let tree = rest.get(1..end.unwrap_or(len)).unwrap_or_default();
        branches(&[], tree, &mut found);
        let line = rest.first().map_or(0, line);
        self.named
            .extend(found.into_iter().map(|(segments, alias)| Named {
                line,
                inside: inside.to_vec(),
                segments,
                alias: Some(alias),
                is_public,
            }));
        len
    }
}

/// The path at the start of `tokens`.
fn path(tokens: &[TokenTree]) -> Vec<String> {
    let mut all: Vec<String> = word(tokens.first()).into_iter().collect();
    for three in tokens.get(1..).unwrap_or_default().chunks_exact(3) {
        match (three.first(), three.get(1), word(three.last())) {
            (a, b, Some(name)) if is_punct(a, ':') && is_punct(b, ':') => all.push(name),
            _ => break,
        }
    }
    all
}

/// Adds the paths of a tree below `prefix`, each with its name.
fn branches(prefix: &[String], tree: &[TokenTree], all: &mut Vec<(Vec<String>, String)>) {
    if let Some(group) = group(tree.first(), Delimiter::Brace) {
        let inside: Vec<TokenTree> = group.stream().into_iter().collect();
        for branch in inside.split(|token| is_punct(Some(token), ',')) {
            branches(prefix, branch, all);
        }
    } else if is_punct(tree.first(), '*') {
        all.push((prefix.to_vec(), "*".to_owned()));
    } else if let Some(name) = word(tree.first()) {
        let is_self = name == "self" && !prefix.is_empty();
        let own = (!is_self).then_some(name);
        let whole: Vec<String> = prefix.iter().cloned().chain(own).collect();
        if is_punct(tree.get(1), ':') {
            branches(&whole, tree.get(3..).unwrap_or_default(), all);
        } else {
            let renamed = word(tree.get(2)).filter(|_| is_word(tree.get(1), "as"));
            let alias = renamed.or_else(|| whole.last().cloned());
            all.push((whole, alias.unwrap_or_default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_and_paths_are_read() {
        let code = "use crate::{low::{self, A as B}, high::*};\npub use super::C;\n\
                    fn f() { self::g::h(std::i) }\nmod m { use super::n; }\n\
                    pub(in crate::o) fn p() { x!(q::r) }";
        let names = Names::read(&code.parse().unwrap());
        let shown: Vec<String> = names
            .named
            .iter()
            .map(|n| {
                let alias = n.alias.as_deref().unwrap_or("-");
                format!(
                    "{} {} {} {alias} {}",
                    n.line,
                    n.inside.join("/"),
                    n.segments.join("::"),
                    u8::from(n.is_public),
                )
            })
            .collect();
        let expected = [
            "1  crate::low low 0",
            "1  crate::low::A B 0",
            "1  crate::high * 0",
            "2  super::C C 1",
            "3  self::g::h - 0",
            "3  std::i - 0",
            "4 m super::n n 0",
            "5  q::r - 0",
        ];
        assert_eq!(shown, expected);
        let declared = "pub(crate) struct A; const fn b() { c } macro_rules! d { () => {} }";
        let names = Names::read(&declared.parse().unwrap());
        let items = ["A", "b", "d", "fn"].map(str::to_owned);
        assert_eq!(names.items, items.into());
        assert!(names.words.contains("c"));
    }
}
