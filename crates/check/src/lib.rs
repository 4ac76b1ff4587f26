//! `check`: read-only verification of a whole file system, at e2fsck's depth.
//!
//! The checker stands beside the engine, not on it: it reads the device through the structures of
//! `extant-disk` alone, so that it shares no cache, no allocator and no assumption with the code that wrote
//! the image. A dirty journal is replayed into memory first; nothing is ever written to the device.
//!
//! Passes, each parallel over groups or directories:
//!
//! 1. [`inodes`]: every inode in the tables, its checksum, its map ([`maps`]), its attributes ([`attrs`]); every block is
//!    claimed once ([`usage`]).
//! 2. [`dirs`]: every directory block, htree order, names, what entries lead to.
//! 3. [`links`]: connectivity and link counts.
//! 4. [`groups`]: bitmaps, descriptors and totals against what was found; copies of both
//!    ([`copies`]).
//!
//! [`superblock`], [`journal`] and [`special`] (orphans) come before all that. Memory is bounded by a bit per block in groups that are
//! used and a few dozen bytes per inode in use; time by the size of the tables and of what is claimed, since no
//! block is walked twice.
#![forbid(unsafe_code)]

mod attrs;
mod copies;
mod dirs;
mod error;
mod fields;
mod groups;
mod inodes;
mod journal;
mod links;
mod maps;
mod mmp;
mod report;
mod reserved;
mod role;
mod special;
mod superblock;
mod usage;
mod volume;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenMode, memory_share};

pub use error::{Error, Result};
use report::Findings;
pub use report::{Finding, Report};
use volume::Volume;

/// How to check.
#[derive(Clone, Copy)]
pub struct CheckOptions<'a> {
    /// Threads to use; at least one.
    pub threads: usize,
    /// Stop collecting after this many findings (the count goes on).
    pub max_findings: usize,
    /// The most memory that a replay of the journal may take in bytes; `None` takes a quarter of
    /// the host's.
    pub replay_bytes: Option<u64>,
    /// Called now and then with the work done and the work in all, in no unit.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

impl Default for CheckOptions<'_> {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(8),
            max_findings: 10_000,
            replay_bytes: None,
            progress: None,
        }
    }
}

/// Checks the image file or block device at `path`, which no other process may write meanwhile. See
/// [`check`].
///
/// # Errors
/// [`Error::Open`] if another process uses it or it cannot be opened; else as [`check`].
pub fn check_image(path: impl AsRef<Path>, options: &CheckOptions<'_>) -> Result<Report> {
    let path = path.as_ref();
    let device = FileDevice::open_with(path, OpenMode::ReadOnly, FileIo::SYSCALLS)?;
    if let Some(used) = device.loops().iter().find(|used| !used.read_only) {
        let (image, device) = (path.display(), used.device.display());
        tracing::warn!(
            "{image}: in use by Linux, through the loop device {device}: what is seen may be out of date"
        );
    }
    check(Arc::new(device), options)
}

/// Checks the file system on `dev` without writing to it.
///
/// # Errors
/// No findings, but a reason why none can be given: not an ext4 file system, a feature that the checker does not
/// know, a device that fails. Damage is a finding, not an error, unless the superblock or the descriptors are
/// so damaged that nothing can be found at all.
pub fn check(dev: Arc<dyn BlockDevice>, options: &CheckOptions<'_>) -> Result<Report> {
    let findings = Findings::new(options.max_findings);
    let memory = options.replay_bytes.unwrap_or_else(memory_share);
    let volume = Volume::open(dev, memory, &findings)?;
    journal::check(&volume, &findings)?;
    let orphans = special::orphans(&volume, &findings)?;
    let work = Work::new(options, volume.group_count());
    let scan = inodes::scan(&volume, &orphans, &findings, &work)?;
    let tree = dirs::walk(&volume, &scan, &findings, &work)?;
    links::compare(&volume, &scan, &tree, &orphans, &findings);
    groups::compare(&volume, &scan, &findings, &work)?;
    Ok(findings.into_report(&volume, &scan))
}

/// Spreads numbered pieces of work over threads and reports progress.
struct Work<'a> {
    options: &'a CheckOptions<'a>,
    done: AtomicU64,
    total: AtomicU64,
}

impl<'a> Work<'a> {
    fn new(options: &'a CheckOptions<'a>, groups: u32) -> Self {
        Self {
            options,
            done: AtomicU64::new(0),
            // Tables and bitmaps, a step per group each. Directories join when they are known.
            total: AtomicU64::new(u64::from(groups) * 2),
        }
    }

    fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(progress) = self.options.progress {
            progress(done, self.total.load(Ordering::Relaxed));
        }
    }

    /// Runs `piece` for each number below `count`, on several threads, and returns the results in order.
    ///
    /// # Errors
    /// The first error of a piece; the others may have run.
    fn spread<T: Send>(
        &self,
        count: usize,
        piece: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let next = AtomicU64::new(0);
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let at =
                    usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                if at >= count {
                    return mine;
                }
                let result = piece(at);
                self.step();
                let failed = result.is_err();
                mine.push((at, result));
                if failed {
                    next.store(u64::MAX / 2, Ordering::Relaxed);
                    return mine;
                }
            }
        };
        let mut all = std::thread::scope(|scope| {
            let threads = self.options.threads.clamp(1, count.max(1));
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let joined = handles.into_iter().map(|handle| {
                let panicked = |_| vec![(0, Err(Error::Panicked))];
                handle.join().unwrap_or_else(panicked)
            });
            joined.flatten().collect::<Vec<_>>()
        });
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, result)| result).collect()
    }
}
