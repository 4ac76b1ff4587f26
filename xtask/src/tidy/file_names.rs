//! The rule of file names: within a crate's sources each is used once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::Finding;

/// Names that every folder may have.
const SHARED: &[&str] = &["mod.rs", "tests.rs", "lib.rs", "main.rs"];

/// The files, of all tracked ones, whose name another of their crate has.
pub(super) fn check(files: &[PathBuf]) -> Vec<Finding> {
    let mut by_name: BTreeMap<(&Path, &str), Vec<&Path>> = BTreeMap::new();
    for file in files {
        let name = file
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        let is_source = file.extension().is_some_and(|e| e == "rs");
        if let Some(sources) = sources_of(file).filter(|_| is_source && !SHARED.contains(&name)) {
            by_name.entry((sources, name)).or_default().push(file);
        }
    }
    let mut all = Vec::new();
    for ((_, name), files) in by_name.iter().filter(|(_, files)| files.len() > 1) {
        for file in files {
            all.push(Finding::new(
                file,
                format!("another {name} is in this crate"),
            ));
        }
    }
    all
}

/// The folder `src` that a file is in; none for a test's.
pub(super) fn sources_of(file: &Path) -> Option<&Path> {
    let is_test = file.iter().any(|part| part == "tests");
    let mut around = file.ancestors().filter(|_| !is_test);
    around.find(|dir| dir.ends_with("src"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_are_found() {
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let fine = files(&[
            "a/src/x.rs",
            "b/src/x.rs",
            "a/src/b/tests/x.rs",
            "a/src/c/mod.rs",
            "a/src/mod.rs",
        ]);
        assert!(check(&fine).is_empty());
        let twice = files(&["a/src/x.rs", "a/src/c/x.rs", "a/src/y.rs"]);
        assert_eq!(check(&twice).len(), 2);
    }
}
