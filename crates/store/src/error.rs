//! Failures of a store, and of what it holds.

use std::io;

/// The result of a call to a store.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image cannot be stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no address of an image in a store, or of a store.
    #[error("{text:?} is no address of {of}: {why}")]
    BadLocation {
        /// The text.
        text: String,
        /// The image in a store, or the store.
        of: &'static str,
        /// The part that is wrong.
        why: &'static str,
    },
    /// A request failed, also when it was repeated.
    #[error("{object}: {what}")]
    Request {
        /// The object's path in the store.
        object: String,
        /// The client's error, cut off where a server's answer makes it long.
        what: String,
    },
    /// The client of the store cannot be made.
    #[error("the store cannot be used: {what}")]
    Client {
        /// The reason.
        what: String,
    },
    /// Nothing is stored at an address.
    #[error("there is no store here: its address is that of an image without the image's name")]
    NoStore,
    /// There is no version of the image.
    #[error("there is no image of this name")]
    NoImage,
    /// There is no version of this number.
    #[error("there is no version {number}")]
    NoVersion {
        /// The number.
        number: u64,
    },
    /// An object that another one names is not there.
    #[error("{object} is missing")]
    Missing {
        /// The object's path in the store.
        object: String,
    },
    /// An object is not what its name says, or breaks the format.
    #[error("{object} is damaged: {why}")]
    Damaged {
        /// The object's path in the store.
        object: String,
        /// The difference.
        why: String,
    },
    /// An object needs another key than the one that is there.
    #[error("{object}: {why}")]
    Sealed {
        /// The object's path in the store.
        object: String,
        /// The key that it needs.
        why: String,
    },
    /// Another push created the version first.
    #[error("another push has made version {number} meanwhile: push again")]
    Overtaken {
        /// The version's number.
        number: u64,
    },
    /// A file is no layer, or not one of this image.
    #[error("{file}: {why}")]
    BadLayer {
        /// The file's path.
        file: String,
        /// The reason.
        why: String,
    },
    /// A layer changes a version that is not the last one.
    #[error("the layer changes version {base}, and version {last} is there: push it to a new name")]
    Superseded {
        /// The number of the layer's version.
        base: u64,
        /// The number of the last version.
        last: u64,
    },
    /// A layer of another image can only begin an image.
    #[error("it has version {last}, and the layer is of another image: push it to a new name")]
    NotNew {
        /// The number of the last version.
        last: u64,
    },
    /// The image changed while it was pushed.
    #[error("the image changes: nothing may write it while it is pushed")]
    Changed,
    /// The image is too large for a manifest, or the chunk length is none.
    #[error("{what}")]
    BadSize {
        /// The bound.
        what: &'static str,
    },
    /// The image or the file failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The most characters of what a client says.
const LONGEST_MESSAGE: usize = 500;

impl Error {
    pub(crate) fn request(object: &str, error: &object_store::Error) -> Self {
        Self::Request {
            object: object.to_owned(),
            what: error.to_string().chars().take(LONGEST_MESSAGE).collect(),
        }
    }

    pub(crate) fn sealed(object: impl ToString, why: impl ToString) -> Self {
        Self::Sealed {
            object: object.to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn bad_layer(file: impl ToString, why: impl ToString) -> Self {
        Self::BadLayer {
            file: file.to_string(),
            why: why.to_string(),
        }
    }

    pub(crate) fn damaged(object: impl ToString, why: impl ToString) -> Self {
        Self::Damaged {
            object: object.to_string(),
            why: why.to_string(),
        }
    }
}
