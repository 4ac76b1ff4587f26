//! The files under version control, and the texts among them.

use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::TokenStream;

use super::listed_changes;
use super::subjects::{self, Commit};
use super::tokens::without_tests;

/// The files and commits that the rules look at.
pub(super) struct Repository {
    pub(super) root: PathBuf,
    pub(super) files: Vec<PathBuf>,
    pub(super) sources: Vec<Source>,
    /// The newest commits.
    pub(super) commits: Vec<Commit>,
    /// The list of the changes that no test can notice.
    pub(super) survivors: String,
}

/// A file that is text.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Of a Rust source: its tokens, and those without tests. Empty if its
    /// brackets do not fit.
    pub(super) tokens: TokenStream,
    pub(super) product: TokenStream,
}

impl Source {
    /// Reads a file; none for one that is no text of the project.
    fn read(root: &Path, file: &Path) -> Option<Source> {
        const TEXTS: &[&str] = &["rs", "md", "toml", "py", "sh"];
        let extension = file.extension().and_then(|e| e.to_str());
        let is_script = || file.starts_with("scripts") || file.starts_with(".ci");
        let is_text = match extension {
            Some(extension) => TEXTS.contains(&extension),
            None => is_script() || file.ends_with("Makefile"),
        };
        let text = is_text.then(|| std::fs::read_to_string(root.join(file)).ok())??;
        Some(Source::new(file.to_path_buf(), text))
    }

    pub(super) fn new(path: PathBuf, text: String) -> Source {
        let is_rust = path.extension().is_some_and(|e| e == "rs");
        let tokens: TokenStream = is_rust
            .then(|| text.parse().ok())
            .flatten()
            .unwrap_or_default();
        Source {
            path,
            text,
            product: without_tests(tokens.clone()),
            tokens,
        }
    }

    pub(super) fn is(&self, extension: &str) -> bool {
        self.path.extension().is_some_and(|e| e == extension)
    }
}

impl Repository {
    pub(super) fn read(root: &Path) -> Repository {
        let files = tracked(root);
        let sources = files.iter().filter_map(|file| Source::read(root, file));
        Repository {
            root: root.to_path_buf(),
            sources: sources.collect(),
            files,
            commits: subjects::newest(root),
            survivors: listed_changes::read(root),
        }
    }

    /// The sources with an extension.
    pub(super) fn with(&self, extension: &'static str) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(move |s| s.is(extension))
    }

    /// A source's text, if there is one.
    pub(super) fn text_of(&self, file: &str) -> Option<&str> {
        let found = self.sources.iter().find(|s| s.path == Path::new(file));
        found.map(|s| s.text.as_str())
    }

    /// A source's text, empty if there is none.
    pub(super) fn text(&self, file: &str) -> &str {
        self.text_of(file).unwrap_or_default()
    }
}

/// The files under version control, and new ones about to be.
fn tracked(root: &Path) -> Vec<PathBuf> {
    let list = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output();
    let bytes = list.map(|o| o.stdout).unwrap_or_default();
    let names = bytes.split(|b| *b == 0).filter(|n| !n.is_empty());
    names
        .map(|n| PathBuf::from(String::from_utf8_lossy(n).into_owned()))
        .filter(|file| root.join(file).exists())
        .collect()
}
