//! `extant fix`: what it prints, its exit status, and that it writes only where it says so.

use std::fs;

use extant_testkit::cmd::Output;
use extant_testkit::{Cmd, Image, Need, Result, TempDir, ensure, need};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
    Need::Tool("e2fsck"),
];

fn fix(options: &[&str], image: &Image) -> Cmd {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("fix");
    cmd.args(options).arg(image.path())
}

#[test]
fn what_is_fixed_and_left_is_told_to_people_and_programs() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(8).make()?;
    for request in ["mkdir /d", "write /dev/null /d/f", "write /dev/null /d/g"] {
        image.debugfs_write(request)?;
    }
    let clean = fs::read(image.path())?;
    let o = fix(&[], &image).run()?;
    ensure!(
        o.code == Some(0) && o.out.ends_with(": clean\n"),
        "{}",
        o.describe()
    );
    ensure!(
        fs::read(image.path())? == clean,
        "a clean image was written"
    );

    image.debugfs_write("sif /d/f links_count 9")?;
    let damaged = fs::read(image.path())?;
    let o = fix(&["-n"], &image).run()?;
    let told = o.out.contains("link count 9, found 1: would be fixed\n");
    ensure!(o.code == Some(4) && told, "{}", o.describe());
    ensure!(fs::read(image.path())? == damaged, "a dry run has written");
    let o = fix(&["--json"], &image).run()?;
    let object: Value = serde_json::from_str(&o.out)?;
    let fixed = object["fixed"].as_array().map_or(0, Vec::len);
    ensure!(o.code == Some(1) && fixed == 1, "{}", o.describe());
    ensure!(
        object["clean"] == true && object["dry_run"] == false,
        "{}",
        o.describe()
    );
    image.fsck_clean()?;

    // An entry that leads nowhere is a choice.
    image.debugfs_write("clri /d/g")?;
    let damaged = fs::read(image.path())?;
    let o = fix(&[], &image).run()?;
    let told = o.out.contains("which is not in use: left\n");
    ensure!(o.code == Some(4) && told, "{}", o.describe());
    ensure!(
        fs::read(image.path())? == damaged,
        "what is left was written"
    );
    Ok(())
}

#[test]
fn what_is_no_image_or_in_use_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let dir = TempDir::new("fix")?;
    let file = dir.join("file");
    fs::write(&file, vec![7; 1 << 20])?;
    let extant = |args: &[&str]| Cmd::new(env!("CARGO_BIN_EXE_extant")).args(args);
    for path in [&file, &dir.join("missing")] {
        let o = extant(&["fix", &path.display().to_string()]).run()?;
        ensure!(
            o.code == Some(8) && o.err.lines().count() == 1,
            "{}",
            o.describe()
        );
    }
    let o = extant(&["fix", "--json", &file.display().to_string()]).run()?;
    let object: Value = serde_json::from_str(&o.out)?;
    ensure!(
        o.code == Some(8) && object["clean"].is_null(),
        "{}",
        o.describe()
    );
    ensure!(extant(&["fix"]).run()?.code == Some(2), "no operand");
    Ok(())
}

/// Runs the command with `words` and the image.
fn extant(words: &[&str], image: &Image) -> Result<Output> {
    let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(words);
    cmd.arg(image.path()).run()
}

/// A partition table in the place of the superblock is not written over.
fn refuses_another_format(image: &Image) -> Result<()> {
    image.patch(512, 8, |bytes| bytes.copy_from_slice(b"EFI PART"))?;
    let o = extant(&["check"], image)?;
    let named = o.err.contains("it holds a GUID partition table") && !o.err.contains("extant fix");
    let told = named && o.err.contains("--superblock 8193 reads");
    ensure!(o.code == Some(8) && told, "{}", o.describe());
    let o = extant(&["fix", "--superblock", "8193"], image)?;
    let told = o.err.contains("it holds a GUID partition table");
    ensure!(o.code == Some(8) && told, "{}", o.describe());
    image.patch(512, 8, |bytes| bytes.fill(0))?;
    Ok(())
}

/// Every command takes blocks larger than a page.
#[test]
fn large_blocks_are_checked_fixed_and_resized() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for size in ["8192", "65536"] {
        let image = Image::of_mib(64).args(&format!("-b {size}")).make()?;
        let root = format!("{}:/", image.path().display());
        let ls = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(["ls", &root]);
        let resize = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("resize");
        for o in [
            extant(&["check"], &image)?,
            extant(&["fix"], &image)?,
            extant(&["fix", "-n"], &image)?,
            resize.arg(image.path()).arg("128M").run()?,
            ls.run()?,
        ] {
            ensure!(o.code == Some(0), "{size}: {}", o.describe());
        }
        ensure!(image.header("Block size")? == size, "{size}");
        image.fsck_clean()?;
    }
    Ok(())
}

/// All commands say where a copy of a lost superblock is; those that read take it, and fix stores
/// it.
#[test]
fn a_lost_superblock_is_read_and_restored_by_a_copy() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(20).args("-b 1024").make()?;
    image.debugfs_write("write /dev/null f")?;
    image.patch(1024, 1024, |bytes| bytes.fill(0))?;
    let lost = fs::read(image.path())?;
    let root = format!("{}:/", image.path().display());
    let ls = |words: &[&str]| {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg("ls");
        cmd.args(words).arg(&root).run()
    };
    for (o, status) in [
        (extant(&["check"], &image)?, 8),
        (extant(&["fix"], &image)?, 8),
        (extant(&["info"], &image)?, 1),
        (ls(&[])?, 1),
    ] {
        let told = o.err.contains("extant fix --superblock 8193 restores it");
        ensure!(o.code == Some(status) && told, "{}", o.describe());
    }
    for words in [
        ["check", "--superblock", "8193"],
        ["info", "--superblock", "8193"],
    ] {
        let o = extant(&words, &image)?;
        ensure!(o.code == Some(0), "{}", o.describe());
    }
    let o = ls(&["--superblock", "8193"])?;
    ensure!(o.out.lines().any(|line| line == "f"), "{}", o.describe());
    let o = ls(&["--superblock", "4"])?;
    ensure!(o.err.contains("its copy at 4 KiB"), "{}", o.describe());
    let o = extant(&["resize", "--superblock", "8193"], &image)?;
    ensure!(o.code == Some(2), "{}", o.describe());
    let cp = Cmd::new(env!("CARGO_BIN_EXE_extant")).args(["cp", "--superblock", "8193"]);
    let o = cp.arg("/proc/version").arg(&root).run()?;
    let told = o.err.contains("--superblock only reads an image");
    ensure!(o.code == Some(2) && told, "{}", o.describe());
    for word in ["find", "du"] {
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_extant")).arg(word);
        let o = cmd.args(["--superblock", "8193"]).arg(&root).run()?;
        ensure!(o.code == Some(0), "{}", o.describe());
    }
    ensure!(fs::read(image.path())? == lost, "it was written");

    refuses_another_format(&image)?;
    ensure!(fs::read(image.path())? == lost, "it was written");

    let o = extant(&["fix", "--superblock", "8193"], &image)?;
    let told = o.out.contains("restored from the copy");
    ensure!(o.code == Some(1) && told, "{}", o.describe());
    image.fsck_clean()?;
    let o = extant(&["fix", "--superblock", "8193"], &image)?;
    let told = o.err.contains("its superblock can be used");
    ensure!(o.code == Some(8) && told, "{}", o.describe());
    Ok(())
}

/// Other formats are called by their names, with a way to a file system of ext.
#[test]
fn other_formats_are_named() -> Result<()> {
    let dir = TempDir::new("formats")?;
    for (at, magic, words) in [
        (0, &b"LUKS\xba\xbe"[..], "a LUKS volume: unlock it"),
        (0, b"QFI\xfb", "a qcow2 image: convert it"),
        (0, b"XFSB", "an xfs file system: only ext2"),
        (512, b"EFI PART", "its file systems lie in partitions"),
        (510, b"\x55\xaa", "its file systems lie in partitions"),
        (65_600, b"_BHRfS_M", "a btrfs file system: only ext2"),
        (82, b"FAT32   ", "a vfat file system: only ext2"),
    ] {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        let path = dir.join("image");
        fs::write(&path, bytes)?;
        let root = format!("{}:/", path.display());
        let path = path.display().to_string();
        for words_of in [
            ["check", &path],
            ["fix", &path],
            ["info", &path],
            ["ls", &root],
        ] {
            let o = Cmd::new(env!("CARGO_BIN_EXE_extant"))
                .args(words_of)
                .run()?;
            let named = o.err.contains(words) && o.err.contains("not an ext4 file system");
            ensure!(o.code != Some(0) && named, "{}", o.describe());
        }
    }
    Ok(())
}

/// Files that share blocks get their own, where that is asked for and there is nothing else to do.
#[test]
fn shared_blocks_are_copied_on_request() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let tree = TempDir::new("tree")?;
    for name in ["one", "two"] {
        fs::write(tree.join(name), [b'x'; 3000])?;
    }
    let tree_path = tree.path().display().to_string();
    let image = Image::of_mib(8)
        .args("-b 1024 -d")
        .args(&tree_path)
        .make()?;
    let block = image.debugfs("bmap /one 0")?;
    image.debugfs_write("feature shared_blocks")?;
    image.debugfs_write(&format!("sif /two block[5] {}", block.trim()))?;
    let o = fix(&[], &image).run()?;
    ensure!(o.code == Some(1), "the bitmap: {}", o.describe());
    let before = fs::read(image.path())?;
    let o = fix(&[], &image).run()?;
    ensure!(o.code == Some(0), "{}", o.describe());
    let o = fix(&["-n", "--unshare"], &image).run()?;
    let told = "shared blocks: 3 would be copied, for 1 files\n";
    ensure!(
        o.code == Some(4) && o.out.contains(told),
        "{}",
        o.describe()
    );
    ensure!(fs::read(image.path())? == before, "a dry run has written");
    let o = fix(&["--unshare", "--json"], &image).run()?;
    let object: Value = serde_json::from_str(&o.out)?;
    let unshared = (&object["unshared"]["files"], &object["unshared"]["blocks"]);
    ensure!(o.code == Some(1), "{}", o.describe());
    ensure!(*unshared.0 == 1 && *unshared.1 == 3, "{}", o.describe());
    image.fsck_clean()?;
    let features = image.header("Filesystem features")?;
    ensure!(!features.contains("shared_blocks"), "{features}");
    let o = fix(&["--unshare"], &image).run()?;
    ensure!(o.code == Some(0), "again: {}", o.describe());
    Ok(())
}
