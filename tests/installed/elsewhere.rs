//! Places that have nothing of the checkout: an empty root, and a Debian that was just made.

use std::fs;

use extant_testkit::apart::apart;
use extant_testkit::tools::{make, target_dir, workspace};
use extant_testkit::{Cmd, Image, Need, TempDir, need};

use crate::blocks::{Page, Runs};
use crate::{PACKING, is_long_run, lengthy, long};

/// In a root that holds the command, and nothing else at all.
#[test]
fn the_static_command_runs_in_an_empty_root() {
    if !is_long_run() || !need(&[Need::Root, Need::Tool("chroot"), Need::Tool("e2fsck")]) {
        return;
    }
    lengthy(make()).arg("static").ok().unwrap();
    let root = TempDir::new("empty").unwrap();
    fs::copy(target_dir().join("static/extant"), root.join("extant")).unwrap();
    let run = |args: &str| {
        let chroot = Cmd::new("chroot").arg(root.path()).arg("/extant");
        chroot.args(args.split_whitespace()).ok().unwrap().out
    };
    run("mkfs /disk.img 256M");
    run("cp /extant /disk.img:/extant");
    run("check /disk.img");
    assert_eq!(run("ls /disk.img:/"), "extant\nlost+found\n");
    run("cp /disk.img:/extant /again");
    let (before, after) = (root.join("extant"), root.join("again"));
    assert!(fs::read(before).unwrap() == fs::read(after).unwrap());
    Image::fsck_clean_at(&root.join("disk.img")).unwrap();
}

/// The page about installing, up to the removal, in a Debian without anything else.
#[test]
fn the_packages_install_in_a_bare_debian() {
    let needs = [Need::Root, Need::Fuse, Need::Tool("debootstrap")];
    if !is_long_run() || !need(&needs) || !need(&PACKING) {
        return;
    }
    lengthy(make()).arg("deb").ok().unwrap();
    let root = TempDir::new("debian").unwrap();
    let bootstrap = long("debootstrap").args(["--variant=minbase", "bookworm"]);
    let mut bootstrap = bootstrap.arg(root.path());
    if let Ok(mirror) = std::env::var("EXTANT_MIRROR") {
        bootstrap = bootstrap.arg(mirror);
    }
    bootstrap.ok().unwrap();
    let debs = root.join("root/target/deb");
    fs::create_dir_all(&debs).unwrap();
    for file in fs::read_dir(target_dir().join("deb")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), debs.join(file.file_name())).unwrap();
    }
    let example = workspace().join("crates/capi/examples/hello.c");
    fs::copy(example, root.join("root/hello.c")).unwrap();
    // A Debian that was just made knows no name server.
    let _ = fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf"));
    let page = Page::read("howto/install.md");
    let script = page.script(|runs| runs == Runs::InDebian);
    assert!(script.contains("apt-get install"), "{script}");
    // A mount namespace of its own: what is mounted inside goes away with it.
    let inside = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
                  cd \"$0\" && exec chroot . sh -c 'cd /root; exec bash -c \"$0\"' \"$1\"";
    let run = lengthy(apart(&[])).args(["sh", "-c", inside]);
    let run = run.arg(root.path()).arg(script).ok().unwrap();
    page.compare(&run.out, |runs| runs == Runs::InDebian);
}
