//! Files that Extant writes, Linux reads; files that Linux writes, Extant reads: over 10,000
//! entries of every kind, compared with owners, modes, times, xattrs, ACLs, links and contents.

use extant_testkit::odd::{self, Limits};
use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Image, Mount, Need, Result, Subject, Tree, ensure, mount, need, report, tools,
};
use std::path::Path;
use std::time::Duration;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("setfacl"),
];

/// Real trees that most machines have. What they lack in number the odd tree makes up.
const REAL: &[&str] = &["/usr/include", "/usr/share/doc", "/usr/share/man", "/etc"];
const AT_LEAST: usize = 10_000;

/// A Linux mount whose tree holds copies of real directories and one of every oddity.
fn source() -> Result<(Image, Mount)> {
    let image = Image::of_mib(1024).args("-N 120000").make()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    odd::make(
        &linux.join("odd"),
        Limits::ext4(4096, 256).with_large_file(),
        4000,
    )?;
    let mut entries = 4000;
    for (i, real) in REAL.iter().enumerate() {
        if entries > 2 * AT_LEAST || !Path::new(real).is_dir() {
            continue;
        }
        let to = linux.join(format!("real{i}"));
        copy(Path::new(real), &to)?;
        entries += count(&to)?;
    }
    ensure!(
        entries > AT_LEAST,
        "only {entries} entries: this machine has too few files to copy"
    );
    Ok((image, linux))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let cp = Cmd::new("cp")
        .arg("-a")
        .arg("--no-target-directory")
        .arg(from)
        .arg(to);
    cp.limit(Duration::from_secs(300)).ok()?;
    Ok(())
}

fn count(dir: &Path) -> Result<usize> {
    Ok(Cmd::new("find").arg(dir).ok()?.out.lines().count())
}

#[test]
fn into_a_mount_and_out_through_linux() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (_source_image, linux) = source()?;
    let original = Tree::take(linux.dir())?.without("lost+found");
    let plain = Compare {
        skip_root: true,
        ..Compare::default()
    };

    let image = Image::of_mib(1024).args("-N 120000").make()?;
    let mount = if Subject::under_test() == Subject::Extant {
        mount::in_background(image.path(), "")?
    } else {
        Subject::under_test().mount(image.path(), "")?
    };
    for entry in std::fs::read_dir(linux.dir())? {
        let entry = entry?;
        if entry.file_name() != "lost+found" {
            copy(&entry.path(), &mount.join(entry.file_name()))?;
        }
    }
    let diff = Cmd::new("diff").args(["-r", "--no-dereference", "--exclude=lost+found"]);
    diff.arg(linux.join("real0"))
        .arg(mount.join("real0"))
        .limit(Duration::from_secs(300))
        .ok()?;
    original.expect_equal(&Tree::take(mount.dir())?.without("lost+found"), plain)?;
    mount.unmount()?;
    image.fsck_clean()?;

    let back = Subject::Ext4.mount(image.path(), "ro")?;
    original.expect_equal(&Tree::take(back.dir())?.without("lost+found"), plain)?;
    back.unmount()?;
    report(&format!(
        "{} entries copied in, equal through Linux, e2fsck clean",
        original.len()
    ));
    Ok(())
}

#[test]
fn filled_by_linux_and_read_by_extant() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (image, linux) = source()?;
    linux.unmount()?;
    // Access times must not move between the two looks.
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    let by_linux = Tree::take(linux.dir())?;
    linux.unmount()?;
    let before = image.fingerprint()?;

    let mount = Subject::under_test().mount(image.path(), "ro")?;
    let one_image = Compare {
        one_image: true,
        ..Compare::default()
    };
    by_linux.expect_equal(&Tree::take(mount.dir())?, one_image)?;
    mount.unmount()?;
    ensure!(
        image.fingerprint()? == before,
        "a read-only mount changed the image"
    );

    let mount = Subject::under_test().mount(image.path(), "noatime")?;
    by_linux.expect_equal(&Tree::take(mount.dir())?, one_image)?;
    mount.unmount()?;
    image.fsck_clean()?;
    report(&format!(
        "{} entries of Linux read, equal to the inode number",
        by_linux.len()
    ));
    Ok(())
}

/// In the other direction a tree must survive being taken apart.
#[test]
fn removed_again_nothing_is_left() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(256).args("-b 4096").make()?;
    let free = |label: &str| image.header(label);
    let (blocks, inodes) = (free("Free blocks")?, free("Free inodes")?);
    let mount = Subject::under_test().mount(image.path(), "")?;
    odd::make(&mount.join("odd"), Limits::ext4(4096, 256), 3000)?;
    std::fs::remove_dir_all(mount.join("odd"))?;
    mount.unmount()?;
    image.fsck_clean()?;
    ensure!(
        free("Free inodes")? == inodes,
        "inodes leaked: {} of {inodes}",
        free("Free inodes")?
    );
    // The root directory keeps blocks it may have grown; it never grows here.
    ensure!(
        free("Free blocks")? == blocks,
        "blocks leaked: {} of {blocks}",
        free("Free blocks")?
    );
    Ok(())
}

/// An ordinary user can mount an image of their own.
#[test]
fn an_ordinary_user_mounts_and_writes() -> Result<()> {
    if !need(&[Need::Root, Need::Fuse, Need::Tool("setpriv")]) {
        return Ok(());
    }
    if Subject::under_test() != Subject::Extant {
        return Ok(());
    }
    let image = Image::of_mib(64).args("-E root_owner=1000:1000").make()?;
    let dir = extant_testkit::TempDir::new_in(&std::env::temp_dir(), "user")?;
    let bin = dir.join("extant");
    tools::copy_program(tools::extant()?, &bin)?;
    let at = dir.join("mnt");
    std::fs::create_dir(&at)?;
    let disk = dir.join("disk.img");
    Cmd::new("cp")
        .arg("--sparse=always")
        .arg(image.path())
        .arg(&disk)
        .ok()?;
    Cmd::new("chown")
        .args(["-R", "1000:1000"])
        .arg(dir.path())
        .ok()?;
    let fuse_open = std::fs::metadata("/dev/fuse")?;
    let open_to_all = std::os::unix::fs::MetadataExt::mode(&fuse_open) & 0o6 == 0o6;
    if !open_to_all {
        // Debian's udev makes it so; machines without udev do not.
        Cmd::new("chmod").args(["666", "/dev/fuse"]).ok()?;
    }
    let script = format!(
        "set -e; cd {0}; ./extant mount disk.img mnt; echo hello > mnt/f
         mkdir mnt/d; cat mnt/f; ./extant umount mnt",
        dir.path().display()
    );
    let o = Cmd::new("setpriv")
        .args([
            "--reuid=1000",
            "--regid=1000",
            "--clear-groups",
            "sh",
            "-c",
            &script,
        ])
        .run();
    if !open_to_all {
        Cmd::new("chmod").args(["600", "/dev/fuse"]).ok()?;
    }
    let o = o?;
    if o.code != Some(0) {
        let _ = Cmd::new("umount").arg("-l").arg(&at).run();
    }
    ensure!(o.code == Some(0) && o.out == "hello\n", "{}", o.describe());
    Cmd::new("e2fsck").arg("-fn").arg(&disk).ok()?;
    Ok(())
}
