//! Rules that no compiler checks. Each finding is a line `file: what is wrong`.

mod features;
mod layers;
mod links;
mod modules;
mod seeds;
mod sources;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    file: PathBuf,
    what: String,
}

impl Finding {
    fn new(file: &Path, what: impl Into<String>) -> Finding {
        Finding {
            file: file.to_path_buf(),
            what: what.into(),
        }
    }
}

/// Checks everything and prints the findings.
pub(crate) fn run(root: &Path) -> ExitCode {
    let findings = check(root);
    for f in &findings {
        eprintln!("{}: {}", f.file.display(), f.what);
    }
    if findings.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("tidy: {} findings", findings.len());
    ExitCode::FAILURE
}

fn check(root: &Path) -> Vec<Finding> {
    let files = tracked(root);
    let mut all = Vec::new();
    if files.is_empty() {
        all.push(Finding::new(root, "git lists no files"));
    }
    let mut code = Vec::new();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        let is_code = file.extension().is_some_and(|e| e == "rs");
        match file.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                all.extend(sources::check(file, &text));
                all.extend(modules::check(file, &text));
            }
            Some("toml") if file.ends_with("Cargo.toml") => all.extend(layers::check(file, &text)),
            Some("md") => all.extend(links::check(root, file, &text)),
            _ => {}
        }
        if is_code {
            code.push(text);
        }
    }
    all.extend(features::check(root));
    all.extend(seeds::check(root, &code));
    all
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
        .collect()
}

/// The repository obeys its own rules.
#[test]
fn the_repository_is_tidy() {
    let findings = check(&crate::root());
    let lines: Vec<String> = findings
        .iter()
        .map(|f| format!("{}: {}", f.file.display(), f.what))
        .collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
