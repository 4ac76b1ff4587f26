//! Shared parts of the tests of `resize`: volumes with something of everything on them, and what is
//! on a volume, as text.

// Each test binary uses a part of it.
#![allow(dead_code, reason = "shared by several test binaries")]

pub(crate) mod cuts;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::{Filesystem, Options};
use extant_blockdev::{BlockDevice, CowDevice};
use extant_check::CheckOptions;
use extant_resize::{Report, ResizeOptions, Target, resize_image};
use extant_testkit::content::Hasher;
use extant_testkit::{Image, Need, Result, Rng, bail, ensure};

pub(crate) const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("e2fsck")];

pub(crate) fn options() -> ResizeOptions<'static> {
    ResizeOptions {
        check: CheckOptions {
            threads: 1,
            ..CheckOptions::default()
        },
    }
}

pub(crate) fn run(image: &Image, target: Target) -> extant_resize::Result<Report> {
    resize_image(image.path(), target, &options())
}

/// Fills an image with files of all kinds and deletes some of them, so that what is free lies
/// scattered. `share` is the percentage of the free space that is filled.
pub(crate) fn fill(image: &Image, rng: &mut Rng, share: u64) -> Result<()> {
    let fs = Options::new().write(true).open(image.path())?;
    let free = fs.statfs()?;
    let mut budget = free.blocks_free * u64::from(free.block_size) * share / 100;
    let mut kept: Vec<PathBuf> = Vec::new();
    let inodes = free.inodes_free / 2;
    let mut dir = PathBuf::from("/");
    for number in 0..inodes.min(160) {
        if number % 12 == 0 {
            dir = match rng.chance(50) {
                true => PathBuf::from(format!("/d{number}")),
                false => dir.join(format!("d{number}")),
            };
            fs.create_dir_all(&dir)?;
        }
        let path = dir.join(format!("f{number}"));
        match rng.below(12) {
            0 => fs.symlink("x".repeat(rng.index(300) + 1), &path)?,
            1 if !kept.is_empty() => {
                let original = &kept[rng.index(kept.len())];
                fs.hard_link(original, &path)?;
            }
            2 => sparse(&fs, &path, rng)?,
            _ => {
                let most = 1 << rng.between(3, 18);
                let len = rng.below(most).min(budget / 4);
                budget = budget.saturating_sub(len);
                let seed = rng.next_u64();
                let bytes: Vec<u8> = (0..len)
                    .map(|at| (at * 7 + seed).to_le_bytes()[0])
                    .collect();
                fs.write(&path, &bytes)?;
                kept.push(path.clone());
            }
        }
        if rng.chance(10) && kept.last() == Some(&path) {
            let value = vec![b'v'; rng.index(700) + 1];
            fs.set_xattr(&path, "user.name", &value)?;
        }
        if rng.chance(25) && !kept.is_empty() {
            let gone = kept.swap_remove(rng.index(kept.len()));
            fs.remove_file(&gone)?;
        }
    }
    fs.unmount()?;
    Ok(())
}

/// A file with many extents.
fn sparse(fs: &Filesystem, path: &Path, rng: &mut Rng) -> Result<()> {
    let file = fs.create(path)?;
    for piece in 0..rng.below(40) {
        file.write_at(&[piece.to_le_bytes()[0] + 1; 100], piece << 15)?;
    }
    let start = 3_000_000;
    match file.allocate_keep_size(start..start + rng.below(1 << 16) + 1) {
        // Block maps have no blocks that were never written.
        Ok(()) | Err(extant::Error::NotSupported(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The content of a volume: a line for each name. The device is not written.
pub(crate) fn content(dev: Arc<dyn BlockDevice>) -> Result<String> {
    let copy = Arc::new(CowDevice::new(dev));
    let fs = Filesystem::options().open_device(copy)?;
    let mut text = String::new();
    let mut links = BTreeMap::new();
    list(&fs, Path::new("/"), &mut links, &mut text)?;
    Ok(text)
}

pub(crate) fn content_of(image: &Image) -> Result<String> {
    let fs = Filesystem::open(image.path())?;
    let mut text = String::new();
    list(&fs, Path::new("/"), &mut BTreeMap::new(), &mut text)?;
    Ok(text)
}

fn list(
    fs: &Filesystem,
    dir: &Path,
    links: &mut BTreeMap<extant::Ino, PathBuf>,
    text: &mut String,
) -> Result<()> {
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in fs.read_dir(dir)? {
        let entry = entry?;
        if entry.name() != "." && entry.name() != ".." {
            names.push(entry.path());
        }
    }
    names.sort_unstable();
    for path in names {
        let meta = fs.symlink_metadata(&path)?;
        // Numbers change; which names are one file does not.
        let first = links.entry(meta.ino()).or_insert_with(|| path.clone());
        let _ = write!(
            text,
            "{} = {} {:o} {} {} {} {} {:?}",
            path.display(),
            first.display(),
            meta.mode(),
            meta.nlink(),
            meta.uid(),
            meta.gid(),
            meta.rdev(),
            meta.modified(),
        );
        if meta.is_file() {
            let bytes = fs.read(&path)?;
            let _ = write!(text, " {} {:x}", bytes.len(), sum(&bytes));
        } else if meta.is_symlink() {
            let _ = write!(text, " -> {}", fs.read_link(&path)?.display());
        }
        for name in fs.xattrs(&path)? {
            let value = fs.xattr(&path, &name)?;
            let _ = write!(text, " {}={:x}", name.escape_ascii(), sum(&value));
        }
        text.push('\n');
        if meta.is_dir() {
            list(fs, &path, links, text)?;
        }
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = Hasher::default();
    hasher.add(bytes);
    hasher.end()
}

/// Compares two contents; the first line that differs is the error.
pub(crate) fn same(after: &str, before: &str) -> Result<()> {
    let mut lines = after.lines().zip(before.lines());
    if let Some((after, before)) = lines.find(|(after, before)| after != before) {
        bail!("{after}\ninstead of\n{before}");
    }
    let (after, before) = (after.lines().count(), before.lines().count());
    ensure!(after == before, "{after} names instead of {before}");
    Ok(())
}

/// Resizes an image, and expects that it is sound and holds what it held.
pub(crate) fn resized(image: &Image, target: Target) -> Result<Report> {
    let before = content_of(image)?;
    let report = run(image, target)?;
    image.fsck_clean()?;
    let len = std::fs::metadata(image.path())?.len();
    ensure!(len == report.bytes(), "{len} bytes, {report:?}");
    same(&content_of(image)?, &before)?;
    // The engine allocates in what is new, and frees; of a full volume it takes what there is.
    let fs = Options::new().write(true).open(image.path())?;
    let some = fs.statfs()?.blocks_free.min(4096) * 256;
    match fs.write("/probe", vec![1; extant_units::index(some)]) {
        Ok(()) => fs.remove_file("/probe")?,
        Err(extant::Error::NoSpace) => {}
        Err(error) => return Err(error.into()),
    }
    fs.unmount()?;
    image.fsck_clean()?;
    Ok(report)
}
