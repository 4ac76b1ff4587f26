//! The error type of the file system.
//!
//! Every error says what is wrong and, for damage, where on disk. [`Error::errno`] gives the number
//! that Linux would return, so front ends translate in one place.

use std::fmt;
use std::io;
use std::sync::Arc;

use extant_blockdev::OpenError;
use extant_disk::damage::{BlockDamage, CorruptKind};
pub use extant_disk::location::Location;
use extant_disk::superblock::SuperblockError;
pub use extant_jbd2::StopReason;
use extant_jbd2::{BlockError, JournalError};

/// The result of a file system operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation. Cheap to clone: errors are latched and handed to many callers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device does not hold an ext2/3/4 file system.
    #[error("not an ext4 file system: {0}")]
    NotExt4(String),
    /// The image is shorter than its superblock says.
    #[error("truncated image: the file system has {expected} bytes, the device {actual}")]
    Truncated {
        /// Bytes that the superblock claims.
        expected: u64,
        /// Bytes that the device has.
        actual: u64,
    },
    /// The file system uses features that this build does not know how to handle.
    #[error("unsupported feature: {0}")]
    UnsupportedFeature(String),
    /// Another process or host uses the image.
    #[error("in use by {by}")]
    InUse {
        /// Its name, in words.
        by: Arc<str>,
    },
    /// The journal holds transactions, and the device cannot be written to replay them.
    #[error(
        "the journal needs to be replayed, but the device is read-only (mount with noload to look \
         at the file system as it stands)"
    )]
    NeedsReplay,
    /// A mount option is unknown or has a bad value.
    #[error("mount option {0}")]
    BadOption(String),
    /// A structure on disk is damaged. The file system's `errors=` policy has been applied.
    #[error("corrupt {location}: {kind}")]
    Corrupt {
        /// The structure, and which one.
        location: Location,
        /// The damage there. [`Error::corrupt_kind`] serves for matching.
        kind: Arc<CorruptKind>,
    },
    /// The device failed. [`std::error::Error::source`] is the device's error, if there was one.
    #[error(transparent)]
    Io(IoFailure),
    /// The file system was shut down after an earlier failure, or by request. The error behind the
    /// reason, if there is one, is in the chain of [`std::error::Error::source`].
    #[error("the file system is shut down: {0}")]
    Shutdown(#[source] StopReason),
    /// Not available in this build or on this kind of file.
    #[error("not supported: {0}")]
    NotSupported(&'static str),

    /// No such file or directory.
    #[error("No such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("File exists")]
    Exists,
    /// A directory was needed.
    #[error("Not a directory")]
    NotDir,
    /// Anything but a directory was needed.
    #[error("Is a directory")]
    IsDir,
    /// The directory still has entries.
    #[error("Directory not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes, or a path or target too long.
    #[error("File name too long")]
    NameTooLong,
    /// No space, or no inode, is left.
    #[error("No space left on device")]
    NoSpace,
    /// A limit of the user's, the group's or the project's quota is in the way.
    #[error("Disk quota exceeded")]
    OverQuota,
    /// A write to a read-only file system.
    #[error("Read-only file system")]
    ReadOnly,
    /// The inode's flags or ownership forbid the operation (immutable, append-only, not the owner).
    #[error("Operation not permitted")]
    NotPermitted,
    /// The caller lacks the permission.
    #[error("Permission denied")]
    AccessDenied,
    /// The link count cannot grow.
    #[error("Too many links")]
    TooManyLinks,
    /// The file would exceed the largest size.
    #[error("File too large")]
    FileTooBig,
    /// Too many symbolic links in the path.
    #[error("Too many levels of symbolic links")]
    TooManySymlinks,
    /// An argument makes no sense.
    #[error("Invalid argument")]
    Invalid,
    /// No such extended attribute.
    #[error("No data available")]
    NoAttribute,
    /// The buffer or value does not fit.
    #[error("Numerical result out of range")]
    OutOfRange,
    /// The value is too big for the file system.
    #[error("Argument list too long")]
    TooBig,
    /// A rename or link across file systems.
    #[error("Invalid cross-device link")]
    CrossDevice,
    /// The object is in use.
    #[error("Device or resource busy")]
    Busy,
    /// The file is open for writing, or may not be opened for it now.
    #[error("Text file busy")]
    TextBusy,
    /// The file descriptor or position is not one that the operation accepts.
    #[error("Bad file descriptor")]
    BadHandle,
    /// A pipe has no positions.
    #[error("Illegal seek")]
    IllegalSeek,
    /// The inode is not of the kind that the operation needs.
    #[error("No such device")]
    NoDevice,
    /// A seek found neither data nor hole.
    #[error("No such device or address")]
    NoSuchAddress,
    /// The call came from code that edits a file of the same file system in place, on the same
    /// thread: it would wait for itself.
    #[error("Resource deadlock avoided")]
    Deadlock,
    /// A long walk was ended by [`crate::Interrupt::set`] or [`crate::Volume::interrupt_all`].
    #[error("Interrupted system call")]
    Interrupted,
    /// The file is encrypted.
    #[error("Required key not available")]
    NoKey,
    /// The inode was deleted.
    #[error("Stale file handle")]
    Stale,
}

/// A result moves with each request of a queue, several times.
const _: () = assert!(size_of::<Result<usize>>() <= 32);

/// The failed step of [`Error::Io`], and the error that caused it. One pointer: every result of an
/// operation has room for it.
#[derive(Clone, Debug)]
pub struct IoFailure {
    failure: Arc<Failure>,
}

#[derive(Debug)]
struct Failure {
    what: String,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl IoFailure {
    /// A failure that `cause` describes.
    fn caused_by(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(cause.to_string(), Some(Box::new(cause)))
    }

    fn new(what: String, cause: Option<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let failure = Arc::new(Failure { what, cause });
        Self { failure }
    }
}

impl fmt::Display for IoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I/O error: {}", self.failure.what)
    }
}

impl std::error::Error for IoFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.failure.cause.as_deref()?;
        Some(cause)
    }
}

/// A failure without another error behind it.
impl From<&str> for IoFailure {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

/// A failure without another error behind it.
impl From<String> for IoFailure {
    fn from(what: String) -> Self {
        Self::new(what, None)
    }
}

impl Error {
    /// A failure of the device, or of the host, that `cause` describes.
    pub fn io(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Io(IoFailure::caused_by(cause))
    }

    /// As [`Error::io`], for a failure while `doing` something.
    pub(crate) fn io_while(
        doing: &str,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let what = format!("{doing}: {cause}");
        Self::Io(IoFailure::new(what, Some(Box::new(cause))))
    }

    /// Damage at `location`.
    pub fn corrupt(location: Location, kind: impl Into<CorruptKind>) -> Self {
        Self::Corrupt {
            location,
            kind: Arc::new(kind.into()),
        }
    }

    /// Returns whether there is no room: no space is left, or a limit of a quota is in the way.
    /// Either comes before anything has changed, or once that is undone.
    pub(crate) fn is_lack_of_room(&self) -> bool {
        matches!(self, Self::NoSpace | Self::OverQuota)
    }

    /// The kind of damage, if the error is damage.
    ///
    /// ```
    /// use extant_engine::Error;
    /// use extant_engine::damage::{CorruptKind, ExtentError};
    ///
    /// /// Returns whether a repair may store a checksum anew.
    /// fn is_wrong_checksum(error: &Error) -> bool {
    ///     match error.corrupt_kind() {
    ///         Some(CorruptKind::ExtentNode(ExtentError::BadChecksum { stored, computed })) => {
    ///             println!("stored {stored:#x}, computed {computed:#x}");
    ///             true
    ///         }
    ///         _ => false,
    ///     }
    /// }
    /// assert!(!is_wrong_checksum(&Error::NotFound));
    /// ```
    pub fn corrupt_kind(&self) -> Option<&CorruptKind> {
        match self {
            Self::Corrupt { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// The errno that Linux's ext4 would return.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Self::NotExt4(_) | Self::Truncated { .. } | Self::BadOption(_) | Self::Invalid => {
                Errno::INVAL
            }
            Self::UnsupportedFeature(_) | Self::NotSupported(_) => Errno::OPNOTSUPP,
            Self::InUse { .. } | Self::Busy => Errno::BUSY,
            Self::TextBusy => Errno::TXTBSY,
            Self::NeedsReplay | Self::ReadOnly => Errno::ROFS,
            // EFSCORRUPTED is EUCLEAN on Linux.
            Self::Corrupt { .. } => Errno::UCLEAN,
            Self::Io(_) | Self::Shutdown(_) => Errno::IO,
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotDir => Errno::NOTDIR,
            Self::IsDir => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::NoSpace => Errno::NOSPC,
            Self::OverQuota => Errno::DQUOT,
            Self::NotPermitted => Errno::PERM,
            Self::AccessDenied => Errno::ACCESS,
            Self::TooManyLinks => Errno::MLINK,
            Self::FileTooBig => Errno::FBIG,
            Self::TooManySymlinks => Errno::LOOP,
            Self::NoAttribute => Errno::NODATA,
            Self::OutOfRange => Errno::RANGE,
            Self::TooBig => Errno::TOOBIG,
            Self::CrossDevice => Errno::XDEV,
            Self::BadHandle => Errno::BADF,
            Self::IllegalSeek => Errno::SPIPE,
            Self::NoDevice => Errno::NODEV,
            Self::NoSuchAddress => Errno::NXIO,
            Self::NoKey => Errno::NOKEY,
            Self::Stale => Errno::STALE,
            Self::Deadlock => Errno::DEADLK,
            Self::Interrupted => Errno::INTR,
        };
        errno.raw_os_error()
    }
}

impl Error {
    /// The error of opening a file of the host.
    pub(crate) fn of_host(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::AccessDenied,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::NotADirectory => Self::NotDir,
            _ => error.into(),
        }
    }
}

/// Reason against a path that is neither.
pub(crate) const NO_DEVICE: &str = "neither a regular file nor a block device";

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse(_, by) => Self::InUse { by: by.into() },
            OpenError::NotADevice(path) if path.is_dir() => Self::IsDir,
            OpenError::NotADevice(_) => Self::NotExt4(NO_DEVICE.into()),
            OpenError::Io(_, error) => Self::of_host(error),
        }
    }
}

impl From<SuperblockError> for Error {
    fn from(error: SuperblockError) -> Self {
        match error {
            SuperblockError::BadMagic { .. } | SuperblockError::WrongLength { .. } => {
                Self::NotExt4(error.to_string())
            }
            SuperblockError::Truncated { wanted, device } => Self::Truncated {
                expected: wanted,
                actual: device,
            },
            SuperblockError::BadChecksum { .. } | SuperblockError::BadField { .. } => {
                Self::corrupt(Location::Superblock, error)
            }
        }
    }
}

/// A failure of the device or of the host, whatever its errno. For what a call of this library
/// returned see [`Error::of_call`].
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::io(error)
    }
}

impl From<BlockError> for Error {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Io { .. } => Self::io(error),
            BlockError::OutOfRange { block, device } => Self::corrupt(
                Location::Block(block),
                BlockDamage::PastDevice { block, device },
            ),
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Block(block) => block.into(),
            JournalError::Aborted(why) => Self::Shutdown(why),
            JournalError::Closed => Self::Shutdown("unmounted".into()),
            JournalError::ReadOnly => Self::ReadOnly,
            JournalError::NeedsRecovery => Self::NeedsReplay,
            JournalError::Unsupported(what) => Self::UnsupportedFeature(what.to_string()),
            JournalError::UnsupportedSuperblock(what) => Self::UnsupportedFeature(what.to_string()),
            JournalError::Corrupt(what) => Self::corrupt(Location::Journal, what),
            JournalError::CorruptSuperblock(what) => Self::corrupt(Location::Journal, what),
            JournalError::Io { .. }
            | JournalError::TooManyCredits { .. }
            | JournalError::TransactionTooLarge { .. } => Self::io(error),
        }
    }
}

/// An error that says no more than its errno becomes that errno. Any other one is carried whole:
/// its text and source stay, and [`Error::errno_of`] finds its errno.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        if PLAIN.iter().any(|plain| plain.is_same_kind(&error)) {
            return io::Error::from_raw_os_error(error.errno());
        }
        let kind = match error {
            Error::NotExt4(_) | Error::Truncated { .. } => io::ErrorKind::InvalidData,
            Error::Io(_) | Error::Corrupt { .. } | Error::Shutdown(_) => io::ErrorKind::Other,
            _ => io::Error::from_raw_os_error(error.errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}

/// The errors that say no more than their errno, each with one of its own.
static PLAIN: [Error; 29] = [
    Error::NotFound,
    Error::Exists,
    Error::NotDir,
    Error::IsDir,
    Error::NotEmpty,
    Error::NameTooLong,
    Error::NoSpace,
    Error::OverQuota,
    Error::ReadOnly,
    Error::NotPermitted,
    Error::AccessDenied,
    Error::TooManyLinks,
    Error::FileTooBig,
    Error::TooManySymlinks,
    Error::Invalid,
    Error::NoAttribute,
    Error::OutOfRange,
    Error::TooBig,
    Error::CrossDevice,
    Error::Busy,
    Error::TextBusy,
    Error::BadHandle,
    Error::IllegalSeek,
    Error::NoDevice,
    Error::NoSuchAddress,
    Error::NoKey,
    Error::Deadlock,
    Error::Interrupted,
    Error::Stale,
];

impl Error {
    /// The error of a call of this library that returned an [`io::Error`], such as those of
    /// [`io::Read`] and [`io::Write`]: the same one, with its errno.
    pub fn of_call(error: io::Error) -> Self {
        let errno = error.raw_os_error();
        let plain = PLAIN.iter().find(|plain| Some(plain.errno()) == errno);
        let same = plain.or_else(|| Self::carried(&error)).cloned();
        same.unwrap_or_else(|| error.into())
    }

    /// The errno of an [`io::Error`]: its own, or that of the error of this library that it
    /// carries, or that is the source of what it carries.
    pub fn errno_of(error: &io::Error) -> Option<i32> {
        let carried = Self::carried(error).map(Self::errno);
        carried.or_else(|| error.raw_os_error())
    }

    fn carried(error: &io::Error) -> Option<&Self> {
        let mut inner: &(dyn std::error::Error + 'static) = error.get_ref()?;
        loop {
            if let Some(own) = inner.downcast_ref() {
                return Some(own);
            }
            inner = inner.source()?;
        }
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_disk::damage::{GroupDamage, SuperblockDamage};
    use extant_units::Group;

    #[test]
    fn damage_names_its_location() {
        let damage = GroupDamage::FreeBlocks {
            stored: 5,
            found: 6,
        };
        let error = Error::corrupt(Location::GroupDesc(Group::new(7)), damage.clone());
        assert_eq!(error.corrupt_kind(), Some(&CorruptKind::Group(damage)));
        assert_eq!(
            error.to_string(),
            "corrupt descriptor of group 7: 5 free blocks, found 6"
        );
        assert_eq!(error.errno(), 117);
    }

    #[test]
    fn errors_survive_the_way_through_std() {
        for plain in &PLAIN {
            let errno = plain.errno();
            let there = io::Error::from(plain.clone());
            assert_eq!(there.raw_os_error(), Some(errno), "{plain}");
            assert_eq!(Error::errno_of(&there), Some(errno), "{plain}");
            assert!(Error::of_call(there).is_same_kind(plain), "{plain}");
        }
        let by: Arc<str> = "another process".into();
        for rich in [
            Error::InUse { by },
            Error::BadOption("'x': unknown".into()),
            Error::NotSupported("this"),
            Error::NeedsReplay,
            Error::NotExt4("zeros".into()),
            Error::corrupt(Location::Superblock, SuperblockDamage::TooShort),
            Error::from(io::Error::from_raw_os_error(121)),
        ] {
            let there = io::Error::from(rich.clone());
            assert_eq!(there.to_string(), rich.to_string());
            assert_eq!(Error::errno_of(&there), Some(rich.errno()), "{rich}");
            let back = Error::of_call(there);
            assert_eq!(back.to_string(), rich.to_string());
            assert!(back.is_same_kind(&rich), "{rich}");
        }
        // So does one that is the cause of another one.
        #[derive(Debug, thiserror::Error)]
        #[error("a copy failed")]
        struct Copy(#[source] Error);
        let there = io::Error::other(Copy(Error::NoSpace));
        assert_eq!(Error::errno_of(&there), Some(28));
        // What a device reports is a failure of it, whatever the number.
        let device = Error::from(io::Error::from_raw_os_error(28));
        assert!(matches!(device, Error::Io(_)));
    }

    #[test]
    fn a_failed_device_is_the_cause() {
        use std::error::Error as _;
        let told = Error::from(io::Error::from_raw_os_error(121));
        assert_eq!(told.errno(), 5);
        let cause = told.source().and_then(|cause| cause.downcast_ref());
        assert_eq!(cause.and_then(io::Error::raw_os_error), Some(121));
        let block = BlockError::Io {
            block: extant_units::Pblk::new(9),
            source: Arc::new(io::Error::from_raw_os_error(121)),
        };
        let text = block.to_string();
        let told = Error::from(JournalError::Block(block));
        assert_eq!(told.to_string(), format!("I/O error: {text}"));
        assert!(told.source().is_some_and(|cause| cause.is::<BlockError>()));
    }
}
