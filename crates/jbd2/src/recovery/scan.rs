//! SCAN: the complete transactions that a log holds, and the locations of their parts.
//!
//! # Invariants
//! - The log ends at the first block that has no header of the log, belongs to another transaction
//!   than the one expected, or lies past a full round. A transaction without its commit block does
//!   not count.
//! - A wrong checksum in a transaction that has its commit block means damage, with two exceptions
//!   that end the log. If the commit is older than the one before, it is left over from an earlier
//!   round of the ring. With asynchronous commits, a commit record may have reached the disk before
//!   the blocks that its checksum covers.

use std::io;

use extant_disk::damage::JournalDamage;
use extant_disk::jbd2::commit::Commit;
use extant_disk::jbd2::crc32::Crc32;
use extant_disk::jbd2::descriptor::Tag;
use extant_disk::jbd2::superblock::{Incompat, JournalSuperblock};
use extant_disk::jbd2::{BlockKind, Checksums, Header};
use extant_units::{Blocks, Pblk, Tid};

use super::reader::LogReader;
use crate::error::JournalError;
use crate::log_map::LogMap;

/// A copy in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCopy {
    pub(super) target: Pblk,
    pub(super) tid: Tid,
    /// The log block that it is in.
    pub(super) at: u32,
    pub(super) escaped: bool,
    pub(super) checksum: u32,
}

/// The contents of a log.
#[derive(Debug)]
pub(super) struct Scan {
    /// The copies of complete transactions, in log order.
    pub(super) copies: Vec<LoggedCopy>,
    /// Their revoke blocks, in log order.
    pub(super) revoke_blocks: Vec<(u32, Tid)>,
    pub(super) transactions: u64,
    /// The first transaction that is missing or incomplete.
    pub(super) next: Tid,
}

impl Scan {
    /// Checks that the target of every copy lies on the file system and outside of the log.
    pub(super) fn check_targets(&self, log: &LogMap, device: Blocks) -> Result<(), JournalError> {
        for &LoggedCopy {
            tid, at, target, ..
        } in &self.copies
        {
            if target.get() >= device.get() {
                return Err(JournalDamage::TargetPastEnd { tid, at, target }.into());
            }
            if log.contains(target) {
                return Err(JournalDamage::TargetInLog { tid, at, target }.into());
            }
        }
        Ok(())
    }
}

/// Walks a log from its tail.
struct Walk<'a> {
    reader: &'a LogReader<'a>,
    scan: Scan,
    at: u32,
    /// Blocks that are left of one round of the ring.
    left: u32,
    crc: Crc32,
    /// A descriptor or revoke block of this transaction has a wrong checksum.
    suspect: bool,
    last_commit: u64,
    async_commit: bool,
    /// Bytes that the list of copies may take.
    memory: u64,
}

/// Bytes that a copy takes until it is written: in the list while that grows, in the table of last
/// copies, and in the list of those.
const COPY_BYTES: u64 = 160;

/// Finds the complete transactions of a log.
pub(super) fn scan(
    reader: &LogReader<'_>,
    superblock: &JournalSuperblock,
    memory: u64,
) -> Result<Scan, JournalError> {
    let mut walk = Walk {
        reader,
        scan: Scan {
            copies: Vec::new(),
            revoke_blocks: Vec::new(),
            transactions: 0,
            next: Tid::new(superblock.sequence()),
        },
        at: superblock.start(),
        left: reader.ring.len(),
        crc: Crc32::START,
        suspect: false,
        last_commit: 0,
        async_commit: superblock.incompat().contains(Incompat::ASYNC_COMMIT),
        memory,
    };
    let mut complete = (0, 0);
    let mut block = reader.buffer();
    while let Some(at) = walk.step() {
        reader.read(at, &mut block)?;
        let tid = walk.scan.next;
        let Some(header) = Header::parse(&block).filter(|h| h.sequence == tid.get()) else {
            break;
        };
        match header.kind {
            BlockKind::Descriptor => {
                if !walk.descriptor(&block, tid)? {
                    break;
                }
            }
            BlockKind::Revoke => {
                walk.suspect |= !reader.format.tail_is_right(&block);
                walk.scan.revoke_blocks.push((at, tid));
            }
            BlockKind::Commit => {
                if !walk.commit(&block, tid)? {
                    break;
                }
                complete = (walk.scan.copies.len(), walk.scan.revoke_blocks.len());
            }
            BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => break,
        }
    }
    let (copies, revoke_blocks) = complete;
    walk.scan.copies.truncate(copies);
    walk.scan.revoke_blocks.truncate(revoke_blocks);
    Ok(walk.scan)
}

impl Walk<'_> {
    /// The next log block, `None` after a full round.
    fn step(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.reader.ring.advance(at, 1);
        Some(at)
    }

    /// Collects a descriptor's copies. False if there is no room for them in the log.
    fn descriptor(&mut self, block: &[u8], tid: Tid) -> Result<bool, JournalError> {
        let reader = self.reader;
        let format = reader.format;
        self.suspect |= !format.tail_is_right(block);
        let v1 = format.checksums == Checksums::V1;
        let mut bytes = if v1 { reader.buffer() } else { Vec::new() };
        if v1 {
            self.crc = self.crc.feed(block);
        }
        for Tag {
            block: target,
            escaped,
            checksum,
        } in format.tags(block)
        {
            let Some(at) = self.step() else {
                return Ok(false);
            };
            if v1 {
                reader.read(at, &mut bytes)?;
                self.crc = self.crc.feed(&bytes);
            }
            self.check_memory()?;
            self.scan.copies.push(LoggedCopy {
                target,
                tid,
                at,
                escaped,
                checksum,
            });
        }
        Ok(true)
    }

    /// Checks that one more copy fits the memory.
    fn check_memory(&self) -> Result<(), JournalError> {
        let copies = self.scan.copies.len() as u64;
        // Below 2^64: a log has fewer than 2^32 blocks.
        if copies * COPY_BYTES < self.memory {
            return Ok(());
        }
        let mib = self.memory >> 20;
        let what = format!(
            "its list of {copies} blocks and more exceeds the limit of {mib} MiB of memory"
        );
        let error = io::Error::new(io::ErrorKind::OutOfMemory, what);
        Err(JournalError::io("replaying the journal")(error))
    }

    /// Completes a transaction. False if the log ends before it.
    fn commit(&mut self, block: &[u8], tid: Tid) -> Result<bool, JournalError> {
        let format = self.reader.format;
        let commit = Commit::parse(block);
        let right = match format.checksums {
            Checksums::None => true,
            Checksums::V1 => commit.agrees_with(self.crc),
            Checksums::V2 | Checksums::V3 => format.commit_is_right(block),
        };
        if self.suspect || !right {
            let stale = commit.seconds < self.last_commit;
            if stale || (self.async_commit && !self.suspect) {
                return Ok(false);
            }
            return Err(JournalDamage::Checksum { tid }.into());
        }
        self.last_commit = commit.seconds;
        self.crc = Crc32::START;
        self.scan.next = tid.next();
        self.scan.transactions += 1;
        Ok(true)
    }
}
