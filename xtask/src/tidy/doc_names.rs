//! The rule of names in documents and headers: the files, folders and items of the source that they
//! name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::spans::code_spans;
use super::tokens::{each_level, group, is_punct, word, words_of_code};

/// The words that introduce something with members.
const OWNERS: &[&str] = &["struct", "enum", "union", "trait", "impl"];

/// The beginning of the rows of a workload of `extant bench` that has a crate's name.
const WORKLOAD: &str = "build/";

/// The files and items that names may refer to.
pub(super) struct Known<'a> {
    files: &'a [PathBuf],
    /// The folders of all files, and the paths of sources without their ending.
    folders: BTreeSet<PathBuf>,
    /// The words of each source's code.
    by_file: BTreeMap<&'a Path, BTreeSet<String>>,
    pub(super) words: BTreeSet<String>,
    /// The words at the top of each type's declaration and implementations.
    members: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Known<'a> {
    /// Takes all files, and the tokens of the sources among them.
    pub(super) fn new(
        files: &'a [PathBuf],
        sources: impl Iterator<Item = (&'a Path, &'a TokenStream)>,
    ) -> Known<'a> {
        let around = files.iter().flat_map(|file| file.ancestors().skip(1));
        let sources_named = files.iter().map(|file| file.with_extension(""));
        let mut known = Known {
            files,
            folders: around.map(Path::to_path_buf).chain(sources_named).collect(),
            by_file: BTreeMap::new(),
            words: BTreeSet::new(),
            members: BTreeMap::new(),
        };
        for (file, tokens) in sources {
            let words = words_of_code(tokens);
            known.words.extend(words.iter().cloned());
            known.by_file.insert(file, words);
            each_level(tokens, &mut |level| known.add_members(level));
        }
        known
    }

    fn add_members(&mut self, level: &[TokenTree]) {
        for (at, token) in level.iter().enumerate() {
            let kind = word(Some(token)).filter(|kind| OWNERS.contains(&kind.as_str()));
            let rest = level.get(at + 1..).unwrap_or_default();
            let Some(body) = rest.iter().find_map(|it| group(Some(it), Delimiter::Brace)) else {
                continue;
            };
            let name = match kind.as_deref() {
                Some("impl") => implemented(rest),
                Some(_) => word(rest.first()),
                None => None,
            };
            if let Some(name) = name {
                let inside = body.stream().into_iter();
                let inside = inside.filter_map(|token| word(Some(&token)));
                self.members.entry(name).or_default().extend(inside);
            }
        }
    }

    /// The files whose path ends with `tail`, where a crate's name may stand for its sources.
    fn files(&self, tail: &str) -> impl Iterator<Item = &'a Path> {
        let (first, rest) = tail.split_once('/').unwrap_or((tail, "."));
        let sources = Path::new("crates").join(first).join("src");
        self.files.iter().map(PathBuf::as_path).filter(move |file| {
            let in_crate = file.starts_with(&sources) && file.ends_with(rest);
            in_crate
                || match tail.split_once('*') {
                    None => file.ends_with(tail),
                    Some((before, after)) => file
                        .to_str()
                        .is_some_and(|name| name.contains(before) && name.ends_with(after)),
                }
        })
    }

    /// Returns whether a path from the root, or from a crate or its sources, is a folder or the
    /// file of a module; true for what does not begin like one. `around` is the file that names it.
    fn may_be_folder(&self, around: &Path, path: &str) -> bool {
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let is_there = |path: PathBuf| self.folders.contains(&path);
        let own: PathBuf = around.iter().take(2).collect();
        let of_crate = Path::new("crates").join(first);
        let begins = is_there(of_crate.clone()) || is_there(first.into());
        let mut paths = [
            path.into(),
            own.join(path),
            of_crate.join(rest),
            of_crate.join("src").join(rest),
        ]
        .into_iter();
        !begins || path.starts_with(WORKLOAD) || paths.any(is_there)
    }

    /// The names in a document, or in the headers of a source, that lead nowhere.
    pub(super) fn check(&self, file: &Path, text: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for span in code_spans(text).filter(|span| !span.is_block) {
            if let Some(what) = self.wrong(file, span.text) {
                all.push(Finding::at(file, span.line, what));
            }
        }
        all
    }

    fn wrong(&self, around: &Path, span: &str) -> Option<String> {
        let name = span.strip_suffix("()").unwrap_or(span);
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./*:".contains(c);
        // `user::r-x` is an entry of a list of permissions.
        let is_entry = name.contains("::") && name.contains('-');
        if !name.chars().all(is_path) || name.starts_with('/') || is_entry {
            return None;
        }
        let (file, item) = match name.split_once(".rs::") {
            Some((stem, item)) => (format!("{stem}.rs"), item),
            None if name.ends_with(".rs") => (name.to_owned(), ""),
            None if name.contains("::") || name != span => (String::new(), name),
            None if name.contains(['.', '*', ':']) || self.may_be_folder(around, name) => {
                return None;
            }
            None => return Some(format!("`{span}`: there is no such folder")),
        };
        let files: Vec<&Path> = self.files(&file).collect();
        if !file.is_empty() && files.is_empty() {
            return Some(format!("`{span}`: there is no such file"));
        }
        let mut segments = item.rsplit("::");
        let (last, owner) = (segments.next()?, segments.next());
        let words: Vec<&BTreeSet<String>> = match owner.and_then(|owner| self.members.get(owner)) {
            Some(members) => vec![members],
            None if file.is_empty() => vec![&self.words],
            None => files
                .iter()
                .filter_map(|file| self.by_file.get(file))
                .collect(),
        };
        let has_it = |words: &&BTreeSet<String>| match last.split_once('*') {
            Some((prefix, _)) => words.iter().any(|word| word.starts_with(prefix)),
            None => last.is_empty() || words.contains(last),
        };
        let exists = words.iter().any(has_it);
        (!exists).then(|| format!("`{span}`: the sources have no `{last}` there"))
    }
}

/// The header of a source, at its lines: the other ones are empty.
pub(super) fn header(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.strip_prefix("//! ").unwrap_or_default());
    // Those in brackets are links, which rustdoc follows.
    let lines = lines.map(|line| line.replace("[`", "[").replace("`]", "]") + "\n");
    lines.collect()
}

/// The type of an implementation, by what follows `impl`: the last name outside of angle brackets.
fn implemented(rest: &[TokenTree]) -> Option<String> {
    let (mut angles, mut before, mut name) = (0, ' ', None);
    for token in rest {
        match token {
            TokenTree::Punct(punct) => {
                let c = punct.as_char();
                angles += i32::from(c == '<') - i32::from(c == '>' && !"-=".contains(before));
                before = c;
            }
            TokenTree::Ident(ident) if ident == "where" => break,
            TokenTree::Ident(ident) if angles == 0 && before != '\'' => {
                name = Some(ident.to_string());
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => before = ' ',
        }
        if is_punct(Some(token), ';') {
            return None;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_nowhere_are_found() {
        let files = [PathBuf::from("crates/a/src/low/write.rs")];
        let code = "/// gone\nfn overwrite() {} fn j1_x() {}\n\
                    impl<'a, T: F> D for Over<'a, T> where T: D { fn lay() { within() } }";
        let code: TokenStream = code.parse().unwrap();
        let sources = [(files[0].as_path(), &code)];
        let known = Known::new(&files, sources.into_iter());
        let count = |text: &str| known.check(Path::new("d.md"), text).len();
        let there =
            "`write.rs`, `a/write.rs`, `low/write.rs::overwrite`, `std::overwrite`, `a/low`";
        assert_eq!(count(there), 0);
        assert_eq!(
            count("`a::j1_*`, `a::b c`, `--x`, `x/y`, `overwrite()`, `/a/gone`"),
            0
        );
        assert_eq!(count("`read.rs`, `b/write.rs`, `a/high`"), 3);
        assert_eq!(count("`write.rs::append`, `gone()`"), 2);
        assert_eq!(count("`Over::lay`, `write.rs::Over::lay`"), 0);
        assert_eq!(count("`Over::within`, `Over::overwrite`"), 2);
        assert_eq!(count("`file::append` and `j::j2_*`"), 2);
    }

    #[test]
    fn a_header_stays_in_its_lines() {
        let text = "//! `a`, [`b`]\nuse c;\n//! d\n";
        assert_eq!(header(text), "`a`, [b]\n\nd\n");
    }
}
