//! Promise: the crates can be published. What `cargo package` makes of them is complete: a program
//! outside of the checkout, with `extant = "0.1"` among its dependencies, resolves to the packages,
//! builds and works.
//!
//! The build takes a minute: `EXTANT_PACKAGES=1` asks for it, as the soak does.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::tools::{self, target_dir, workspace};
use extant_testkit::{Cmd, Image, Need, TempDir, need};
use serde_json::Value;

/// The program of the README.
const PROGRAM: &str = r#"
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args_os().nth(1).ok_or("no image")?;
    extant::mkfs::make(image.as_ref(), Some(32 << 20), &extant::mkfs::Options::default())?;
    let fs = extant::Filesystem::options().write(true).open(&image)?;
    let mut f = fs.open_options().create(true).write(true).open("/hello")?;
    f.write_all(b"hi")?;
    f.sync_all()?;
    drop(f);
    fs.unmount()?;
    let fs = extant::Filesystem::open(&image)?;
    println!("{}", String::from_utf8(fs.read("/hello")?)?);
    Ok(())
}
"#;

/// Cargo, without the network and apart from this run's locks.
fn cargo(dir: &Path) -> Cmd {
    let target = target_dir().join("packages");
    let cargo = tools::cargo().dir(dir).env("CARGO_TARGET_DIR", target);
    cargo
        .env("CARGO_NET_OFFLINE", "true")
        .limit(Duration::from_secs(900))
}

fn metadata(dir: &Path) -> Value {
    // What other systems would need is not downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let told = cargo(dir).args(["metadata", "--format-version=1", "--filter-platform"]);
    serde_json::from_str(&told.arg(platform).ok().unwrap().out).unwrap()
}

/// The workspace's packages that are published, and those that are not.
fn packages() -> (BTreeSet<String>, BTreeSet<String>) {
    let told = metadata(workspace());
    let members = told["workspace_members"].as_array().unwrap();
    let (mut published, mut others) = (BTreeSet::new(), BTreeSet::new());
    let all = told["packages"].as_array().unwrap().iter();
    for package in all.filter(|package| members.contains(&package["id"])) {
        let name = package["name"].as_str().unwrap().to_owned();
        match package["publish"].is_null() {
            true => published.insert(name),
            false => others.insert(name),
        };
    }
    (published, others)
}

/// Packs what is published and unpacks it below `dir`.
fn unpacked(dir: &Path) -> Vec<(String, PathBuf)> {
    let (published, others) = packages();
    let mut package = cargo(workspace());
    package = package.args(["package", "--workspace", "--no-verify", "--allow-dirty"]);
    for other in &others {
        package = package.args(["--exclude", other]);
    }
    package.ok().unwrap();
    let made = target_dir().join("packages/package");
    let version = env!("CARGO_PKG_VERSION");
    let unpack = |name: String| {
        let archive = made.join(format!("{name}-{version}.crate"));
        let tar = Cmd::new("tar").arg("-xf").arg(archive).arg("-C").arg(dir);
        tar.ok().unwrap();
        let path = dir.join(format!("{name}-{version}"));
        (name, path)
    };
    published.into_iter().map(unpack).collect()
}

/// A project with one dependency from the registry, whose place the packages take.
fn project(dir: &Path, packages: &[(String, PathBuf)]) -> PathBuf {
    let project = dir.join("program");
    std::fs::create_dir_all(project.join("src")).unwrap();
    let mut manifest = "[package]\nname = \"program\"\nversion = \"1.0.0\"\nedition = \"2024\"\n\n\
                        [dependencies]\nextant = \"0.1\"\n\n[patch.crates-io]\n"
        .to_owned();
    for (name, path) in packages {
        manifest += &format!("{name} = {{ path = {:?} }}\n", path.display().to_string());
    }
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(project.join("src/main.rs"), PROGRAM).unwrap();
    // The versions of other crates that are here already.
    std::fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    project
}

#[test]
fn a_program_builds_on_the_packaged_crates() {
    if !need(&[Need::Tool("tar"), Need::Tool("e2fsck")]) {
        return;
    }
    let dir = TempDir::new("packages").unwrap();
    let packages = unpacked(dir.path());
    let project = project(dir.path(), &packages);
    let told = metadata(&project);
    let all = told["packages"].as_array().unwrap();
    let ours = all
        .iter()
        .filter(|p| p["name"].as_str().unwrap().starts_with("extant"));
    let ours: Vec<&str> = ours.map(|p| p["manifest_path"].as_str().unwrap()).collect();
    let is_packaged = |path: &&str| path.starts_with(dir.path().to_str().unwrap());
    assert!(ours.len() > 10 && ours.iter().all(is_packaged), "{ours:#?}");
    if std::env::var_os("EXTANT_PACKAGES").is_none() {
        return;
    }
    let image = dir.join("disk.img");
    let ran = cargo(&project)
        .args(["run", "-q", "--"])
        .arg(&image)
        .ok()
        .unwrap();
    assert_eq!(ran.out, "hi\n");
    Image::fsck_clean_at(&image).unwrap();
}

/// The shipped command is built of published crates alone, and none of them has failpoints on.
#[test]
fn the_command_needs_published_crates_only() {
    let (published, others) = packages();
    assert!(others.contains("extant-testkit"), "{others:?}");
    let tree = cargo(workspace()).args(["tree", "-p", "extant-cli", "-e", "normal,build"]);
    let tree = tree
        .args(["--prefix=none", "--format={p}|{f}"])
        .ok()
        .unwrap()
        .out;
    let mut seen = 0;
    for line in tree.lines().filter(|line| line.starts_with("extant")) {
        let (name, _) = line.split_once(' ').unwrap();
        assert!(published.contains(name), "{line}");
        assert!(!line.contains("failpoints"), "{line}");
        seen += 1;
    }
    assert!(seen > 15, "{tree}");
}
