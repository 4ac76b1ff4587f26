//! Bad input: each fault has its own plain error, the command exits with a failure, no byte of the
//! image is written, and what the fault does not touch can still be read.

mod bad {
    pub(crate) mod damage;
    pub(crate) mod runtime;
}

use bad::damage::{self, Damage};
use extant_testkit::{Cmd, Context, Image, Need, Result, TempDir, ensure, need, report, tools};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

/// Runs `extant` with `args`; it must fail within seconds, by itself, with one plain message that
/// holds all of `words`. The message.
fn fails(args: &[&str], words: &[&str]) -> Result<String> {
    let o = Cmd::new(tools::extant()?).args(args).run()?;
    let code = o.code;
    ensure!(
        code.is_some_and(|c| c != 0 && c < 100),
        "not an orderly failure: {}",
        o.describe()
    );
    let text = o.err.to_lowercase();
    for w in words {
        ensure!(
            text.contains(&w.to_lowercase()),
            "{w:?} is not in: {}",
            o.describe()
        );
    }
    ensure!(!text.contains("panick"), "{}", o.describe());
    ensure!(
        text.trim().lines().count() <= 3,
        "not one plain message: {}",
        o.describe()
    );
    Ok(o.err)
}

fn operand(image: &Image, path: &str) -> String {
    format!("{}:{path}", image.path().display())
}

/// Refused by `mount` and by `ls`, with the same cause, and not written to.
fn refused(image: &Image, words: &[&str]) -> Result<()> {
    let before = image.fingerprint()?;
    let at = TempDir::new("mnt")?;
    let image_path = image.path().display().to_string();
    let mnt = at.path().display().to_string();
    fails(&["mount", &image_path, &mnt], words).context(|| "mount")?;
    fails(&["ls", &operand(image, "/")], words).context(|| "ls")?;
    ensure!(image.fingerprint()? == before, "the image was written to");
    Ok(())
}

/// Refused by `mount`, shown by `ls` with a warning of the same cause, and not written to.
fn read_past(image: &Image, words: &[&str]) -> Result<()> {
    let before = image.fingerprint()?;
    let at = TempDir::new("mnt")?;
    let image_path = image.path().display().to_string();
    let mnt = at.path().display().to_string();
    fails(&["mount", &image_path, &mnt], words).context(|| "mount")?;
    let shown = Cmd::new(tools::extant()?)
        .args(["ls", &operand(image, "/")])
        .ok()?;
    let reported = words.iter().all(|word| shown.err.contains(word));
    ensure!(
        reported && shown.out.contains("other"),
        "{}",
        shown.describe()
    );
    ensure!(image.fingerprint()? == before, "the image was written to");
    Ok(())
}

#[test]
fn what_is_not_ext4_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let text = b"Just a text file, nothing else.\n".repeat(1000);
    for (what, bytes) in [
        ("zeros", vec![0; 1 << 20]),
        ("text", text),
        ("short", vec![7; 100]),
        ("empty", vec![]),
    ] {
        refused(&Image::of_bytes(&bytes)?, &["not an ext4"]).context(|| what)?;
    }
    let dir = TempDir::new("mnt")?;
    let mnt = dir.path().display().to_string();
    fails(
        &["mount", "/nonexistent/disk.img", &mnt],
        &["/nonexistent/disk.img", "no such file"],
    )?;
    fails(&["mount", &mnt, &mnt], &["directory"])?;
    let image = Image::of_mib(16).make()?;
    let image_path = image.path().display().to_string();
    fails(
        &["mount", &image_path, "/nonexistent/mnt"],
        &["/nonexistent/mnt"],
    )?;
    fails(
        &["mount", "-o", "no_such_option", &image_path, &mnt],
        &["no_such_option"],
    )?;
    fails(&["umount", &mnt], &[&mnt])?;
    Ok(())
}

#[test]
fn a_truncated_image_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for keep in [8u64 << 20, (16 << 20) - 1024] {
        let image = Image::of_mib(16).make()?;
        std::fs::File::options()
            .write(true)
            .open(image.path())?
            .set_len(keep)?;
        refused(&image, &["truncated"])?;
    }
    Ok(())
}

#[test]
fn unknown_features_are_refused_by_name() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (bit, name) in [
        (0x1u32, "compression"),
        (0x1000, "dirdata"),
        (0x4000_0000, "FEATURE_I30"),
    ] {
        let image = Image::of_mib(16).make()?;
        damage::set_incompat(&image, bit)?;
        refused(&image, &["feature", name]).context(|| name)?;
    }
    Ok(())
}

#[test]
fn unknown_read_only_features_are_mounted_read_only() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (bit, name) in [(0x4000u32, "shared_blocks"), (0x1000_0000, "FEATURE_R28")] {
        let image = damage::with_files()?;
        damage::set_ro_compat(&image, bit)?;
        let before = image.fingerprint()?;
        let o = Cmd::new(tools::extant()?)
            .args(["cat", &operand(&image, "/file")])
            .ok()?;
        ensure!(o.out.starts_with("some text"), "{}", o.describe());
        let at = TempDir::new("mnt")?;
        let mount = Cmd::new(tools::extant()?)
            .arg("mount")
            .arg(image.path())
            .arg(at.path())
            .ok()?;
        let writing = std::fs::write(at.join("new"), b"x");
        Cmd::new(tools::extant()?)
            .arg("umount")
            .arg(at.path())
            .ok()?;
        ensure!(
            mount.err.contains(name),
            "no warning names {name}: {}",
            mount.describe()
        );
        ensure!(
            writing.is_err_and(|e| e.raw_os_error() == Some(30)),
            "it could be written to"
        );
        fails(&["mkdir", &operand(&image, "/new")], &["read-only"])?;
        // Linux mounts none of them to be written.
        let at_dir = at.path().display().to_string();
        let image_path = image.path().display().to_string();
        fails(
            &["mount", "-o", "rw", &image_path, &at_dir],
            &[name, "only mounted read-only (ro)"],
        )?;
        ensure!(
            image.fingerprint()? == before,
            "{name}: the image was written to"
        );
    }
    Ok(())
}

#[test]
fn damage_is_reported_and_nothing_is_written() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let at_mount = [
        (Damage::Superblock, ["superblock", "checksum"]),
        (Damage::Journal, ["journal", "checksum"]),
    ];
    for (what, words) in at_mount {
        let image = damage::with_files()?;
        what.inflict(&image)?;
        refused(&image, &words).context(|| format!("{what:?}"))?;
    }
    // What Linux reads past with `ro` is read past with a warning, and refused for writing.
    let image = damage::with_files()?;
    Damage::GroupDescriptor.inflict(&image)?;
    read_past(&image, &["descriptor", "checksum"])?;
    // These are found when the structure is read; a command that reads it fails and names it.
    let later: [(Damage, &[&str], &str, &str); 4] = [
        (Damage::Inode, &["cat"], "/file", "inode"),
        (Damage::ExtentBlock, &["cat"], "/comb", "extent"),
        (Damage::DirectoryBlock, &["ls"], "/dir", "directory"),
        (Damage::XattrBlock, &["cp", "-a"], "/attr", "attribute"),
    ];
    for (what, command, path, word) in later {
        let image = damage::with_files()?;
        what.inflict(&image)?;
        let before = image.fingerprint()?;
        let (from, to) = (operand(&image, path), TempDir::new("out")?);
        let to = to.join("copy").display().to_string();
        let mut args = command.to_vec();
        args.push(&from);
        if command[0] == "cp" {
            args.push(&to);
        }
        fails(&args, &["corrupt", word, "checksum"]).context(|| format!("{what:?}"))?;
        ensure!(
            image.fingerprint()? == before,
            "{what:?}: the image was written to"
        );
        // Nothing else is lost.
        let other = Cmd::new(tools::extant()?)
            .args(["cat", &operand(&image, "/other")])
            .ok()?;
        ensure!(other.out == "untouched", "{what:?}: {}", other.describe());
    }
    report("damage to 7 structures named, no image written to");
    Ok(())
}

#[test]
fn a_journal_to_replay_on_a_read_only_device_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = damage::with_dirty_journal()?;
    let before = image.fingerprint()?;
    let looped = Cmd::new("losetup")
        .args(["-r", "-f", "--show"])
        .arg(image.path())
        .ok()?
        .out;
    let looped = looped.trim();
    let at = TempDir::new("mnt")?;
    let mnt = at.path().display().to_string();
    let refused = fails(
        &["mount", "-o", "ro", looped, &mnt],
        &["journal", "read-only"],
    );
    // With noload one can look without a replay.
    let look = Cmd::new(tools::extant()?)
        .args(["mount", "-o", "ro,noload", looped, &mnt])
        .run()?;
    let listed = std::fs::read_dir(at.path()).map(Iterator::count);
    let closed = Cmd::new(tools::extant()?).args(["umount", &mnt]).run()?;
    Cmd::new("losetup").args(["-d", looped]).ok()?;
    refused?;
    ensure!(
        look.code == Some(0) && closed.code == Some(0),
        "{}",
        look.describe()
    );
    ensure!(listed.is_ok_and(|n| n > 0), "nothing is seen with noload");
    ensure!(image.fingerprint()? == before, "the image was written to");
    Ok(())
}

#[test]
fn an_image_in_use_is_refused() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let first = extant_testkit::Subject::Extant.mount(image.path(), "")?;
    let at = TempDir::new("mnt")?;
    let image_path = image.path().display().to_string();
    fails(
        &["mount", &image_path, &at.path().display().to_string()],
        &["in use"],
    )?;
    fails(&["mkdir", &operand(&image, "/d")], &["in use"])?;
    first.unmount()?;
    Cmd::new(tools::extant()?)
        .args(["mkdir", &operand(&image, "/d")])
        .ok()?;
    image.fsck_clean()
}

#[test]
fn every_benchmark_is_built() -> Result<()> {
    let o = Cmd::new(tools::extant()?)
        .args(["bench", "randwrite", "--quick", "--runs", "1"])
        .args(["--variant", "iomap", "--only", "clear/first"])
        .run()?;
    ensure!(
        o.code == Some(0) && o.out.contains("clear/first"),
        "{}",
        o.describe()
    );
    Ok(())
}
