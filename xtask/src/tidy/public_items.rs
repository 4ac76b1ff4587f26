//! The rule of public items: what users of the library can name stands in a list, so that a change
//! of it is seen, and is meant.
//!
//! The lists are `docs/api/CRATE.txt`; `cargo xtask tidy --api` writes them. A crate refuses `pub`
//! for what cannot be reached from outside (`unreachable_pub`), so each `pub` of its sources is an
//! item of the list.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::repository::Repository;
use super::tokens::{group, is_punct, is_word, render, word};

/// The crates whose items users of the library can name, by the names of their folders.
const CRATES: &[&str] = &["extant", "engine", "check", "mkfs"];

/// The file of a crate's list.
fn list_of(name: &str) -> PathBuf {
    Path::new("docs/api").join(format!("{name}.txt"))
}

/// Compares the lists with the sources.
pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut all = Vec::new();
    for name in CRATES {
        let list = list_of(name);
        let text = fs::read_to_string(repository.root.join(&list)).unwrap_or_default();
        all.extend(differences(&list, &text, &items(repository, name)));
    }
    all
}

/// Writes the lists.
pub(super) fn write(repository: &Repository) -> io::Result<()> {
    fs::create_dir_all(repository.root.join("docs/api"))?;
    for name in CRATES {
        let lines = items(repository, name).into_iter();
        let text: String = lines.map(|line| line + "\n").collect();
        fs::write(repository.root.join(list_of(name)), text)?;
    }
    Ok(())
}

fn differences(list: &Path, text: &str, items: &BTreeSet<String>) -> Vec<Finding> {
    const MEND: &str = "`cargo xtask tidy --api` writes the list";
    let listed: BTreeSet<&str> = text.lines().collect();
    let gone = listed.iter().filter(|line| !items.contains(**line));
    let gone = gone.map(|line| Finding::new(list, format!("no longer public: {line} ({MEND})")));
    let new = items.iter().filter(|line| !listed.contains(line.as_str()));
    let new = new.map(|line| Finding::new(list, format!("newly public: {line} ({MEND})")));
    gone.chain(new).collect()
}

/// The public items of a crate.
fn items(repository: &Repository, name: &str) -> BTreeSet<String> {
    let sources = Path::new("crates").join(name).join("src");
    let ours = repository.with("rs").filter(|source| {
        let is_test = source.path.ends_with("tests.rs") || source.path.iter().any(|p| p == "tests");
        source.path.starts_with(&sources) && !is_test
    });
    let all: BTreeSet<String> = ours.flat_map(|source| items_of(&source.tokens)).collect();
    let public: BTreeSet<String> = all.iter().filter_map(|item| type_of(item)).collect();
    let is_named = |item: &String| match item.strip_prefix("impl") {
        Some(header) if !header.contains(": pub ") => {
            let (_, target) = header.rsplit_once(" for ").unwrap_or(("", header));
            public.contains(first_word(target))
        }
        _ => true,
    };
    all.into_iter().filter(is_named).collect()
}

/// The name of the type that an item declares.
fn type_of(item: &str) -> Option<String> {
    let kinds = ["pub struct ", "pub enum ", "pub type "];
    let rest = kinds.iter().find_map(|kind| item.strip_prefix(kind))?;
    (!item.contains(": pub ")).then(|| first_word(rest).to_owned())
}

fn first_word(text: &str) -> &str {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    text.trim_start_matches('&')
        .split(is_end)
        .next()
        .unwrap_or_default()
}

/// The public items of one source: methods and fields with what they belong to.
fn items_of(tokens: &TokenStream) -> Vec<String> {
    let mut all = Vec::new();
    collect(tokens.clone(), "", &mut all);
    all
}

/// Adds the public items among `tokens`, which stand in the implementation or structure `around`.
fn collect(tokens: TokenStream, around: &str, all: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut inside = around.to_owned();
    for (at, token) in tokens.iter().enumerate() {
        let rest = tokens.get(at..).unwrap_or_default();
        let begins_line = token.span().start().column == 0;
        let is_public =
            is_word(Some(token), "pub") && group(rest.get(1), Delimiter::Parenthesis).is_none();
        if is_public {
            let item = item(rest);
            match around {
                "" => all.push(item.clone()),
                around => all.push(format!("{around}: {item}")),
            }
            if begins_line && is_word(rest.get(1), "struct") {
                inside = item;
            }
        }
        if begins_line && is_word(Some(token), "impl") {
            inside = render(up_to(rest, false, &[';']));
            if inside.contains(" for ") {
                all.push(inside.clone());
            }
        }
        if let TokenTree::Group(group) = token {
            collect(group.stream(), &inside, all);
            if group.delimiter() == Delimiter::Brace {
                inside = around.to_owned();
            }
        }
    }
}

/// The item that `rest` begins with: with its body where users can name what is in there.
fn item(rest: &[TokenTree]) -> String {
    let kind = word(rest.get(1)).unwrap_or_default();
    render(match kind.as_str() {
        "enum" | "trait" => up_to(rest, true, &[';']),
        "use" => up_to(rest, true, &[';']),
        "fn" | "struct" | "mod" | "unsafe" | "async" | "extern" | "const" | "static" | "type" => {
            up_to(rest, false, &[';'])
        }
        // A field.
        _ => up_to(rest, false, &[',', ';']),
    })
}

/// The start of `rest`, up to its first group in braces (with that, if `with_body`) or to one of
/// `ends` outside of angle brackets.
fn up_to<'a>(rest: &'a [TokenTree], with_body: bool, ends: &[char]) -> &'a [TokenTree] {
    let (mut angles, mut before) = (0, ' ');
    for (at, token) in rest.iter().enumerate() {
        if group(Some(token), Delimiter::Brace).is_some() {
            return rest.get(..at + usize::from(with_body)).unwrap_or(rest);
        }
        if angles == 0 && ends.iter().any(|end| is_punct(Some(token), *end)) {
            return rest.get(..at).unwrap_or(rest);
        }
        let c = match token {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        angles += i32::from(c == '<') - i32::from(c == '>' && !"-=".contains(before));
        before = c;
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_listed_with_what_users_can_name() {
        let code = concat!(
            "pub use a::{B,\n    C};\n",
            "pub struct D {\n    pub e: Vec<(u8, u8)>,\n    f: u8,\n}\n",
            "impl D {\n    pub fn g(\n        &self,\n    ) -> [u8; 4] {\n        h;\n    }\n}\n",
            "impl Clone for D {\n}\n",
            "pub enum I {\n    J { k: u8 },\n}\n",
            "pub(crate) fn l() {}\n",
            "pub const M: u8 = 5;\n",
        );
        let expected = [
            "pub use a::{B, C}",
            "pub struct D",
            "pub struct D: pub e: Vec<(u8, u8)>",
            "impl D: pub fn g( &self, ) -> [u8; 4]",
            "impl Clone for D",
            "pub enum I { J { k: u8 }, }",
            "pub const M: u8 = 5",
        ];
        assert_eq!(items_of(&code.parse().unwrap()), expected);
    }

    #[test]
    fn both_directions_of_a_difference_are_found() {
        let items: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let count = |text: &str| differences(Path::new("x.txt"), text, &items).len();
        assert_eq!(count("a\nb\n"), 0);
        assert_eq!(count("a\n"), 1);
        assert_eq!(count("a\nb\nc\n"), 1);
        assert_eq!(count("c\n"), 3);
    }
}
