//! The C interface as C sees it: the header, the libraries that C programs link with, and programs
//! in C under AddressSanitizer and valgrind.
//!
//! `EXTANT_SECONDS` and `EXTANT_SEED` make the storm a stage of the soak.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fio;
mod header;
mod layouts;
mod libraries;
mod programs;

use std::path::PathBuf;
use std::sync::OnceLock;

use extant_testkit::tools::{library, target_dir, workspace};
use extant_testkit::{Cmd, TempDir};

/// The folder of this crate.
fn crate_dir() -> PathBuf {
    workspace().join("crates/capi")
}

/// The files that `scripts/libextant` makes of a build in this run's profile: `libextant.a`,
/// `libextant.so`, `extant.pc` and fio's engines, with the header beside them as if all of it were
/// installed.
fn libraries() -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let archive = library("libextant_capi", "a").unwrap();
        let (prefix, lib) = (target_dir().join("capi"), target_dir().join("capi/lib"));
        let link = Cmd::new(workspace().join("scripts/libextant"));
        let link = link.arg(archive).arg(&lib).arg(&prefix).arg(&lib);
        link.ok().unwrap();
        std::fs::create_dir_all(prefix.join("include")).unwrap();
        let header = crate_dir().join("include/extant.h");
        std::fs::copy(header, prefix.join("include/extant.h")).unwrap();
        lib
    });
    dir.clone()
}

/// Compiles a source with `flags` in front of it and the library behind it.
fn compile(dir: &TempDir, source: &str, flags: &[&str]) -> PathBuf {
    let out = dir.join("program");
    let programs = crate_dir().join("tests/programs");
    Cmd::new("gcc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-O1",
            "-o",
        ])
        .arg(&out)
        .args(flags)
        .arg("-I")
        .arg(crate_dir().join("include"))
        .arg("-I")
        .arg(&programs)
        .arg(programs.join(source))
        .arg(libraries().join("libextant.a"))
        .args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"])
        .ok()
        .unwrap();
    out
}
