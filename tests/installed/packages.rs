//! The packages for Debian: what they hold, and what they say of themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use extant_testkit::tools::{make, workspace};
use extant_testkit::{Cmd, Image, Need, TempDir, need};

use crate::{PACKING, built, installed, is_long_run, lengthy, libraries, long, pack};

fn field(package: &Path, name: &str) -> String {
    let told = Cmd::new("dpkg-deb").arg("-f").arg(package).arg(name);
    told.ok().unwrap().out.trim().to_owned()
}

/// Every link of a tree leads to something of the tree.
fn assert_links_lead_somewhere(root: &Path) {
    let links = Cmd::new("find").arg(root).args(["-type", "l"]);
    let links = links.ok().unwrap().out;
    assert_eq!(links.lines().count(), 4, "{links}");
    for link in links.lines() {
        let to = fs::read_link(link).unwrap();
        assert!(to.is_relative(), "{link} -> {}", to.display());
        assert!(Path::new(link).exists(), "{link} -> {}", to.display());
    }
}

/// The arguments of a make are not for those that its programs run.
#[test]
fn the_makefile_keeps_its_flags_to_itself() {
    if !need(&[Need::Tool("make")]) {
        return;
    }
    let recipe = "CARGO=! printenv MAKEFLAGS #";
    let make = make().arg("-C").arg(workspace());
    make.args(["tidy", recipe]).ok().unwrap();
}

#[test]
fn packages_name_what_they_hold_and_need() {
    if !need(&PACKING) {
        return;
    }
    let dir = TempDir::new("deb").unwrap();
    let made = pack(dir.path());
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["extant", "libextant0.1", "libextant-dev", "extant-fio"]
    );
    for (name, package) in &made {
        let tree = dir.join(name);
        let raw = Cmd::new("dpkg-deb").arg("-R").arg(package).arg(&tree);
        raw.ok().unwrap();
        let sums = Cmd::new("md5sum").args(["-c", "--quiet", "DEBIAN/md5sums"]);
        sums.dir(&tree).ok().unwrap();
        for document in ["copyright", "changelog.gz"] {
            let path = tree.join("usr/share/doc").join(name).join(document);
            assert!(path.is_file(), "{}", path.display());
        }
        let depends = field(package, "Depends");
        match name.as_str() {
            "libextant-dev" => assert!(depends.starts_with("libextant0.1 (= "), "{depends}"),
            _ => assert!(depends.contains("libc6 (>= 2."), "{name}: {depends}"),
        }
    }
    if is_long_run() {
        let other = TempDir::new("deb").unwrap();
        for ((_, one), (_, other)) in made.iter().zip(pack(other.path())) {
            let equal = fs::read(one).unwrap() == fs::read(other).unwrap();
            assert!(equal, "{}", one.display());
        }
    }
}

#[test]
fn installed_files_are_where_debian_looks_for_them() {
    if !need(&PACKING) || !need(&[Need::Tool("e2fsck"), Need::Tool("pkg-config")]) {
        return;
    }
    let root = installed();
    assert_links_lead_somewhere(root);
    for file in [
        "usr/share/man/man1/extant.1.gz",
        "usr/share/man/man1/extant-build.1.gz",
        "usr/share/man/man3/extant.3.gz",
        "usr/share/man/man5/extant-options.5.gz",
        "usr/share/bash-completion/completions/extant",
        "usr/share/zsh/vendor-completions/_extant",
        "usr/share/fish/vendor_completions.d/extant.fish",
        "usr/sbin/mount.fuse.extant",
        "usr/sbin/umount.fuse.extant",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    let engine = libraries(root).join("extant/libextant-fio.so");
    assert!(engine.is_file(), "{}", engine.display());
    let dir = TempDir::new("installed").unwrap();
    let image = dir.join("disk.img");
    let mkfs = Cmd::new(root.join("usr/bin/extant")).arg("mkfs");
    mkfs.arg(&image).arg("16M").ok().unwrap();
    Image::fsck_clean_at(&image).unwrap();
    example_runs(&dir, root);
}

/// The example in C finds what libextant-dev has, and the library that it was linked with.
fn example_runs(dir: &TempDir, root: &Path) {
    let lib = libraries(root);
    let flags = Cmd::new("pkg-config")
        .args(["--cflags", "--libs", "extant"])
        .env("PKG_CONFIG_SYSROOT_DIR", root)
        .env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let (flags, program) = (flags.ok().unwrap().out, dir.join("hello"));
    let compile = Cmd::new("gcc").arg(workspace().join("crates/capi/examples/hello.c"));
    let compile = compile.arg("-o").arg(&program);
    compile.args(flags.split_whitespace()).ok().unwrap();
    let ran = Cmd::new(program).arg(dir.join("c.img"));
    let ran = ran.env("LD_LIBRARY_PATH", &lib).ok().unwrap();
    assert_eq!(ran.out, "hello, ext4\n");
}

/// The library as `make install` puts it: stripped, found below any prefix, known to the linker.
#[test]
fn the_library_is_installed_for_the_linker_and_for_pkg_config() {
    let needs = [Need::Root, Need::Tool("pkg-config"), Need::Tool("readelf")];
    if !need(&PACKING) || !need(&needs) {
        return;
    }
    let dir = TempDir::new("install").unwrap();
    let (target, prefix) = (dir.join("target"), dir.join("usr"));
    let archive = built("extant-capi", "libextant_capi", "a");
    let link = lengthy(Cmd::new(workspace().join("scripts/libextant"))).arg(archive);
    let link = link.arg(target.join("library")).arg(&prefix);
    link.arg(prefix.join("lib")).ok().unwrap();
    // In the place of ldconfig, so that the linker's cache of this machine stays as it is.
    let (bin, called) = (dir.join("bin"), dir.join("called"));
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\necho called >>'{}'\n", called.display());
    fs::write(bin.join("ldconfig"), script).unwrap();
    fs::set_permissions(bin.join("ldconfig"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let make = |goal: &str, destination: &Path| {
        let set = |name: &str, value: &Path| format!("{name}={}", value.display());
        let make = long("make").env("PATH", &path).arg("-s").arg(goal);
        let make = make.arg(set("TARGET", &target)).arg(set("PREFIX", &prefix));
        let make = make.arg(set("SBINDIR", &prefix.join("sbin")));
        make.arg(set("DESTDIR", destination)).ok().unwrap();
    };
    make("install-library", &dir.join("elsewhere"));
    assert!(!called.exists());
    make("install-library", Path::new(""));
    assert_eq!(fs::read_to_string(&called).unwrap(), "called\n");

    for file in ["libextant.so", "extant/libextant-fio.so"] {
        let read = Cmd::new("readelf")
            .arg("-SW")
            .arg(prefix.join("lib").join(file));
        let sections = read.ok().unwrap().out;
        assert!(
            !sections.contains(".debug_") && !sections.contains(".symtab"),
            "{sections}"
        );
    }
    let moved = Cmd::new("pkg-config").args(["--define-variable=prefix=/moved", "--libs"]);
    let moved = moved.arg("extant");
    let moved = moved.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    assert!(moved.ok().unwrap().out.contains("-L/moved/lib"));

    make("uninstall", Path::new(""));
    assert_eq!(fs::read_to_string(&called).unwrap(), "called\ncalled\n");
    assert!(!prefix.join("lib/pkgconfig/extant.pc").exists());
}
