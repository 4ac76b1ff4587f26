//! Recovery: bringing home what a log holds, after a crash or from a device that was copied in use.
//!
//! # Steps
//! SCAN walks the log from its tail and collects the complete transactions' copies and revoke blocks
//! (`scan.rs`). REVOKE voids copies that a later transaction revoked, and of each block only the last copy is
//! kept. Everything is checked before anything is written: targets, checksums of all copies to be used, fast
//! commits. REPLAY writes the copies home (`replay.rs`). Then one durable write marks the log empty; it never
//! reaches the device before the copies do. A crash at any point before that leaves the log as it was, and
//! the same recovery again: replaying twice is replaying once.
//!
//! # Damaged copies
//! A copy with a wrong checksum is skipped and reported ([`Recovery::skipped`]), as Linux and e2fsck do; all others go home, and
//! of the block itself the copy before, if the log has one. The log
//! is not marked empty then: whoever repairs the file system finds it as it was. Damage to what holds the log together (a
//! descriptor, a revoke or a commit block) says nothing reliable about any block: then nothing is written.
//!
//! # Untrusted logs
//! Every loop is bounded by the length of the log, which is bounded by the device. Memory is bounded by the
//! number of copies, not of revoke records: only revokes of logged blocks are kept. The number of
//! copies has a limit of its own: the log of a sparse image can have far more blocks than the image
//! has bytes. A copy may go anywhere on the file system but into the log itself.
//!
//! A copy of zeros is not written where zeros are already. So the copies of a sparse log, whose
//! holes are such copies, do not make the image grow: what is written home was bytes of the log,
//! each of its blocks once.
//!
//! # Sequence numbers
//! The number of the first transaction that was not found is left unused: a copy of it that reached the log
//! incompletely can never be mistaken for a later one.

mod replay;
mod scan;

use std::collections::HashMap;
use std::fmt;

use extant_blockdev::{BlockDevice, memory_share};
use extant_disk::jbd2::Format;
use extant_disk::jbd2::fast_commit::{FastCommitScan, FastCommitVerdict};
use extant_disk::jbd2::superblock::{Incompat, JournalSuperblock};
use extant_units::{BlockSize, Blocks, Pblk, Tid};

use crate::error::JournalError;
use crate::hash::BlockHash;
use crate::log::{read_superblock, write_superblock};
use crate::log_index::Ring;
use crate::log_map::LogMap;
use scan::{LoggedCopy, Scan};

/// What a recovery found and did.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the log was empty, so that nothing was done.
    pub was_clean: bool,
    /// Complete transactions that the log held.
    pub transactions: u64,
    /// Blocks written home.
    pub replayed: u64,
    /// Blocks whose last copy in the log was revoked, and which were left alone.
    pub revoked: u64,
    /// Blocks that may be older than they should be, because the last copy of them in the log has a wrong checksum. If
    /// there are any, the file system is damaged and the log is not empty.
    pub skipped: u64,
    /// The first of them, in the order of the blocks.
    pub first_skipped: Option<SkippedCopy>,
    /// The error number an earlier user of the journal left in it (`s_errno`), zero for none.
    pub errno: i32,
}

impl Recovery {
    /// Says what was skipped, if anything was.
    pub fn skipped_text(&self) -> Option<String> {
        let first = self.first_skipped?;
        Some(match self.skipped {
            0 | 1 => first.to_string(),
            all => format!("{first} (and {} more such copies)", all - 1),
        })
    }
}

/// A copy in the log that was not written home, because its checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedCopy {
    /// The block it is a copy of.
    pub block: Pblk,
    /// Its transaction.
    pub tid: Tid,
    /// Its block of the log.
    pub log_block: u32,
}

impl fmt::Display for SkippedCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            tid,
            log_block,
        } = self;
        write!(
            f,
            "transaction {tid}, log block {log_block}: wrong checksum of the copy of block {block}"
        )
    }
}

/// Reads and checks a journal's superblock: whether its log is empty ([`JournalSuperblock::start`] is zero),
/// which features it uses, what error it recorded.
///
/// # Errors
/// It is damaged or uses unknown features, or the device failed.
pub fn inspect(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
) -> Result<JournalSuperblock, JournalError> {
    read_superblock(dev, bs, log)
}

/// [`recover_within`] the share of memory that [`memory_share`] gives.
///
/// # Errors
/// As there.
pub fn recover(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
) -> Result<Recovery, JournalError> {
    recover_within(dev, bs, log, device_blocks, memory_share())
}

/// Replays a log that is not empty onto the file system on the same device and marks it empty, unless copies had to be
/// skipped. Copies may belong to any of the file system's `device_blocks` blocks. This goes past any
/// [`crate::BlockCache`]: make the cache afterwards. The list of copies takes at most `memory`
/// bytes.
///
/// # Errors
/// The log is damaged (but for copies: see [`Recovery::skipped`]), unsupported, holds fast commits
/// or more copies than fit `memory`, the device failed or is read-only. Nothing was written unless
/// the device failed while the copies were being written; then the log is still there.
pub fn recover_within(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    log: &LogMap,
    device_blocks: Blocks,
    memory: u64,
) -> Result<Recovery, JournalError> {
    let mut superblock = read_superblock(dev, bs, log)?;
    let errno = superblock.errno();
    if superblock.start() == 0 {
        return Ok(Recovery {
            was_clean: true,
            errno,
            ..Recovery::default()
        });
    }
    if dev.is_read_only() {
        return Err(JournalError::ReadOnly);
    }
    let reader = LogReader {
        dev,
        bs,
        map: log,
        format: superblock.format(),
        ring: Ring {
            first: superblock.first(),
            end: superblock.end(),
        },
    };
    let scan = scan::scan(&reader, &superblock, memory)?;
    scan.check_targets(log, device_blocks)?;
    check_fast_commits(&reader, &superblock, scan.next)?;
    let mut last = last_copies(&reader, &scan)?;
    let (skipped, first_skipped) = replay::skip_damaged(&reader, &scan, &mut last)?;
    let LastCopies {
        copies, revoked, ..
    } = last;
    replay::write_home(&reader, &copies)?;
    if skipped == 0 {
        superblock.set_tail(0, scan.next.next().get());
        superblock.set_head(superblock.first());
        write_superblock(dev, bs, log, &superblock, true)?;
    } else {
        dev.flush()
            .map_err(JournalError::io("flushing what was replayed"))?;
    }
    let recovery = Recovery {
        was_clean: false,
        transactions: scan.transactions,
        replayed: copies.len() as u64,
        revoked,
        skipped,
        first_skipped,
        errno,
    };
    tracing::info!(?recovery, "journal recovered");
    Ok(recovery)
}

/// Reads blocks of a log.
struct LogReader<'a> {
    dev: &'a dyn BlockDevice,
    bs: BlockSize,
    map: &'a LogMap,
    format: Format,
    ring: Ring,
}

impl LogReader<'_> {
    /// Reads log block `at` into `block`.
    fn read(&self, at: u32, block: &mut [u8]) -> Result<(), JournalError> {
        let offset = self
            .map
            .block(at)
            .and_then(|p| self.bs.dev_off(p))
            .ok_or_else(|| JournalError::corrupt(format!("it has no block {at}")))?;
        self.dev
            .read_at(offset, block)
            .map_err(JournalError::io("reading the log"))
    }

    fn block(&self) -> Vec<u8> {
        vec![0; self.bs.bytes()]
    }
}

/// Refuses a log on top of which fast commits have to be replayed.
fn check_fast_commits(
    reader: &LogReader<'_>,
    superblock: &JournalSuperblock,
    next: Tid,
) -> Result<(), JournalError> {
    if !superblock.incompat().contains(Incompat::FAST_COMMIT) {
        return Ok(());
    }
    let mut scan = FastCommitScan::new(next.get());
    let mut block = reader.block();
    for at in superblock.fast_commit_area() {
        reader.read(at, &mut block)?;
        match scan.block(&block) {
            FastCommitVerdict::Undecided => {}
            FastCommitVerdict::Nothing => break,
            FastCommitVerdict::Found => {
                return Err(JournalError::Unsupported(
                    "replaying fast commits (fast_commit); e2fsck or Linux can".into(),
                ));
            }
        }
    }
    Ok(())
}

/// What is to be written home.
struct LastCopies {
    /// The last copy of each block that was not revoked, in the order of the blocks.
    copies: Vec<LoggedCopy>,
    /// Blocks whose last copy was revoked.
    revoked: u64,
    /// The last revoke of a block that has copies: those of this transaction and of earlier ones are void.
    revokes: HashMap<u64, Tid, BlockHash>,
}

impl LastCopies {
    fn is_void(&self, copy: &LoggedCopy) -> bool {
        let revoke = self.revokes.get(&copy.target.get());
        revoke.is_some_and(|&tid| !copy.tid.is_after(tid))
    }
}

/// Chooses the copies to be written home.
fn last_copies(reader: &LogReader<'_>, scan: &Scan) -> Result<LastCopies, JournalError> {
    let mut last: HashMap<u64, LoggedCopy, BlockHash> = HashMap::default();
    for copy in &scan.copies {
        last.insert(copy.target.get(), *copy);
    }
    let mut revokes = HashMap::default();
    let mut block = reader.block();
    for &(at, tid) in &scan.revoke_blocks {
        reader.read(at, &mut block)?;
        let targets = reader
            .format
            .revokes(&block)
            .map_err(|error| JournalError::corrupt(format!("log block {at}: {error}")))?;
        for target in targets.map(Pblk::get) {
            if last.contains_key(&target) {
                // Later transactions come later, and their revokes void more.
                revokes.insert(target, tid);
            }
        }
    }
    let mut chosen = LastCopies {
        copies: Vec::new(),
        revoked: 0,
        revokes,
    };
    let all = last.len();
    let mut copies: Vec<LoggedCopy> = last.into_values().collect();
    copies.retain(|copy| !chosen.is_void(copy));
    copies.sort_unstable_by_key(|copy| copy.target);
    chosen.revoked = (all - copies.len()) as u64;
    chosen.copies = copies;
    Ok(chosen)
}
