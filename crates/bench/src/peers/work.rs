//! The work itself: what is done, and what exactly is timed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use extant_host::{Cmd, Result, Rng, ensure};

use super::source::Source;
use crate::plan::{Plan, Size};
use crate::rows::{Rows, Unit};
use crate::target::Host;
use crate::variant::Variant;

const MIB: usize = 1 << 20;
/// The longest that a program of the host may take.
const LIMIT: Duration = Duration::from_secs(600);

/// The cases, in the order they run in. Nanoseconds are those of one file or call.
pub(super) const CASES: &[(&str, Unit)] = &[
    ("create", Unit::Nanoseconds),
    ("stat", Unit::Nanoseconds),
    ("open-read-close", Unit::Nanoseconds),
    ("unlink", Unit::Nanoseconds),
    ("untar", Unit::Nanoseconds),
    ("walk+read/warm", Unit::Nanoseconds),
    ("walk+read/remounted", Unit::Nanoseconds),
    ("rm -r", Unit::Nanoseconds),
    ("overwrite/1K", Unit::Nanoseconds),
    ("stream/write/1M", Unit::MibPerSecond),
    ("stream/write+fsync/1M", Unit::MibPerSecond),
    ("stream/read/1M", Unit::MibPerSecond),
    ("unmount", Unit::Milliseconds),
];

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// Files of one directory.
    files: u32,
    /// Files of the tree.
    pub(super) tree: u32,
    /// Overwrites.
    calls: u32,
    /// MiB of a stream.
    mib: u32,
}

impl Amount {
    /// Returns the amount of work that a plan has time for.
    pub(super) fn of(plan: &Plan) -> Amount {
        let amount = |files, tree, calls, mib| Amount {
            files,
            tree,
            calls,
            mib,
        };
        match plan.size {
            Size::Tiny => amount(40, 60, 100, 4),
            Size::Quick => amount(2_500, 2_000, 10_000, 128),
            Size::Usual | Size::Full => amount(10_000, 8_900, 40_000, 512),
        }
    }
}

/// Receiver of the figures of a round.
struct Round<'a> {
    plan: &'a Plan,
    variant: &'static str,
    rows: &'a mut Rows,
}

impl Round<'_> {
    fn add(&mut self, case: &str, figure: f64) -> Result<()> {
        let unit = CASES.iter().find(|(c, _)| *c == case).map(|(_, u)| *u);
        ensure!(unit.is_some(), "no case {case}");
        if let Some(unit) = unit.filter(|_| self.plan.wants(case)) {
            self.rows.add(case, unit, self.variant, figure);
        }
        Ok(())
    }

    /// Adds the nanoseconds of each of `count` things that `work` does.
    fn each(&mut self, case: &str, count: u32, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        work()?;
        self.add(case, start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
    }
}

/// Runs every case once on a fresh file system of `variant`.
pub(super) fn all(variant: &Variant, source: &Source, plan: &Plan, rows: &mut Rows) -> Result<()> {
    let amount = Amount::of(plan);
    let mut round = Round {
        plan,
        variant: variant.name,
        rows,
    };
    let mut host = Host::over(variant.fresh(plan, 3072)?)?;
    small_files(&mut round, &host.mount().join("many"), amount.files)?;
    host = tree(&mut round, host, source)?;
    let small = overwrite(&host.mount().join("small"), amount.calls)?;
    round.add("overwrite/1K", small)?;
    let (buffered, synced) = stream_write(&host.mount().join("stream"), amount.mib)?;
    round.add("stream/write/1M", buffered)?;
    round.add("stream/write+fsync/1M", synced)?;
    host = host.remount()?;
    let read = stream_read(&host.mount().join("stream"), amount.mib)?;
    round.add("stream/read/1M", read)?;
    create(&host.mount().join("many"), amount.files / 10)?;
    let start = Instant::now();
    let fresh = host.unmount()?;
    round.add("unmount", start.elapsed().as_secs_f64() * 1e3)?;
    fresh.check()
}

fn small_files(round: &mut Round<'_>, dir: &Path, files: u32) -> Result<()> {
    fs::create_dir(dir)?;
    round.each("create", files, || create(dir, files))?;
    round.each("stat", files, || stat(dir, files))?;
    round.each("open-read-close", files, || read_small(dir, files))?;
    round.each("unlink", files, || unlink(dir, files))
}

/// Unpacks an archive, walks over it and removes it; returns the mount that it ends with.
fn tree(round: &mut Round<'_>, host: Host, source: &Source) -> Result<Host> {
    let untar = Cmd::new("tar")
        .arg("-xf")
        .arg(source.archive())
        .arg("-C")
        .arg(host.mount().dir())
        .limit(LIMIT);
    round.each("untar", source.files, || untar.ok().map(drop))?;
    let walk = |host: &Host| walk(host.mount().dir(), source.files);
    round.each("walk+read/warm", source.files, || walk(&host))?;
    let host = host.remount()?;
    round.each("walk+read/remounted", source.files, || walk(&host))?;
    let rm = Cmd::new("rm")
        .arg("-r")
        .arg(host.mount().join("tree"))
        .limit(LIMIT);
    round.each("rm -r", source.files, || rm.ok().map(drop))?;
    Ok(host)
}

fn small(dir: &Path, i: u32) -> std::path::PathBuf {
    dir.join(format!("file{i}"))
}

pub(super) fn create(dir: &Path, n: u32) -> Result<()> {
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

pub(super) fn unlink(dir: &Path, n: u32) -> Result<()> {
    (0..n).try_for_each(|i| Ok(fs::remove_file(small(dir, i))?))
}

/// Every entry, every byte.
fn walk(root: &Path, at_least: u32) -> Result<()> {
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
fn overwrite(path: &Path, calls: u32) -> Result<f64> {
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
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls))
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
