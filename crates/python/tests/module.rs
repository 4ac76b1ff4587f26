//! The Python module, by its own tests: pytest on the module that cargo built for this run.
//!
//! `EXTANT_PACKAGES=1` asks for more, as the soak does: the wheel that `pip install .` makes, in a
//! fresh environment, and the example of the README with it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::tools::{find, library, workspace};
use extant_testkit::{Cmd, Image, Need, TempDir, need, report};

fn crate_dir() -> PathBuf {
    workspace().join("crates/python")
}

/// A folder with the package as a wheel would install it.
fn package() -> TempDir {
    let dir = TempDir::new("python").unwrap();
    let sources = crate_dir().join("python/extant");
    let copied = Cmd::new("cp").arg("-r").arg(sources).arg(dir.path());
    copied.ok().unwrap();
    let module = dir.join("extant/_extant.abi3.so");
    std::os::unix::fs::symlink(library("lib_extant", "so").unwrap(), module).unwrap();
    dir
}

/// A Python that has what the tests import.
fn python() -> Option<PathBuf> {
    let imports = ["-c", "import pytest, fsspec"];
    let candidates = [find("python3"), Some("/usr/bin/python3".into())];
    let mut candidates = candidates.into_iter().flatten();
    candidates.find(|python| {
        let ran = Cmd::new(python).args(imports).run();
        ran.is_ok_and(|ran| ran.code == Some(0))
    })
}

#[test]
fn the_module_passes_its_tests() {
    let Some(python) = python() else {
        let missing = Need::Tool("python3 with pytest and fsspec (python3-pytest, python3-fsspec)");
        assert!(!need(&[missing]));
        return;
    };
    let (package, scratch) = (package(), TempDir::new("pytest").unwrap());
    let run = Cmd::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp"])
        .arg(scratch.join("tests"))
        .arg(crate_dir().join("tests"))
        .env("PYTHONPATH", package.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .limit(Duration::from_secs(600))
        .ok()
        .unwrap();
    let last = run.out.lines().last().unwrap_or_default();
    assert!(last.contains(" passed"), "{}", run.describe());
    report(&format!("pytest: {last}"));
}

/// The first block of Python in the README.
fn example() -> String {
    let readme = fs::read_to_string(crate_dir().join("README.md")).unwrap();
    let block = readme.split("```python\n").nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// Runs the README's example.
fn example_runs(python: &Path, packages: Option<&Path>) {
    let dir = TempDir::new("example").unwrap();
    let mut run = Cmd::new(python).arg("-c").arg(example()).dir(dir.path());
    if let Some(packages) = packages {
        run = run.env("PYTHONPATH", packages);
    }
    let out = run.env("PYTHONDONTWRITEBYTECODE", "1").ok().unwrap().out;
    assert!(out.starts_with("/ ['lost+found', 'notes'] []\n"), "{out}");
    assert!(out.ends_with("buy milk\ncall home\nTrue\n"), "{out}");
    Image::fsck_clean_at(&dir.join("disk.img")).unwrap();
}

#[test]
fn the_readme_says_what_happens() {
    if need(&[Need::Tool("python3"), Need::Tool("e2fsck")]) {
        example_runs(&find("python3").unwrap(), Some(package().path()));
    }
}

#[test]
fn pip_installs_a_wheel() {
    if std::env::var_os("EXTANT_PACKAGES").is_none() || !need(&[Need::Tool("python3")]) {
        return;
    }
    let dir = TempDir::new("wheel").unwrap();
    let python = find("python3").unwrap();
    let venv = Cmd::new(&python).args(["-m", "venv"]).arg(dir.join("venv"));
    venv.ok().unwrap();
    let inside = dir.join("venv/bin/python");
    Cmd::new(&inside)
        .args(["-m", "pip", "install", "-q"])
        .arg(crate_dir())
        .limit(Duration::from_secs(3600))
        .ok()
        .unwrap();
    example_runs(&inside, None);
}
