//! The rule of names in documents: files and items of the source that they name exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::spans::code_spans;

/// What names may refer to: all files, and all words of the sources.
pub(super) struct Known<'a> {
    files: &'a [PathBuf],
    words: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    /// `words` are those of all sources.
    pub(super) fn new(files: &'a [PathBuf], words: BTreeSet<&'a str>) -> Known<'a> {
        Known { files, words }
    }

    pub(super) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Whether some file's path ends with `tail`, where a crate's name may stand for its sources.
    fn has_file(&self, tail: &str) -> bool {
        let (first, rest) = tail.split_once('/').unwrap_or((tail, ""));
        let sources = Path::new("crates").join(first).join("src");
        let in_crate = |file: &PathBuf| file.starts_with(&sources) && file.ends_with(rest);
        if !rest.is_empty() && self.files.iter().any(in_crate) {
            return true;
        }
        let is_it = |file: &PathBuf| match tail.split_once('*') {
            None => file.ends_with(tail),
            Some((before, after)) => file
                .to_str()
                .is_some_and(|name| name.contains(before) && name.ends_with(after)),
        };
        self.files.iter().any(is_it)
    }

    /// What is wrong with the names in a document.
    pub(super) fn check(&self, file: &Path, text: &str) -> Vec<Finding> {
        let mut all = Vec::new();
        for span in code_spans(text).filter(|span| !span.is_block) {
            if let Some(what) = self.wrong(span.text) {
                all.push(Finding::at(file, span.line, what));
            }
        }
        all
    }

    fn wrong(&self, span: &str) -> Option<String> {
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_-./*:".contains(c);
        if !span.chars().all(is_path) {
            return None;
        }
        let (file, item) = match span.split_once(".rs::") {
            Some((stem, item)) => (format!("{stem}.rs"), Some(item)),
            None if span.ends_with(".rs") => (span.to_owned(), None),
            None if span.contains("::") => (String::new(), Some(span)),
            None => return None,
        };
        if !file.is_empty() && !self.has_file(&file) {
            return Some(format!("`{span}`: there is no such file"));
        }
        let last = item?.rsplit("::").next().unwrap_or_default();
        let exists = match last.split_once('*') {
            Some((prefix, _)) => self.words.iter().any(|word| word.starts_with(prefix)),
            None => self.has_word(last),
        };
        (!exists).then(|| format!("`{span}`: the sources have no `{last}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_nowhere_are_found() {
        let files = [PathBuf::from("crates/a/src/write.rs")];
        let known = Known::new(&files, ["overwrite", "j1_x"].into());
        let count = |text: &str| known.check(Path::new("d.md"), text).len();
        assert_eq!(
            count("`write.rs`, `a/write.rs`, `src/write.rs::overwrite`, `std::overwrite`"),
            0
        );
        assert_eq!(count("`a::j1_*`, `a::b c`, `--x`"), 0);
        assert_eq!(count("`read.rs`, `b/write.rs`"), 2);
        assert_eq!(count("`write.rs::append`"), 1);
        assert_eq!(count("`file::append` and `j::j2_*`"), 2);
    }
}
