//! The README, the tutorials and how-to pages: their command blocks, run in an empty folder by a
//! shell that finds what the packages install.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use extant_testkit::tools::workspace;
use extant_testkit::{Cmd, Need, TempDir, need};

use crate::blocks::{Page, Runs};
use crate::{PACKING, installed, is_long_run, libraries, long};

/// Unmounts what a page that failed has left mounted below the folder.
const CLEANUP: &str =
    "trap 'grep -o \"$PWD[^ ]*\" /proc/mounts | xargs -r -n1 umount -l || true' EXIT\n";

/// Things that the README speaks of and its reader has: a site, a mount point, a container of
/// Docker.
const README: &str = "mkdir site mnt; echo hello >site/index.html
docker() { [ \"$*\" = 'export web' ] && tar -C site -c .; }\n";

/// Runs a page.
fn page(name: &str) {
    page_after("", name);
}

/// Runs a page after other commands.
fn page_after(commands: &str, name: &str) {
    let page = Page::read(name);
    if !need(&PACKING) || !need(&page.needs()) {
        return;
    }
    let dir = TempDir::new("page").unwrap();
    let runs = |runs| match runs {
        Runs::Always => true,
        Runs::InLongTests => is_long_run(),
        Runs::InDebian => false,
    };
    let script = CLEANUP.to_owned() + commands + &page.script(runs);
    let ran = shell(dir.path()).args(["-c", &script]).run().unwrap();
    assert_eq!(ran.code, Some(0), "{name}: {}", ran.describe());
    page.compare(&ran.out, runs);
}

/// bash in `dir`, for which the packages are installed.
fn shell(dir: &Path) -> Cmd {
    let root = installed();
    let lib = libraries(root);
    let mut path = OsString::from(root.join("usr/bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    // A clone of the project's address is one of this checkout.
    let address = format!("url.{}.insteadOf", workspace().display());
    long("bash")
        .dir(dir)
        .env("PATH", path)
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_PATH", lib.join("pkgconfig"))
        .env("LD_LIBRARY_PATH", &lib)
        .env("PYTHONPATH", root.join("python"))
        .env("CARGO_NET_GIT_FETCH_WITH_CLI", "true")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", address)
        .env("GIT_CONFIG_VALUE_0", "https://github.com/extant-fs/extant")
}

/// A test for each page, by its name.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const TESTED: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            page($page);
        })*
    };
}

pages! {
    tutorial_images: "tutorials/images.md",
    tutorial_c: "tutorials/c.md",
    tutorial_python: "tutorials/python.md",
    tutorial_rust: "tutorials/rust.md",
    tutorial_mounts: "tutorials/mounts.md",
    tutorial_engineers: "tutorials/engineers.md",
    howto_compare: "howto/compare.md",
    howto_damage: "howto/damage.md",
    howto_fio: "howto/fio.md",
    howto_install: "howto/install.md",
    howto_network: "howto/network.md",
    howto_reproducible: "howto/reproducible.md",
    howto_resize: "howto/resize.md",
    howto_vm: "howto/vm.md",
}

#[test]
fn readme() {
    if need(&[Need::Fuse]) {
        page_after(README, "../../README.md");
    }
}

#[test]
fn every_page_with_commands_is_tested() {
    let mut found = BTreeSet::new();
    for folder in ["tutorials", "howto"] {
        for file in fs::read_dir(workspace().join("docs/book").join(folder)).unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            found.insert(format!("{folder}/{name}"));
        }
    }
    let tested: BTreeSet<String> = TESTED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, tested);
}

/// cargo compiles the example with the tests, so the page's program keeps compiling.
#[test]
fn the_tutorial_of_rust_shows_the_example() {
    let read = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
    let example = read("crates/extant/examples/tour.rs");
    let (_, program) = example.split_once("\n\n").unwrap();
    let page = read("docs/book/tutorials/rust.md");
    assert!(page.contains(&format!("```rust,file=tour.rs\n{program}```")));
}
