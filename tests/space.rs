//! Space that is given back and space that is never taken: fstrim, copies inside of a mount, copies
//! of files with holes.

use extant_testkit::{Cmd, Image, Need, Result, Subject, TempDir, content, ensure, need, tools};
use rustix::fs::{SeekFrom, copy_file_range, seek};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mke2fs"),
    Need::Tool("fstrim"),
];
const MIB: u64 = 1 << 20;

fn used(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.blocks() * 512)
}

/// The kernel forwards FITRIM, of the root directory and of a file; what was freed is given back to
/// the host.
#[test]
fn fstrim_of_a_mount_shrinks_its_image() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(96).junk().make()?;
    let before = used(image.path())?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    let data = content::fill(5, 0, 8 << 20);
    fs::write(mount.join("kept"), &data)?;
    fs::write(mount.join("gone"), &data)?;
    File::open(mount.join("gone"))?.sync_all()?;
    File::open(mount.join("kept"))?.sync_all()?;
    fs::remove_file(mount.join("gone"))?;
    File::open(mount.dir())?.sync_all()?;
    let reported = Cmd::new("fstrim").arg("-v").arg(mount.dir()).ok()?.out;
    ensure!(reported.contains("trimmed"), "{reported}");
    let after = used(image.path())?;
    ensure!(
        after + 60 * MIB < before,
        "{before} bytes in use, {after} after fstrim: {reported}"
    );
    let refused = Cmd::new("fstrim")
        .args(["-o", "96M"])
        .arg(mount.dir())
        .run()?;
    ensure!(refused.code != Some(0), "{}", refused.describe());
    mount.unmount()?;
    image.fsck_clean()?;
    let trimmed = Cmd::new(tools::extant()?)
        .args(["trim", "--json"])
        .arg(image.path())
        .ok()?
        .out;
    ensure!(trimmed.contains("\"trimmed\""), "{trimmed}");
    let again = Subject::Extant.mount(image.path(), "")?;
    ensure!(fs::read(again.join("kept"))? == data, "kept is lost");
    again.unmount()?;
    image.fsck_clean()
}

/// A file of 40 MiB with three pieces of data, and their places.
fn sparse(path: &Path) -> Result<Vec<u64>> {
    let file = File::create(path)?;
    let places = vec![3 * MIB, 17 * MIB + 8192, 33 * MIB];
    for &at in &places {
        file.write_all_at(&content::fill(at, at, 64 << 10), at)?;
    }
    file.set_len(40 * MIB)?;
    file.sync_all()?;
    Ok(places)
}

/// Offsets at which data begins, as the file system says.
fn data_of(path: &Path) -> Result<Vec<u64>> {
    let (file, mut at, mut all) = (File::open(path)?, 0, Vec::new());
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        all.push(start);
        at = seek(&file, SeekFrom::Hole(start))?;
    }
    Ok(all)
}

/// Into an image, within it, out of it: what was a hole is one, and takes no space.
#[test]
fn copies_keep_holes_both_ways() -> Result<()> {
    if !need(&[Need::Tool("mke2fs")]) {
        return Ok(());
    }
    let dir = TempDir::new("holes")?;
    let places = sparse(&dir.join("in"))?;
    ensure!(
        data_of(&dir.join("in"))? == places,
        "the host keeps no holes"
    );
    let image = Image::of_mib(16).make()?;
    let inside = |name: &str| format!("{}:/{name}", image.path().display());
    let cp = |from: &str, to: &str| {
        let cmd = Cmd::new(tools::extant()?).args(["cp", "-q"]);
        cmd.arg(from).arg(to).ok().map(drop)
    };
    cp(&dir.join("in").display().to_string(), &inside("a"))?;
    cp(&inside("a"), &inside("b"))?;
    cp(&inside("b"), &dir.join("out").display().to_string())?;
    ensure!(
        fs::read(dir.join("in"))? == fs::read(dir.join("out"))?,
        "the copy is different"
    );
    ensure!(
        data_of(&dir.join("out"))? == places,
        "the copy has its data elsewhere"
    );
    for name in ["a", "b"] {
        let text = Cmd::new(tools::extant()?)
            .args(["stat", "--json"])
            .arg(inside(name))
            .ok()?
            .out;
        let stat: serde_json::Value = serde_json::from_str(&text)?;
        let blocks = stat[0]["blocks"].as_u64().unwrap_or(u64::MAX);
        ensure!(blocks * 512 <= 3 * (64 << 10) + 8192, "{name}: {text}");
    }
    image.fsck_clean()
}

/// The call reaches the file system: what it copies is right, holes are kept, dirty pages of the
/// kernel's count, and overlapping ranges are refused.
#[test]
fn copy_file_range_within_a_mount() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for options in ["", "nostrict_open", "nowriteback_cache"] {
        let image = Image::of_mib(32).junk().make()?;
        let mount = Subject::Extant.mount(image.path(), options)?;
        sparse(&mount.join("a"))?;
        let whole = fs::read(mount.join("a"))?;
        let from = File::options()
            .read(true)
            .write(true)
            .open(mount.join("a"))?;
        let to = File::create(mount.join("b"))?;
        let (mut at, mut to_at) = (0, 0);
        while copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 1 << 40)? > 0 {}
        ensure!(at == 40 * MIB && to_at == at, "{at} bytes, then {to_at}");
        ensure!(
            fs::read(mount.join("b"))? == whole,
            "{options}: the copy is different"
        );
        ensure!(
            fs::metadata(mount.join("b"))?.blocks() * 512 <= 3 * (64 << 10) + 8192,
            "{options}: the copy has no holes"
        );
        // Dirty in the kernel: in the range, and behind it, where only the kernel knows the size.
        from.write_all_at(b"dirty", 100)?;
        from.write_all_at(b"end", 41 * MIB)?;
        let (mut at, mut to_at) = (50, 5 * MIB + 3);
        let done = copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 1000)?;
        let mut piece = vec![0; done];
        from.read_exact_at(&mut piece, 50)?;
        ensure!(
            done == 1000 && &piece[50..55] == b"dirty",
            "{options}: {done} bytes"
        );
        let mut copied = vec![0; done];
        File::open(mount.join("b"))?.read_exact_at(&mut copied, 5 * MIB + 3)?;
        ensure!(copied == piece, "{options}: dirty pages were not copied");
        let (mut at, mut to_at) = (40 * MIB - 10, 0);
        let mut done = 0;
        while at < 41 * MIB + 3 {
            let left = usize::try_from(41 * MIB + 3 - at)?;
            let more = copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), left)?;
            ensure!(more > 0, "{options}: nothing is copied at {at}");
            done += more;
        }
        let mut end = [0; 3];
        let last = done as u64 - 3;
        File::open(mount.join("b"))?.read_exact_at(&mut end, last)?;
        ensure!(&end == b"end", "{options}: {end:?}");
        let (mut at, mut to_at) = (0, 1000);
        let refused = copy_file_range(&from, Some(&mut at), &from, Some(&mut to_at), 1001);
        ensure!(refused.is_err(), "{options}: overlapping ranges are copied");
        drop((from, to));
        let served = Cmd::new(tools::extant()?).args(["stats", "--json"]);
        let served = served.arg(mount.dir()).ok()?.out;
        ensure!(served.contains("copy_file_range"), "{served}");
        mount.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}
