//! Damage of the journal's log.

use core::fmt;

use extant_units::{Blocks, Ino, Pblk, Tid};

use super::LogBlockError;
use crate::jbd2::fast_commit::OperationError;

damage! {
    /// The log of the journal.
    JournalDamage {
        NotFound => "it cannot be found",
        ReplayWithoutMap => "it needs a replay, but its inode or its map is damaged",
        ReplayWithoutJournal => "it needs a replay, but there is none",
        NoBlocks => "it has no blocks",
        NoBlock { at: u32 } => "it has no block {at}",
        OutsideDevice { start: Pblk, end: Pblk, device: Blocks } =>
            "its blocks {start}..{end} leave the device of {device} blocks",
        RepeatedBlock { block: Pblk } => "block {block} is in it twice",
        LogBlock { at: u32, error: LogBlockError } => "log block {at}: {error}",
        Checksum { tid: Tid } => "transaction {tid} has a wrong checksum",
        TargetPastEnd { tid: Tid, at: u32, target: Pblk } =>
            "transaction {tid}, log block {at}: its target {target} lies past the end of the file \
             system",
        TargetInLog { tid: Tid, at: u32, target: Pblk } =>
            "transaction {tid}, log block {at}: its target {target} is a block of the log",
        Copies { copies: SkippedCopies } => "{copies}",
        ReplayedAround { copies: SkippedCopies } =>
            "{copies}; all else was replayed: e2fsck must check the volume",
        FastCommit { error: OperationError } => "a fast commit has {error}",
        FastCommitEntry { parent: Ino, ino: Ino } =>
            "a fast commit has an entry for inode {ino} that directory {parent} cannot have",
        FastCommitInode { ino: Ino } =>
            "a fast commit changes inode {ino}, which is another one or has no such content",
        FastCommitBlocks { ino: Ino, start: Pblk, blocks: u32 } =>
            "a fast commit gives inode {ino} the {blocks} blocks from {start} on, not all of which \
             it can have",
        Errno { errno: i32 } =>
            "it remembers error {errno}, of a mount that a fault has stopped: the next mount or \
             e2fsck clears it",
        Users { users: u32 } => "it has {users} users",
        NotEmpty { start: u32 } =>
            "it begins at block {start}, but the superblock says it is empty, as the next mount \
             makes it",
    }
}

/// Copy in the log that was not written to its home location, because its checksum is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SkippedCopy {
    /// The block it is a copy of.
    pub block: Pblk,
    /// The transaction that logged it.
    pub tid: Tid,
    /// The log block that it is in.
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

/// Copies that were skipped in one replay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SkippedCopies {
    /// The first, in the order of the blocks.
    pub first: SkippedCopy,
    /// Number of the others.
    pub more: u64,
}

impl fmt::Display for SkippedCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, more } = self;
        match more {
            0 => write!(f, "{first}"),
            more => write!(f, "{first} (and {more} more such copies)"),
        }
    }
}
