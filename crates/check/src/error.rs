//! Why a volume cannot be checked.
//!
//! Damage is a finding, not an error: see [`crate::check`].

use std::io;

use extant_blockdev::OpenError;
use extant_disk::damage::CorruptKind;
use extant_disk::features::FeatureName;
use extant_disk::location::Location;
use extant_disk::superblock::SuperblockError;
use extant_jbd2::JournalError;

/// The result of a step of the check.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device ends before a superblock would.
    #[error("not an ext4 file system: it is too short for a superblock")]
    TooShort,
    /// The superblock is not one of ext2, ext3 or ext4, or its geometry cannot be trusted.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// A superblock that was named as a copy does not lie where its volume has copies.
    #[error("the superblock there is no copy of the volume's: none lies at that place")]
    NoCopy,
    /// The volume uses a feature that is outside of the supported set.
    #[error("unsupported feature: {0}")]
    UnsupportedFeature(FeatureName),
    /// A structure that the whole check depends on is damaged.
    #[error("corrupt {place}: {kind}")]
    Corrupt {
        /// The structure, and which one.
        place: Location,
        /// The damage there.
        kind: CorruptKind,
    },
    /// The journal is on another device, and the volume waits for its replay.
    #[error("its journal, which waits for a replay, is on another device: --journal gives that")]
    NoJournal,
    /// The device that was given does not hold the volume's journal.
    #[error("the journal that was given: {0}")]
    OtherJournal(&'static str),
    /// The device failed.
    #[error("I/O error: {0}")]
    Device(#[from] io::Error),
    /// The journal could not be replayed in memory.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A thread of the check panicked.
    #[error("internal error: a checking thread panicked")]
    Panicked,
}

impl Error {
    pub(crate) fn corrupt(place: Location, kind: impl Into<CorruptKind>) -> Self {
        let kind = kind.into();
        Self::Corrupt { place, kind }
    }
}
