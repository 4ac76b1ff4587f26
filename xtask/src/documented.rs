//! Rustdoc's look at the crates that the build of the tests has compiled.
//!
//! `scripts/compile-for-tests` notes for each library and program what its compiler was told:
//! `NAME.args`, and `NAME.env` for the shell. Rustdoc is told the same and finds what those crates
//! stand on as it was built; `cargo doc` would compile all of that once more. A note goes when
//! rustdoc has found nothing, and comes back when the crate is compiled anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binaries;

/// The environment, the note and the output's folder stand before rustdoc's arguments.
const SCRIPT: &str = r#". "$0"; unset CARGO_MAKEFLAGS; note=$1 out=$2; shift 2
rustdoc "$@" --out-dir "$out" && rm -r "$out" "$0" "$note""#;

/// A crate that waits for rustdoc: its name, and the command that looks at it.
pub(crate) fn waiting(root: &Path) -> Vec<(String, Command)> {
    let folder = binaries::target(root).join("debug/to-document");
    let notes = std::fs::read_dir(&folder).into_iter().flatten();
    let notes = notes.filter_map(|entry| Some(entry.ok()?.path()));
    let mut notes: Vec<PathBuf> = notes
        .filter(|path| path.extension().is_some_and(|is| is == "args"))
        .collect();
    notes.sort();
    notes.iter().filter_map(|note| look(root, note)).collect()
}

fn look(root: &Path, note: &Path) -> Option<(String, Command)> {
    let told = std::fs::read_to_string(note).ok()?;
    let name = note.file_stem()?.to_string_lossy().into_owned();
    let mut sources = told
        .split('\0')
        .filter(|argument| argument.ends_with(".rs"));
    if !sources.all(|source| root.join(source).exists()) {
        // Of a crate that is gone.
        let _ = std::fs::remove_file(note);
        return None;
    }
    let mut command = Command::new("sh");
    command
        .current_dir(root)
        .args(["-c", SCRIPT])
        .args([note.with_extension("env"), note.into()])
        .arg(note.with_extension("out"))
        .args(for_rustdoc(told.split_terminator('\0').skip(1)))
        .args(["--document-private-items", "-D", "warnings"]);
    if name.ends_with("-program") {
        // All that a program has is private.
        command.args(["-A", "rustdoc::private_intra_doc_links"]);
    }
    Some((name, command))
}

/// Those of the compiler's arguments that are rustdoc's as well: not what is to be made of the
/// crate, and how messages are printed.
fn for_rustdoc<'a>(told: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut told = told;
    while let Some(argument) = told.next() {
        match argument {
            "-C" | "--out-dir" => drop(told.next()),
            _ if [
                "--emit=",
                "--error-format=",
                "--json=",
                "--diagnostic-width=",
            ]
            .iter()
            .any(|other| argument.starts_with(other)) => {}
            _ => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustdoc_gets_what_the_crate_is_and_not_what_is_made_of_it() {
        let told = "--crate-name x --edition=2024 a/lib.rs --json=all --emit=link -C debuginfo=0 \
                    --cfg y --out-dir z -L dependency=z --extern b=b.rmeta --warn=w";
        let kept = for_rustdoc(told.split_whitespace());
        let expected = "--crate-name x --edition=2024 a/lib.rs --cfg y -L dependency=z \
                        --extern b=b.rmeta --warn=w";
        assert_eq!(kept.join(" "), expected);
    }

    #[test]
    fn a_note_goes_when_rustdoc_finds_nothing_and_stays_otherwise() {
        let root = std::env::temp_dir().join(format!("documented-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let note = root.join("it-library.args");
        for (source, is_fine) in [("//! [`gone`]", false), ("//! Fine.", true)] {
            std::fs::write(root.join("lib.rs"), source).unwrap();
            std::fs::write(note.with_extension("env"), "export SAID='yes'\n").unwrap();
            std::fs::write(&note, "rustc\0--crate-name\0it\0lib.rs\0--emit=link\0").unwrap();
            let (name, mut command) = look(&root, &note).unwrap();
            assert_eq!(name, "it-library");
            assert_eq!(command.output().unwrap().status.success(), is_fine);
            assert_eq!(note.exists(), !is_fine);
        }
        std::fs::write(&note, "rustc\0--crate-name\0it\0gone.rs\0").unwrap();
        assert!(look(&root, &note).is_none() && !note.exists());
        std::fs::remove_dir_all(root).unwrap();
    }
}
