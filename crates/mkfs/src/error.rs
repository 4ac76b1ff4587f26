//! Why a file system is not made.

use std::io;
use std::path::PathBuf;

use extant_blockdev::OpenError;
use rustix::io::Errno;

/// A refusal or a failure. Everything but [`Error::Io`] is found before the first write.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// A value that no file system can have.
    #[error("{option} is {value}: {why}")]
    BadValue {
        /// The option, in words.
        option: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A feature that is not known, or not made.
    #[error("feature {name}: {why}")]
    BadFeature {
        /// The feature's name as given.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// Two things that do not go together.
    #[error("{0}")]
    Conflict(&'static str),
    /// The device cannot hold a file system of this kind.
    #[error("{bytes} bytes are too few for a file system of this kind: {what} would not fit")]
    TooSmall {
        /// The size asked for.
        bytes: u64,
        /// The part that has no room.
        what: &'static str,
    },
    /// The device is larger than the format or the features allow.
    #[error("{blocks} blocks are too many: {why}")]
    TooLarge {
        /// The number of blocks.
        blocks: u64,
        /// The feature that forbids it.
        why: &'static str,
    },
    /// More inodes than the groups can hold.
    #[error("{inodes} inodes are too many for {blocks} blocks of {block_size} bytes")]
    TooManyInodes {
        /// The number of inodes.
        inodes: u64,
        /// Blocks of the volume.
        blocks: u64,
        /// Bytes of a block.
        block_size: usize,
    },
    /// A journal that takes more than half of what is free.
    #[error("a journal of {blocks} blocks is too large: at most {most} fit")]
    JournalTooLarge {
        /// Its blocks.
        blocks: u64,
        /// The most that is possible.
        most: u64,
    },
    /// The device that was named as the journal of the volume cannot be that.
    #[error("the journal {}: {why}", path.display())]
    BadJournal {
        /// Path of the device or of the file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no file of this name, and no size to make one with.
    #[error("there is no such file: give a size to make one")]
    NoSize,
    /// The size does not fit the device.
    #[error("{wanted} bytes were asked for, the device has {found}")]
    DeviceTooSmall {
        /// The size asked for.
        wanted: u64,
        /// The device's.
        found: u64,
    },
    /// The device holds something already.
    #[error("holds {what} already: it would be lost")]
    Occupied {
        /// Its content, in words.
        what: String,
    },
    /// The device is used, or cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The host refused a read or a write.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The result of making a file system.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A value that breaks a rule.
    pub(crate) fn bad(option: &'static str, value: impl ToString, why: &'static str) -> Self {
        Self::BadValue {
            option,
            value: value.to_string(),
            why,
        }
    }
}

impl Error {
    /// The errno that a call of Linux would fail with.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::NoSize => Errno::NOENT,
            Self::DeviceTooSmall { .. } => Errno::NOSPC,
            Self::Occupied { .. } => Errno::EXIST,
            Self::Open(error) => return error.errno(),
            Self::Io(error) => return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            _ => Errno::INVAL,
        };
        errno.raw_os_error()
    }
}

/// An error of the host as it is; any other one whole, with the kind of its errno.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) => error,
            other => io::Error::new(io::Error::from_raw_os_error(other.errno()).kind(), other),
        }
    }
}
