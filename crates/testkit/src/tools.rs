//! The programs around the tests: the distribution's, the built `extant`, crates.io's test tools,
//! and libfuse's `passthrough_ll` example.
//!
//! What must be built is built once per checkout, under the target directory. The example is the
//! distribution's own file, compiled where it is found; nothing of it is kept here.

use crate::{Cmd, Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// pjdfstest on crates.io: name and version.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
/// fsx on crates.io: name and version.
pub const FSX: (&str, &str) = ("fsx", "0.3.2");

const PASSTHROUGH_SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";

/// Finds a program on the path, or in the system's directories that a user's path may lack.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|d| d.join(name))
        .find(|p| p.is_file())
}

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

/// The checkout's root.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().and_then(Path::parent).unwrap_or(here)
}

/// Cargo's target directory of this run.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(d) => workspace().join(d),
        None => workspace().join("target"),
    }
}

/// The `extant` command: `$EXTANT_BIN`, else built in this run's profile.
pub fn extant() -> Result<PathBuf> {
    static BIN: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let found = BIN.get_or_init(|| locate_extant().map_err(|e| e.to_string()));
    found.clone().map_err(crate::Error::new)
}

fn locate_extant() -> Result<PathBuf> {
    if let Some(p) = std::env::var_os("EXTANT_BIN") {
        let p = PathBuf::from(p);
        ensure!(p.is_file(), "$EXTANT_BIN: {} is not there", p.display());
        return Ok(p);
    }
    let release = !cfg!(debug_assertions);
    let mut build = Cmd::new(env!("CARGO"))
        .args(["build", "-q", "-p", "extant-cli"])
        .dir(workspace())
        .limit(Duration::from_secs(900));
    if release {
        build = build.arg("--release");
    }
    build.ok()?;
    let bin = target_dir()
        .join(if release { "release" } else { "debug" })
        .join("extant");
    ensure!(
        bin.is_file(),
        "{} is not there after its build",
        bin.display()
    );
    Ok(bin)
}

/// A program from crates.io, installed under the target directory.
pub fn from_crates_io((name, version): (&str, &str)) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let root = target_dir().join("tools");
    let bin = root.join("bin").join(name);
    if bin.is_file() {
        return Ok(bin);
    }
    Cmd::new(env!("CARGO"))
        .args([
            "install",
            "-q",
            "--locked",
            name,
            "--version",
            version,
            "--root",
        ])
        .arg(&root)
        // The tool's build must not take this workspace's directory lock or flags.
        .env("CARGO_TARGET_DIR", target_dir().join("tools-build"))
        .dir(Path::new("/"))
        .limit(Duration::from_secs(900))
        .ok()
        .context(|| format!("installing {name} {version} from crates.io"))?;
    Ok(bin)
}

/// libfuse's pass-through example, compiled from the distribution's documentation package.
pub fn passthrough_ll() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let bin = target_dir().join("tools/bin/passthrough_ll");
    if bin.is_file() {
        return Ok(bin);
    }
    if !Path::new(PASSTHROUGH_SOURCE).is_file() {
        bail!("{PASSTHROUGH_SOURCE} is not there: install libfuse3-dev");
    }
    if let Some(parent) = bin.parent() {
        std::fs::create_dir_all(parent)?;
    }
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
