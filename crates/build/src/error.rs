//! Why a volume is not built.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// A refusal or a failure. No image is left behind, and one that was there stays as it was; a block
/// device holds no file system once writing has begun.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// Something in a source that cannot be put into the volume.
    #[error("{place}: {what}")]
    Entry {
        /// The source or the path.
        place: String,
        /// The reason of the refusal.
        what: String,
    },
    /// A file without a file system is in the place of the image.
    #[error("{place}: the file is not an ext image: it would be lost")]
    Occupied {
        /// The file.
        place: String,
    },
    /// Options that do not go together, or that a volume cannot have.
    #[error("{0}")]
    Options(String),
    /// The volume has no room for what the sources hold.
    #[error("{bytes} bytes are too few: {what}")]
    NoRoom {
        /// Bytes of the volume.
        bytes: u64,
        /// The part that does not fit.
        what: String,
    },
    /// The caller's [`Watch`](crate::Watch) stopped it.
    #[error("stopped")]
    Stopped,
    /// The volume cannot be planned or written.
    #[error(transparent)]
    Mkfs(#[from] extant_mkfs::Error),
    /// The host refused something.
    #[error("{place}: {error}")]
    Io {
        /// The file.
        place: String,
        /// The host's error.
        #[source]
        error: io::Error,
    },
}

/// The result of building.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that a call of Linux would fail with.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Self::Entry { .. } | Self::Options(_) => Errno::INVAL,
            Self::NoRoom { .. } => Errno::NOSPC,
            Self::Occupied { .. } => Errno::EXIST,
            Self::Stopped => Errno::INTR,
            Self::Mkfs(error) => return error.errno(),
            Self::Io { error, .. } => {
                return error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            }
        };
        errno.raw_os_error()
    }

    /// `what` is wrong at `place`.
    pub(crate) fn at(place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::Entry {
            place: place.to_string(),
            what: what.to_string(),
        }
    }
}

/// The error whole, with the kind of its errno.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(io::Error::from_raw_os_error(error.errno()).kind(), error)
    }
}

/// Adds the file that an error of the host is about.
pub(crate) trait At<T> {
    /// At this file.
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| Error::Io {
            place: path.display().to_string(),
            error,
        })
    }
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(io::Error::from).at(path)
    }
}
