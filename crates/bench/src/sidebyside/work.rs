//! The work itself: what is done, and what exactly is timed.

use super::source::Source;
use super::variant::Variant;
use extant_bench::rows::{Rows, Unit};
use extant_testkit::{Cmd, Mount, Result, Rng, ensure};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The cases, in the order they run in.
pub(super) const CASES: &[(&str, Unit)] = &[
    ("create/10k", Unit::Milliseconds),
    ("stat/10k", Unit::Milliseconds),
    ("open-read-close/10k", Unit::Milliseconds),
    ("unlink/10k", Unit::Milliseconds),
    ("untar", Unit::Milliseconds),
    ("walk+read/warm", Unit::Milliseconds),
    ("walk+read/remounted", Unit::Milliseconds),
    ("rm -r", Unit::Milliseconds),
    ("overwrite/1K", Unit::Nanoseconds),
    ("stream/write/1M", Unit::MibPerSecond),
    ("stream/write+fsync/1M", Unit::MibPerSecond),
    ("stream/read/1M", Unit::MibPerSecond),
    ("unmount", Unit::Milliseconds),
];

/// Runs every case once on a fresh file system of `variant`.
pub(super) fn all(variant: Variant, source: &Source, quick: bool, rows: &mut Rows) -> Result<()> {
    let mut add = |case: &str, sample: f64| -> Result<()> {
        let unit = CASES.iter().find(|(c, _)| *c == case).map(|(_, u)| *u);
        ensure!(unit.is_some(), "no case {case}");
        rows.add(
            case,
            unit.unwrap_or(Unit::Milliseconds),
            variant.name(),
            sample,
        );
        Ok(())
    };
    let fresh = variant.fresh(3072)?;
    let mount = fresh.mount()?;

    let scale = if quick { 4 } else { 1 };
    let many = 10_000 / scale;
    // A quick run does a quarter of the work and states it for the whole.
    let per_10k = f64::from(scale);
    let dir = mount.join("many");
    fs::create_dir(&dir)?;
    add("create/10k", per_10k * ms(|| create(&dir, many))?)?;
    add("stat/10k", per_10k * ms(|| stat(&dir, many))?)?;
    add(
        "open-read-close/10k",
        per_10k * ms(|| read_small(&dir, many))?,
    )?;
    add("unlink/10k", per_10k * ms(|| unlink(&dir, many))?)?;

    let limit = Duration::from_secs(600);
    let untar = Cmd::new("tar")
        .arg("-xf")
        .arg(source.archive())
        .arg("-C")
        .arg(mount.dir())
        .limit(limit);
    add("untar", ms(|| untar.ok())?)?;
    add("walk+read/warm", ms(|| walk(mount.dir(), source.files))?)?;
    let mount = remount(&fresh, mount)?;
    add(
        "walk+read/remounted",
        ms(|| walk(mount.dir(), source.files))?,
    )?;
    let rm = Cmd::new("rm")
        .arg("-r")
        .arg(mount.join("tree"))
        .limit(limit);
    add("rm -r", ms(|| rm.ok())?)?;

    add(
        "overwrite/1K",
        overwrite(&mount.join("small"), 40_000 / u64::from(scale))?,
    )?;
    let mib = if quick { 128 } else { 512 };
    let (buffered, synced) = stream_write(&mount.join("stream"), mib)?;
    add("stream/write/1M", buffered)?;
    add("stream/write+fsync/1M", synced)?;
    let mount = remount(&fresh, mount)?;
    add("stream/read/1M", stream_read(&mount.join("stream"), mib)?)?;
    create(&mount.join("many"), 1000)?;
    let start = Instant::now();
    mount.unmount()?;
    add("unmount", start.elapsed().as_secs_f64() * 1e3)?;
    fresh.check()
}

fn remount(fresh: &super::variant::Fresh, mount: Mount) -> Result<Mount> {
    mount.unmount()?;
    fresh.mount()
}

fn ms<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn small(dir: &Path, i: u32) -> std::path::PathBuf {
    dir.join(format!("file{i}"))
}

fn create(dir: &Path, n: u32) -> Result<()> {
    for i in 0..n {
        File::create(small(dir, i))?.write_all(&[b'x'; 100])?;
    }
    Ok(())
}

fn stat(dir: &Path, n: u32) -> Result<()> {
    for i in 0..n {
        ensure!(
            fs::symlink_metadata(small(dir, i))?.len() == 100,
            "file{i} has another size"
        );
    }
    Ok(())
}

fn read_small(dir: &Path, n: u32) -> Result<()> {
    let mut bytes = Vec::new();
    for i in 0..n {
        bytes.clear();
        File::open(small(dir, i))?.read_to_end(&mut bytes)?;
        ensure!(bytes == [b'x'; 100], "file{i} has another content");
    }
    Ok(())
}

fn unlink(dir: &Path, n: u32) -> Result<()> {
    (0..n).try_for_each(|i| Ok(fs::remove_file(small(dir, i))?))
}

/// Every entry, every byte.
fn walk(root: &Path, at_least: usize) -> Result<()> {
    let mut todo = vec![root.to_path_buf()];
    let mut files = 0;
    let mut buf = vec![0; 1 << 17];
    while let Some(dir) = todo.pop() {
        for e in fs::read_dir(dir)? {
            let e = e?;
            let meta = e.metadata()?;
            if meta.is_dir() {
                todo.push(e.path());
            } else if meta.is_file() {
                let mut f = File::open(e.path())?;
                while f.read(&mut buf)? > 0 {}
                files += 1;
            }
        }
    }
    ensure!(files >= at_least, "{files} files found of {at_least}");
    Ok(())
}

/// Nanoseconds per 1 KiB overwrite of a cached 10 MiB file, anywhere in it.
fn overwrite(path: &Path, calls: u64) -> Result<f64> {
    let f = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let chunk = vec![1u8; MIB];
    for i in 0..10u64 {
        f.write_all_at(&chunk, i * MIB as u64)?;
    }
    f.sync_all()?;
    let mut rng = Rng::new(5);
    let places: Vec<u64> = (0..calls).map(|_| rng.below(10 * 1024) * 1024).collect();
    let data = [7u8; 1024];
    let start = Instant::now();
    for at in places {
        f.write_all_at(&data, at)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / calls as f64)
}

/// MiB/s of writing a new file, and of writing it and fsync.
fn stream_write(path: &Path, mib: u32) -> Result<(f64, f64)> {
    let mut f = File::create(path)?;
    let chunk = vec![3u8; MIB];
    let start = Instant::now();
    for _ in 0..mib {
        f.write_all(&chunk)?;
    }
    let written = start.elapsed().as_secs_f64();
    f.sync_all()?;
    Ok((
        f64::from(mib) / written,
        f64::from(mib) / start.elapsed().as_secs_f64(),
    ))
}

fn stream_read(path: &Path, mib: u32) -> Result<f64> {
    let mut f = File::open(path)?;
    let mut buf = vec![0u8; MIB];
    let start = Instant::now();
    for _ in 0..mib {
        f.read_exact(&mut buf)?;
    }
    Ok(f64::from(mib) / start.elapsed().as_secs_f64())
}
