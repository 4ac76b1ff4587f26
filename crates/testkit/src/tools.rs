//! The programs around the tests: the distribution's, the built `extant`, and crates.io's test
//! tools.
//!
//! Programs that must be built are built once per checkout, under the target directory.

use crate::{Cmd, Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

pub use extant_host::programs::{find, postgres};

/// pjdfstest on crates.io: name and version.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
/// fsx on crates.io: name and version.
pub const FSX: (&str, &str) = ("fsx", "0.3.2");

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

/// Copies a program, by a process of its own. A program that this process has open for writing
/// cannot be run, and a child that another test starts meanwhile would keep it open.
///
/// # Errors
/// `cp` failed.
pub fn copy_program(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> Result<()> {
    Cmd::new("cp").arg(from).arg(to).ok().map(drop)
}

/// Cargo, without what it told this program of its own package: some build scripts run anew for
/// other values, and what depends on them is then compiled again, beside tests that use it.
pub fn cargo() -> Cmd {
    let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
    apart_from(|name| of_package.iter().any(|part| name.starts_with(part))).arg(env!("CARGO"))
}

/// make, without what the one that runs the tests told them: as a part of that one it would print
/// the directories that it enters, and take its options and variables.
pub fn make() -> Cmd {
    apart_from(|_| false).arg("make")
}

/// A program that the next argument names, without the variables of a make and those that `other`
/// chooses.
fn apart_from(other: impl Fn(&str) -> bool) -> Cmd {
    const OF_MAKE: [&str; 3] = ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"];
    let mut env = Cmd::new("env");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_MAKE.contains(&&*text) || other(&text) {
            env = env.arg("-u").arg(&name);
        }
    }
    env
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
    build_command("extant", &[])
}

/// An example of the `extant` command: beside `$EXTANT_BIN` if that has examples, else built.
///
/// # Errors
/// The build fails.
pub fn example(name: &str) -> Result<PathBuf> {
    let file = format!("examples/{name}");
    if let Some(bin) = std::env::var_os("EXTANT_BIN") {
        let made = Path::new(&bin).with_file_name(&file);
        if made.is_file() {
            return Ok(made);
        }
    }
    build_command(&file, &["--example", name])
}

/// Builds what `choice` says of the command's package in this run's profile: `file`, by its path
/// below the profile's directory.
fn build_command(file: &str, choice: &[&str]) -> Result<PathBuf> {
    let mut build = cargo()
        .args(["build", "-q", "-p", "extant-cli"])
        .args(choice)
        .dir(workspace())
        .limit(Duration::from_secs(900));
    let mut profile = "debug";
    if !cfg!(debug_assertions) {
        (build, profile) = (build.arg("--release"), "release");
    }
    build.ok()?;
    let made = target_dir().join(profile).join(file);
    ensure!(
        made.is_file(),
        "{} is not there after its build",
        made.display()
    );
    Ok(made)
}

/// The library that cargo made of a package in a build of the whole workspace: `STEM.EXTENSION`,
/// with its hash. It lies beside the tests' programs, or where these were built. The newest one
/// counts: one of other features that is newer was made of the same sources.
///
/// # Errors
/// There is none.
pub fn library(stem: &str, extension: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let deps = target_dir().join("debug/deps");
    let beside = this.parent().unwrap_or(&deps);
    let mut made = Vec::new();
    for dir in [beside, &deps] {
        for file in std::fs::read_dir(dir).into_iter().flatten() {
            let file = file?;
            let name = file.file_name().into_string().unwrap_or_default();
            let name = name.strip_suffix(&format!(".{extension}"));
            let rest = name.and_then(|name| name.strip_prefix(stem));
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
                made.push((file.metadata()?.modified()?, file.path()));
            }
        }
    }
    let newest = made.into_iter().max().map(|(_, path)| path);
    newest.ok_or_else(|| {
        let what = format!("no {stem}.{extension}: a build of the workspace makes it");
        crate::Error::new(what)
    })
}

/// How the programs from crates.io are built: they wait for the file system, and a first run of the
/// suites waits for their builds.
const LITTLE_EFFORT: [&str; 6] = [
    "--config",
    "profile.release.opt-level=1",
    "--config",
    "profile.release.package.'*'.opt-level=0",
    "--config",
    "profile.release.lto=\"off\"",
];

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
    cargo()
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
        .args(LITTLE_EFFORT)
        // The tool's build must not take this workspace's directory lock or flags.
        .env("CARGO_TARGET_DIR", target_dir().join("tools-build"))
        .dir(Path::new("/"))
        .limit(Duration::from_secs(900))
        .ok()
        .context(|| format!("installing {name} {version} from crates.io"))?;
    Ok(bin)
}
