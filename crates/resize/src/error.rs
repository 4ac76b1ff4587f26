//! Why a volume is not resized.

use std::io;

use extant_blockdev::OpenError;
use extant_disk::geometry::GeometryError;
use extant_disk::superblock::SuperblockError;
use extant_jbd2::JournalError;

use crate::options::Report;

/// The result of a step of a resize.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a volume is not resized. It has its old size then, unless the device or the journal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The superblock cannot be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The check could not say anything.
    #[error(transparent)]
    Check(#[from] extant_check::Error),
    /// The volume is damaged.
    #[error("damaged, {count} findings ({first}): extant fix repairs it")]
    NotClean {
        /// Findings in all.
        count: u64,
        /// The first.
        first: String,
    },
    /// The volume has something that a resize cannot deal with.
    #[error("cannot be resized: {0}")]
    Unsupported(&'static str),
    /// Less than one group.
    #[error("too small: no block is left for a group")]
    NoGroup,
    /// The content of the volume does not fit.
    #[error("too small: at least {least} bytes are needed")]
    TooSmall {
        /// The least size, in bytes.
        least: u64,
    },
    /// More blocks than the volume's format has room for.
    #[error("too large, {blocks} blocks: {why}")]
    TooLarge {
        /// The blocks.
        blocks: u64,
        /// Why.
        why: &'static str,
    },
    /// The device ends before the volume would.
    #[error("the device has {device} bytes, fewer than {wanted}")]
    DeviceTooShort {
        /// Bytes of the device.
        device: u64,
        /// Bytes of the volume.
        wanted: u64,
    },
    /// No free blocks for a step on the way.
    #[error("no room for {0}: a size with more free blocks is needed")]
    NoRoom(&'static str),
    /// The volume has something because of which its files keep sharing blocks.
    #[error("its files cannot get blocks of their own: {0}")]
    Unshareable(String),
    /// Fewer blocks are free than the copies of shared ones take.
    #[error("no room: copies of shared blocks take {needed} blocks, and {free} are free")]
    Crowded {
        /// Blocks of all copies.
        needed: u64,
        /// Free blocks.
        free: u64,
    },
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A mount could not replay the journal or finish the orphans.
    #[error("replaying the journal: {0}")]
    Mount(#[source] extant_engine::Error),
    /// A structure cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// A write failed after the first one of the new volume.
    #[error("the change had begun: extant fix ends it: {0}")]
    Begun(#[source] Box<Error>),
    /// A later round of a resize to the least size failed. The earlier ones are done.
    #[error("it has {} blocks now, and then: {error}", report.blocks)]
    After {
        /// The result of the earlier rounds.
        report: Report,
        /// The reason of the failure.
        #[source]
        error: Box<Error>,
    },
    /// The check found something after the resize; nothing was written.
    #[error("internal error: {count} findings after the change ({first}); nothing was written")]
    Internal {
        /// Findings in all.
        count: u64,
        /// The first.
        first: String,
    },
    /// The device failed.
    #[error("I/O error: {0}")]
    Device(#[from] io::Error),
}

impl Error {
    /// Inodes behind the new end have numbers that are to stay.
    pub(crate) const STABLE_INODES: Self = Self::Unsupported(
        "its inodes keep their numbers (stable_inodes), and some would be cut off",
    );

    /// A structure that is not as the check has found it.
    pub(crate) fn unreadable(what: impl std::fmt::Display) -> Self {
        Self::Unreadable(what.to_string())
    }
}

impl From<GeometryError> for Error {
    fn from(error: GeometryError) -> Self {
        match error {
            GeometryError::NoGroup => Self::NoGroup,
            GeometryError::TooLarge { blocks, why } => Self::TooLarge { blocks, why },
        }
    }
}

/// An error of the device as it is; any other one whole.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Device(error) => error,
            Error::Open(error) => {
                io::Error::new(io::Error::from_raw_os_error(error.errno()).kind(), error)
            }
            other => io::Error::other(other),
        }
    }
}
