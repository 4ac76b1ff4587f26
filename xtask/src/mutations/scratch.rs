//! The copy of the sources in which the changes are made.
//!
//! It stays from part to part and from round to round, so that a part costs the build of what it
//! touches. A file that differs from the source is written anew: the changes of the part before go.

use std::collections::BTreeSet;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Brings the copy up to date, and returns where it is.
///
/// # Errors
/// Files cannot be listed, read or written, in words.
pub(super) fn update(root: &Path) -> std::result::Result<PathBuf, String> {
    let copy = root.join("target/mutations/source");
    let told = |error| format!("a copy of the sources: {error}");
    let files = sources(root).map_err(told)?;
    mirror(root, &copy, &files).map_err(told)?;
    Ok(copy)
}

/// The files of `root` that git has or does not ignore.
fn sources(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let listed = git.current_dir(root).output()?;
    if !listed.status.success() {
        let told = String::from_utf8_lossy(&listed.stderr);
        return Err(std::io::Error::other(format!("git ls-files: {told}")));
    }
    let names = String::from_utf8_lossy(&listed.stdout);
    let names = names.split('\0').filter(|name| !name.is_empty());
    // One that was removed and not committed is listed, too.
    Ok(names
        .map(PathBuf::from)
        .filter(|name| root.join(name).is_file())
        .collect())
}

/// Makes `copy` have `files` of `root`, and no others.
fn mirror(root: &Path, copy: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for file in files {
        let (from, to) = (root.join(file), copy.join(file));
        if std::fs::read(&to).ok() != Some(std::fs::read(&from)?) {
            if let Some(dir) = to.parent() {
                std::fs::create_dir_all(dir)?;
            }
            std::fs::copy(from, to)?;
        }
    }
    remove_others(copy, Path::new(""), files)
}

/// Removes what `copy` has in its folder `below`, and the sources have not.
fn remove_others(copy: &Path, below: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(copy.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(copy, &name, files)?;
        } else if !files.contains(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_what_the_sources_have() {
        let dir = std::env::temp_dir().join(format!("extant-scratch-{}", std::process::id()));
        let (root, copy) = (dir.join("root"), dir.join("copy"));
        let put = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(root.join("src/a.rs"), "sound");
        put(copy.join("src/a.rs"), "changed");
        put(copy.join("src/gone.rs"), "old");
        let files = BTreeSet::from([PathBuf::from("src/a.rs")]);
        mirror(&root, &copy, &files).unwrap();
        let text = |name: &str| std::fs::read_to_string(copy.join(name)).ok();
        assert_eq!(text("src/a.rs").as_deref(), Some("sound"));
        assert_eq!(text("src/gone.rs"), None);
        // What is as it was keeps its time, or all of it would be built anew.
        let time = || std::fs::metadata(copy.join("src/a.rs")).unwrap().modified();
        let before = time().unwrap();
        mirror(&root, &copy, &files).unwrap();
        assert_eq!(time().unwrap(), before);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
