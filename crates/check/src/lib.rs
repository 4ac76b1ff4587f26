//! Read-only verification of a whole file system, at e2fsck's depth.
//!
//! # Responsibility
//!
//! The check judges what the engine wrote, so it stands beside the engine, not on it: it reads the
//! device through the structures of `extant-disk` and shares no cache, no allocator and no
//! assumption with the code that wrote the image. Where both read the same structure (geometry,
//! maps, directories, orphans) there are two codes for one fact, on purpose: a mistake in one of
//! them is a difference that tests and users see.
//!
//! A journal that holds transactions is replayed into memory first, by `extant-jbd2`'s recovery
//! over a private copy. The device is never written.
//!
//! Passes, each parallel over groups or directories:
//!
//! 1. `inodes`: every inode in the tables, its checksum, its map (`maps`) and its attributes
//!    (`attrs`); every block is claimed once (`usage`).
//! 2. `dirs`: every directory block, the order of indexes, names, the inode of each entry.
//! 3. `links`: connectivity and link counts.
//! 4. `groups`: bitmaps, descriptors and totals against the outcome of the passes before; copies
//!    of superblock and descriptors (`copies`).
//! 5. `quotas`: usage of each user, group and project, counted in pass 1.
//!
//! `superblock`, `journal` and `orphans` come before all passes. `remedy` is what a finding means
//! for a repair, which is another crate's.
//!
//! # Invariants
//!
//! - Memory: a bit per block in groups that are used in part, a dozen bytes per inode in use, some
//!   dozen per directory, attribute block, group, and id that quotas count, eight per name of a
//!   directory that is read; of a damaged file of quotas, its entries with limits.
//! - The report is the same whatever the number of threads. What depends on their order is checked
//!   again by one thread: blocks with two owners, and findings past the limit.
//! - Time: the size of the tables and of the claimed blocks, because no block is walked twice.
//! - No image makes the check panic: `extant-fuzz` and the mutants of `check_agreement` try.
//!
//! # Concurrency
//!
//! The threads of a pass share the volume, which does not change, and three structures with locks
//! of their own: findings, block usage and attribute blocks. No thread holds two of these locks.
#![forbid(unsafe_code)]

mod attrs;
mod bad_blocks;
mod contexts;
mod copies;
mod dirs;
mod error;
mod external_journal;
mod facts;
mod feature_gate;
mod fields;
mod findings;
mod groups;
mod inodes;
mod journal;
mod links;
mod maps;
mod mmp;
mod open;
mod options;
mod orphans;
mod quotas;
mod remedy;
mod report;
mod reserved;
mod role;
mod superblock;
mod superblock_copy;
mod symlinks;
mod usage;
mod values;
mod volume;
mod work;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenMode, memory_share};
use extant_units::Ino;

pub use error::{Error, Result};
pub use extant_disk::damage;
pub use external_journal::{external_log, external_log_copy};
pub use feature_gate::{require_repaired_features, require_written_features};
pub use findings::Finding;
use findings::Findings;
use inodes::Scan;
pub use journal::find_log;
pub use options::CheckOptions;
pub use remedy::{DirPlace, Doubt, GroupCounts, QuotaContent, Remedy, Repair};
pub use report::Report;
pub use superblock_copy::{find_superblock_copy, superblock_from_copy, with_superblock_copy};
use volume::Volume;
use work::Work;

/// Checks the image file or block device at `path`, which no other process may write meanwhile. See
/// [`check`].
///
/// # Errors
/// [`Error::Open`] if another process uses it or it cannot be opened; else as [`check`].
pub fn check_image(path: impl AsRef<Path>, options: &CheckOptions<'_>) -> Result<Report> {
    check(open_image(path)?, options)
}

/// Opens the image file or block device at `path` for a check.
///
/// # Errors
/// [`Error::Open`].
pub fn open_image(path: impl AsRef<Path>) -> Result<Arc<dyn BlockDevice>> {
    let path = path.as_ref();
    let device = FileDevice::open_with(path, OpenMode::ReadOnly, FileIo::SYSCALLS)?;
    if let Some(used) = device.loops().iter().find(|used| !used.read_only) {
        tracing::warn!(
            "{}: in use by Linux, through the loop device {}: the report may be out of date",
            path.display(),
            used.device.display()
        );
    }
    Ok(Arc::new(device))
}

/// Checks the file system on `dev` without writing to it.
///
/// # Errors
/// The reason why no report can be given: not an ext4 file system, a feature that the check does
/// not know, a device that fails. Damage is a finding, not an error, unless the superblock or the
/// descriptors are damaged so far that nothing can be found with them.
pub fn check(dev: Arc<dyn BlockDevice>, options: &CheckOptions<'_>) -> Result<Report> {
    let findings = Findings::new(options.max_findings);
    let memory = options.replay_bytes.unwrap_or_else(memory_share);
    let opened = open::open(dev, options.journal, memory, &findings)?;
    let volume = &opened.volume;
    journal::check(volume, &findings)?;
    let orphans = orphans::read(volume, &findings)?;
    let begin = findings.mark();
    let run = |threads: usize| {
        findings.rewind(begin);
        let work = Work::new(options, threads, volume.group_count());
        passes(volume, &orphans, &findings, &work)
    };
    let scan = match run(options.threads) {
        Ok((scan, Order::Any)) => scan,
        Err(error) if options.threads <= 1 || matches!(error, Error::Device(_)) => {
            return Err(error);
        }
        Ok((_, Order::Decides)) | Err(_) => run(1)?.0,
    };
    let orphans = orphans.len() as u64;
    Ok(Report::new(&opened, &scan, orphans, findings))
}

/// Role of the order in which several threads came.
enum Order {
    Any,
    /// A block has two owners, of which one is blamed, or there are more findings than are kept.
    Decides,
}

/// All passes; where the order decides, perhaps not to their end.
fn passes(
    volume: &Volume,
    orphans: &BTreeSet<Ino>,
    findings: &Findings,
    work: &Work<'_>,
) -> Result<(Scan, Order)> {
    let decides =
        |scan: &Scan| !work.is_sequential() && (scan.usage.is_contested() || findings.overflows());
    let mut scan = inodes::scan(volume, orphans, findings, work)?;
    if decides(&scan) {
        return Ok((scan, Order::Decides));
    }
    let tree = dirs::walk(volume, &scan, findings, work)?;
    links::compare(volume, &scan, &tree, orphans, findings);
    groups::compare(volume, &scan, findings, work)?;
    let charges = scan.take_charges();
    let has_name = |ino| {
        let facts = scan.facts_of(ino);
        facts.is_some_and(|facts| facts.references() > 0)
    };
    quotas::compare(volume, charges, has_name, findings)?;
    let order = match decides(&scan) {
        true => Order::Decides,
        false => Order::Any,
    };
    Ok((scan, order))
}
