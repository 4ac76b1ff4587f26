//! Why a volume cannot be repaired.
//!
//! Damage that is left is part of the report, not an error.

use std::io;

use extant_blockdev::OpenError;
use extant_disk::damage::JournalDamage;
use extant_disk::superblock::SuperblockError;
use extant_jbd2::{BlockError, JournalError};

/// The result of a step of a repair.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume cannot be repaired. Nothing was written, unless the device or the journal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The superblock cannot be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// A copy was to take the place of a superblock that can be used.
    #[error("its superblock can be used: no copy takes its place")]
    Usable,
    /// A copy was to take the place of a superblock of which only the checksum is wrong.
    #[error(
        "only the checksum of its superblock is wrong, which a repair stores anew: no copy takes \
         its place"
    )]
    Resealable,
    /// A copy was to take the place of a superblock where another format lies now.
    #[error("it holds {0}: no copy of a superblock takes its place")]
    OtherFormat(&'static str),
    /// The check could not say anything.
    #[error(transparent)]
    Check(#[from] extant_check::Error),
    /// The block of multiple mount protection says that a host uses the volume.
    #[error(
        "in use by a host, or left by one without an end (multiple mount protection); \
         if none uses it: tune2fs -f -E clear_mmp"
    )]
    InUse,
    /// The log has damaged copies: what they would have changed is lost if the rest is replayed.
    #[error("the journal cannot be replayed: {0}")]
    DamagedLog(JournalDamage),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A mount could not replay the fast commits in the log.
    #[error("replaying fast commits: {0}")]
    FastCommits(#[source] extant_engine::Error),
    /// A mount could not finish the orphans.
    #[error("finishing the orphans: {0}")]
    Orphans(#[source] extant_engine::Error),
    /// A structure on the way to a repair cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A block that is to be changed cannot be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The check found more after the repairs than before.
    #[error("internal error: {after} findings after the repairs, {before} before")]
    Worse {
        /// Findings before.
        before: u64,
        /// Findings after.
        after: u64,
    },
    /// The device failed.
    #[error("I/O error: {0}")]
    Device(#[from] io::Error),
}
