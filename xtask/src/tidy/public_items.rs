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

use super::blank::balanced;
use super::finding::Finding;
use super::repository::Repository;

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
    let all: BTreeSet<String> = ours.flat_map(|source| items_of(&source.code)).collect();
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

/// The public items of one blanked source: methods and fields with what they belong to.
fn items_of(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    // The implementation or structure that the line is in, and its end.
    let (mut around, mut end) = (String::new(), 0);
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let rest = code.get(at..).unwrap_or_default();
        let opens = line.starts_with("impl") || line.starts_with("pub struct");
        if line.trim_start().starts_with("pub ") {
            let item = item(rest.trim_start());
            match at < end {
                true => all.push(format!("{around}: {item}")),
                false => all.push(item),
            }
        }
        if opens {
            let header = up_to(rest, &['{', ';']);
            if line.starts_with("impl") && header.contains(" for ") {
                all.push(header.clone());
            }
            let is_block = line.starts_with("impl") || !header.ends_with(')');
            let len = rest
                .find("\n}")
                .filter(|_| is_block && !line.ends_with(";\n"));
            (around, end) = (header, at + len.unwrap_or(0));
        }
        at += line.len();
    }
    all
}

/// The item that `rest` begins with: with its body where users can name what is in there.
fn item(rest: &str) -> String {
    let words: Vec<&str> = rest.split_whitespace().take(2).collect();
    match words.last().copied().unwrap_or_default() {
        "enum" | "trait" => {
            let from = rest.find('{').unwrap_or(rest.len());
            let body = balanced(rest.get(from..).unwrap_or_default(), '{', '}');
            squeezed(rest.get(..from + body).unwrap_or(rest))
        }
        "fn" | "struct" | "mod" | "unsafe" | "async" | "extern" => up_to(rest, &['{', ';']),
        "use" => up_to(rest, &[';']),
        "const" | "static" | "type" => up_to(rest, &['{', ';']),
        // A field.
        _ => up_to(rest, &[',', '}', '{', ';']),
    }
}

/// The start of `rest`, up to one of `ends` outside of brackets.
fn up_to(rest: &str, ends: &[char]) -> String {
    let mut depth = 0_i32;
    let mut before = ' ';
    let end = rest.find(|c: char| {
        let closes_angle = c == '>' && before != '-' && before != '=';
        depth += i32::from("([<".contains(c)) - i32::from(")]".contains(c) || closes_angle);
        before = c;
        depth <= 0 && ends.contains(&c)
    });
    squeezed(rest.get(..end.unwrap_or(rest.len())).unwrap_or(rest))
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        assert_eq!(items_of(code), expected);
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
