//! Promise: what a release has works where neither the checkout nor a compiler is, and the pages of
//! the book say what happens: each of their command blocks runs here, on the packages.
//!
//! The short tests pack this run's build. `EXTANT_PACKAGES=1` asks for the long ones, as the soak
//! does: release builds, a bare Debian 12 that debootstrap makes, and an empty root.
#![allow(clippy::unwrap_used, reason = "tests")]

mod blocks;
mod elsewhere;
mod packages;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use extant_testkit::tools::{cargo, extant, library, target_dir, workspace};
use extant_testkit::{Cmd, Need};

/// Programs that `scripts/deb` needs.
const PACKING: [Need; 4] = [
    Need::Tool("dpkg-shlibdeps"),
    Need::Tool("strip"),
    Need::Tool("gcc"),
    Need::Tool("make"),
];

/// A program in the checkout that may take as long as a release build.
fn long(program: &str) -> Cmd {
    lengthy(Cmd::new(program))
}

fn lengthy(cmd: Cmd) -> Cmd {
    cmd.dir(workspace()).limit(Duration::from_secs(3600))
}

/// Returns whether the long tests are asked for.
fn is_long_run() -> bool {
    std::env::var_os("EXTANT_PACKAGES").is_some()
}

/// A library that cargo makes of a package: `STEM.EXTENSION`, in this run's profile.
///
/// A run of the whole workspace, which xtask starts, has made it beside this test's program. Else
/// it is built: with its own choice of features, which takes a while.
fn built(package: &str, stem: &str, extension: &str) -> PathBuf {
    if std::env::var_os("EXTANT_SKIP_LOG").is_some()
        && let Ok(made) = library(stem, extension)
    {
        return made;
    }
    let build = cargo().dir(workspace()).limit(Duration::from_secs(3600));
    let mut build = build.args(["build", "-q", "-p", package]);
    let mut profile = "debug";
    if !cfg!(debug_assertions) {
        (build, profile) = (build.arg("--release"), "release");
    }
    build.ok().unwrap();
    let file = format!("{stem}.{extension}");
    target_dir().join(profile).join(file)
}

/// Packs this run's build in `dir`, with little effort. Returns the packages with their names.
fn pack(dir: &Path) -> Vec<(String, PathBuf)> {
    let pack = Cmd::new(workspace().join("scripts/deb"))
        .arg(extant().unwrap())
        .arg(built("extant-capi", "libextant_capi", "a"))
        .arg(dir)
        // As the programs of a `make -C DIR` find it.
        .env("MAKEFLAGS", "w")
        .env("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let files = pack.ok().unwrap().out;
    let named = files.lines().map(|file| {
        let file = PathBuf::from(file);
        let name = file.file_name().unwrap().to_str().unwrap();
        (name.split('_').next().unwrap().to_owned(), file)
    });
    named.collect()
}

/// A tree with all packages of this run's build in it, and the Python module in `python`.
fn installed() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let (debs, root) = (
            target_dir().join("test-deb"),
            target_dir().join("test-root"),
        );
        let _ = fs::remove_dir_all(&debs);
        let _ = fs::remove_dir_all(&root);
        for (_, package) in pack(&debs) {
            let unpack = Cmd::new("dpkg-deb").arg("-x").arg(package).arg(&root);
            unpack.ok().unwrap();
        }
        // What a wheel would install.
        let python = root.join("python");
        fs::create_dir(&python).unwrap();
        let package = workspace().join("crates/python/python/extant");
        let copy = Cmd::new("cp").arg("-r").arg(package).arg(&python);
        copy.ok().unwrap();
        let module = built("extant-python", "lib_extant", "so");
        fs::copy(module, python.join("extant/_extant.abi3.so")).unwrap();
        root
    })
}

/// Folder of libraries in a tree of packages.
fn libraries(root: &Path) -> PathBuf {
    let triplet = Cmd::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH");
    root.join("usr/lib").join(triplet.ok().unwrap().out.trim())
}
