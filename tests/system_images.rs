//! System images as Android's builder makes them, whose files have blocks in common: both sides
//! read the same, neither writes, and once files have blocks of their own both do.
//! (`scripts/guest-suites android` has one with sealed files.)

use std::os::unix::fs::symlink;
use std::path::Path;

use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Image, Need, Result, Subject, TempDir, Tree, content, ensure, need, tools,
};
use rustix::fs::{XattrFlags, setxattr};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("python3"),
];
/// The options that Android's builder has.
const ARGS: &str = "-b 4096 -I 256 -m 0 -L / -M / \
                    -O ^has_journal,^64bit,^metadata_csum,^resize_inode,^flex_bg,uninit_bg";
/// `CAP_NET_RAW`, permitted and effective.
const NET_RAW: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Makes a tree in a folder. Returns the paths of the files that are to have blocks in common.
fn make_tree(dir: &Path) -> Result<Vec<String>> {
    for name in [
        "system",
        "system/bin",
        "system/lib64",
        "vendor",
        "vendor/lib64",
    ] {
        std::fs::create_dir(dir.join(name))?;
    }
    let library = content::fill(1, 0, 900_000);
    let mut paths = vec![];
    let mut put = |path: &str, bytes: &[u8]| -> Result<()> {
        paths.push(format!("/{path}"));
        Ok(std::fs::write(dir.join(path), bytes)?)
    };
    put("system/lib64/libc.so", &library)?;
    put("vendor/lib64/libc.so", &library)?;
    // Equal at the begin, at the end, and with itself.
    put(
        "system/lib64/libm.so",
        &[&library[..400_000], b"another end"].concat(),
    )?;
    put(
        "vendor/lib64/libx.so",
        &[&[7; 8192][..], &library[40_960..]].concat(),
    )?;
    put("vendor/lib64/twice.so", &library[..81_920].repeat(3))?;
    for number in 0..300 {
        let bytes = content::fill(2 + number % 5, 0, 3000);
        put(&format!("system/bin/tool{number}"), &bytes)?;
    }
    symlink("tool0", dir.join("system/bin/sh"))?;
    symlink("/system/bin", dir.join("bin"))?;
    std::fs::hard_link(dir.join("system/lib64/libm.so"), dir.join("system/libm.so"))?;
    let label = b"u:object_r:system_file:s0";
    for path in &paths {
        let path = dir.join(path.trim_start_matches('/'));
        setxattr(path, "security.selinux", label, XattrFlags::CREATE)?;
    }
    let ping = dir.join("system/bin/tool1");
    setxattr(ping, "security.capability", &NET_RAW, XattrFlags::CREATE)?;
    set_times(dir)?;
    Ok(paths)
}

/// Gives all files below `dir` one time, of whole seconds.
fn set_times(dir: &Path) -> Result<()> {
    let touch = ["-exec", "touch", "-h", "-d", "@1230768000", "{}", "+"];
    Cmd::new("find").arg(dir).args(touch).ok().map(drop)
}

/// An image of the tree in `dir`, in which files have blocks in common.
fn make_image(dir: &Path) -> Result<Image> {
    let paths = make_tree(dir)?;
    let image = Image::of_mib(32)
        .args(ARGS)
        .args("-d")
        .args(&dir.display().to_string());
    let image = image.make()?;
    let free = |image: &Image| -> Result<u64> { Ok(image.header("Free blocks")?.parse()?) };
    let before = free(&image)?;
    Cmd::new("python3")
        .arg(tools::workspace().join("tests/share_blocks.py"))
        .arg(image.path())
        .args(&paths)
        .ok()?;
    ensure!(free(&image)? > before + 700, "{before}, {}", free(&image)?);
    let features = image.header("Filesystem features")?;
    ensure!(features.contains("shared_blocks"), "{features}");
    Ok(image)
}

/// Both checkers find nothing wrong with an image.
fn is_sound(image: &Image) -> Result<()> {
    image.fsck_clean()?;
    let check = Cmd::new(tools::extant()?).arg("check").arg(image.path());
    check.ok().map(drop)
}

/// The tree that a side shows.
fn shown(side: Subject, image: &Image) -> Result<Tree> {
    let mount = side.mount(image.path(), "ro")?;
    let tree = Tree::take(mount.dir())?.without("lost+found");
    mount.unmount()?;
    Ok(tree)
}

/// Both sides show the tree of a folder.
fn both_show(image: &Image, dir: &Path) -> Result<()> {
    is_sound(image)?;
    let right = Tree::take(dir)?;
    let how = Compare {
        skip_root: true,
        ..Compare::default()
    };
    for side in [Subject::Ext4, Subject::Extant] {
        right.expect_equal(&shown(side, image)?, how)?;
    }
    Ok(())
}

#[test]
fn files_with_blocks_in_common_are_read_and_then_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = TempDir::new("tree")?;
    let image = make_image(tree.path())?;
    let before = image.fingerprint()?;
    both_show(&image, tree.path())?;
    for side in [Subject::Ext4, Subject::Extant] {
        let refused = side.mount(image.path(), "rw");
        ensure!(refused.is_err(), "{side:?} writes shared blocks");
    }
    ensure!(image.fingerprint()? == before, "a mount wrote");

    let fix = Cmd::new(tools::extant()?)
        .args(["fix", "--unshare"])
        .arg(image.path())
        .run()?;
    ensure!(fix.code == Some(1), "{}", fix.describe());
    both_show(&image, tree.path())?;
    for (number, side) in [Subject::Ext4, Subject::Extant].into_iter().enumerate() {
        let mount = side.mount(image.path(), "rw")?;
        for dir in [mount.dir(), tree.path()] {
            let library = dir.join(["system/lib64/libm.so", "vendor/lib64/libc.so"][number]);
            let mut bytes = std::fs::read(&library)?;
            bytes[200_000..300_000].fill(9);
            bytes.extend_from_slice(&content::fill(20, 0, 50_000));
            std::fs::write(&library, &bytes)?;
            std::fs::remove_file(dir.join(format!("system/bin/tool{}", 7 + number)))?;
            set_times(dir)?;
        }
        mount.unmount()?;
        both_show(&image, tree.path())?;
    }
    Ok(())
}
