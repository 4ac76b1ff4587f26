//! Recovery: writing the copies in a log to their home locations, after a crash or on a device that
//! was copied in use.
//!
//! # Responsibility
//! 1. SCAN walks the log from its tail and collects the copies and revoke blocks of the complete
//!    transactions (`scan.rs`).
//! 2. REVOKE voids copies that a later transaction revoked, and retains of each block only the last
//!    copy (`last_copies.rs`).
//! 3. Everything is checked before anything is written: targets, checksums of all copies to be
//!    used, fast commits.
//! 4. REPLAY writes the copies to their home locations (`replay.rs`).
//! 5. One durable write marks the log empty. It never reaches the device before the copies do. If
//!    fast commits follow the transactions, it says instead that the log holds nothing but these
//!    (`fast_commits.rs`): the file system applies them, and its next transaction replaces them.
//!
//! # Invariants
//! - J29: a crash at any point before step 5 leaves the log as it was, and the next recovery does
//!   the same again.
//! - J28: a revoked copy is never replayed.
//! - The log comes from an untrusted image. Every loop is bounded by the length of the log, which
//!   is bounded by the device. Memory is bounded by the number of copies: of the revoke records,
//!   only those of logged blocks are stored. The number of copies has a limit of its own, because
//!   the log of a sparse image can have far more blocks than the image has bytes. A copy may go
//!   anywhere on the file system except into the log itself.
//! - A copy of zeros is not written where the device has zeros already. So the copies of a sparse
//!   log, whose holes are such copies, do not make the image grow.
//! - The number of the first transaction that was not found is left unused. A block of it that
//!   reached the log is thus never taken for a part of a later transaction. The one exception is
//!   the transaction that replaces fast commits, which must have their number. There the first
//!   block of the log is its first, so whatever else has the number lies behind it or is
//!   overwritten; and none of that is a commit record, as the first transaction that was not found
//!   has none.
//!
//! # Errors
//! A copy with a wrong checksum is skipped and reported ([`Recovery::skipped`]), as Linux and
//! e2fsck do. All others are written, and of the block itself the copy before, if the log has one.
//! The log is not marked empty then, so that a repair finds it as it was. After damage to a
//! descriptor, a revoke or a commit block, no copy can be relied on, and nothing is written.

mod fast_commits;
mod last_copies;
mod reader;
mod replace;
mod replay;
mod scan;

use extant_blockdev::{BlockDevice, memory_share};
use extant_disk::jbd2::superblock::{Incompat, JournalSuperblock};
use extant_units::{BlockSize, Blocks};

use crate::error::JournalError;
use crate::log_map::LogMap;
use crate::log_superblock;
pub use extant_disk::damage::{SkippedCopies, SkippedCopy};
pub use fast_commits::FastCommits;
use last_copies::LastCopies;
use reader::LogReader;
pub use replace::replace_fast_commits;

/// The result of a recovery.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The log was empty, so that nothing was done.
    pub was_clean: bool,
    /// Complete transactions that the log held.
    pub transactions: u64,
    /// Blocks written to their home locations.
    pub replayed: u64,
    /// Blocks whose last copy in the log was revoked, and which were not written.
    pub revoked: u64,
    /// Blocks whose last copy in the log has a wrong checksum, so that they may be older than they
    /// should be. If there are any, the file system is damaged and the log is not marked empty.
    pub skipped: u64,
    /// The first of them, in the order of the blocks.
    pub first_skipped: Option<SkippedCopy>,
    /// The errno that an earlier mount recorded in the log (`s_errno`), zero for none.
    pub errno: i32,
}

impl Recovery {
    /// The copies that were skipped, if there were any.
    pub fn skipped_copies(&self) -> Option<SkippedCopies> {
        let first = self.first_skipped?;
        let more = self.skipped.saturating_sub(1);
        Some(SkippedCopies { first, more })
    }
}

/// Reads and checks a journal's superblock: whether its log is empty ([`JournalSuperblock::start`]
/// is zero), which features it uses, which error it recorded.
///
/// # Errors
/// It is damaged or uses unknown features, or the device failed.
pub fn inspect(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
) -> Result<JournalSuperblock, JournalError> {
    log_superblock::read(dev, bs, log)
}

/// [`recover_within`] the share of memory that [`memory_share`] returns.
///
/// # Errors
/// See [`recover_within`].
pub fn recover(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
) -> Result<Recovery, JournalError> {
    recover_within(dev, bs, log, device_blocks, memory_share())
}

/// Replays a log that is not empty onto the file system on the same device, and marks the log empty
/// unless copies had to be skipped. Copies may belong to any of the file system's `device_blocks`
/// blocks. The writes do not go through a [`crate::BlockCache`]: make the cache afterwards. The
/// list of copies takes at most `memory` bytes.
///
/// # Errors
/// The log is damaged (except for copies: see [`Recovery::skipped`]), unsupported, holds fast
/// commits or more copies than fit `memory`; or the device failed or is read-only. Nothing was
/// written unless the device failed while the copies were being written; then the log is unchanged.
pub fn recover_within(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
    memory: u64,
) -> Result<Recovery, JournalError> {
    let within = Within {
        bs,
        device_blocks,
        memory,
    };
    let (recovery, fast) = recover_log(dev, log, within, false)?;
    debug_assert_eq!(fast, None, "refused before anything was written");
    Ok(recovery)
}

/// As [`recover_within`], for a file system that applies fast commits. If the log holds some, they
/// are returned, and the log is not marked empty: it holds no transaction any more, and still the
/// fast commits. [`replace_fast_commits`] then puts a transaction in their place.
///
/// # Errors
/// As [`recover_within`], but for fast commits.
pub fn recover_to_fast_commits(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
    memory: u64,
) -> Result<(Recovery, Option<FastCommits>), JournalError> {
    let within = Within {
        bs,
        device_blocks,
        memory,
    };
    recover_log(dev, log, within, true)
}

/// The number of transactions and fast commits that a log holds, if it holds fast commits. Writes
/// nothing; takes at most `memory` bytes for each list.
///
/// # Errors
/// As [`recover_to_fast_commits`].
pub fn count_with_fast_commits(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    memory: u64,
) -> Result<Option<u64>, JournalError> {
    let superblock = log_superblock::read(dev, bs, log)?;
    if superblock.start() == 0 || !superblock.incompat().contains(Incompat::FAST_COMMIT) {
        return Ok(None);
    }
    let reader = LogReader::new(dev, bs, log, &superblock);
    let scan = scan::scan(&reader, &superblock, memory)?;
    let fast = FastCommits::read(&reader, &superblock, scan.next, memory)?;
    Ok(fast.map(|fast| scan.transactions + fast.records.len() as u64))
}

/// The bounds of a recovery.
#[derive(Clone, Copy)]
struct Within {
    bs: BlockSize,
    device_blocks: Blocks,
    memory: u64,
}

fn recover_log(
    dev: &dyn BlockDevice,
    log: &LogMap,
    within: Within,
    takes_fast_commits: bool,
) -> Result<(Recovery, Option<FastCommits>), JournalError> {
    let Within {
        bs,
        device_blocks,
        memory,
    } = within;
    let mut superblock = log_superblock::read(dev, bs, log)?;
    let errno = superblock.errno();
    if superblock.start() == 0 {
        let recovery = Recovery {
            was_clean: true,
            errno,
            ..Recovery::default()
        };
        return Ok((recovery, None));
    }
    if dev.is_read_only() || log.device(dev).is_read_only() {
        return Err(JournalError::ReadOnly);
    }
    let reader = LogReader::new(dev, bs, log, &superblock);
    let scan = scan::scan(&reader, &superblock, memory)?;
    scan.check_targets(log, device_blocks)?;
    let fast = FastCommits::read(&reader, &superblock, scan.next, memory)?;
    if fast.is_some() && !takes_fast_commits {
        return Err(JournalError::Unsupported(
            "replaying fast commits (fast_commit) here; a mount does".into(),
        ));
    }
    let mut last = LastCopies::choose(&reader, &scan)?;
    let (skipped, first_skipped) = replay::skip_damaged(&reader, &scan, &mut last)?;
    replay::write_copies(&reader, &last.copies)?;
    if skipped == 0 {
        let (start, next) = match &fast {
            None => (0, scan.next.next()),
            // The fast commits are of the transaction that comes next.
            Some(_) => (superblock.first(), scan.next),
        };
        if log.is_external() {
            // The barrier of the log's device does not cover the blocks.
            dev.flush()
                .map_err(JournalError::io("flushing the replayed blocks"))?;
        }
        superblock.set_tail(start, next.get());
        superblock.set_head(superblock.first());
        log_superblock::write(dev, bs, log, &superblock, true)?;
    } else {
        dev.flush()
            .map_err(JournalError::io("flushing the replayed blocks"))?;
    }
    let recovery = Recovery {
        was_clean: false,
        transactions: scan.transactions,
        replayed: last.copies.len() as u64,
        revoked: last.revoked,
        skipped,
        first_skipped,
        errno,
    };
    tracing::info!(
        ?recovery,
        fast_commits = fast.is_some(),
        "journal recovered"
    );
    Ok((recovery, fast))
}
