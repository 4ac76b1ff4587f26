//! Other programs: those on the path, and libfuse's `passthrough_ll` example.
//!
//! The example is the distribution's own file, compiled where it is found; nothing of it is kept
//! here.

use std::path::{Path, PathBuf};

use crate::cmd::Cmd;
use crate::error::Result;
pub use crate::lookup::find;

const PASSTHROUGH_SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";

/// The directory of PostgreSQL's programs: Debian keeps those of a server off the path.
pub fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let debian = versions.into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin"));
    let on_path = find("postgres").and_then(|p| Some(p.parent()?.to_owned()));
    let whole = |bin: &PathBuf| {
        let programs = ["postgres", "initdb", "psql", "pg_checksums"];
        programs.iter().all(|name| bin.join(name).is_file())
    };
    on_path.into_iter().chain(debian).find(whole)
}

/// Why [`passthrough_ll`] cannot compile; `None` if it can.
pub fn missing_passthrough() -> Option<String> {
    if !Path::new(PASSTHROUGH_SOURCE).is_file() {
        return Some(format!(
            "{PASSTHROUGH_SOURCE} is not there: install libfuse3-dev"
        ));
    }
    let missing = ["gcc", "pkg-config"]
        .into_iter()
        .find(|name| find(name).is_none());
    missing.map(|name| format!("needs the program `{name}`"))
}

/// Compiles libfuse's pass-through example into `dir`; returns where the program is.
///
/// # Errors
/// The compiler's message, or that there is no compiler.
pub fn passthrough_ll(dir: &Path) -> Result<PathBuf> {
    if let Some(why) = missing_passthrough() {
        crate::bail!("{why}");
    }
    let bin = dir.join("passthrough_ll");
    let flags = Cmd::new("pkg-config")
        .args(["--cflags", "--libs", "fuse3"])
        .ok()?
        .out;
    Cmd::new("gcc")
        .args(["-O2", "-w", PASSTHROUGH_SOURCE, "-o"])
        .arg(&bin)
        .args(flags.split_whitespace())
        .ok()?;
    Ok(bin)
}
