//! Errors of a copy: a call that failed, or a file that the copy refuses.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use extant_engine::damage::{CorruptKind, LinkDamage, MapDamage};
use extant_engine::{Error, Location};

/// The side of a copy on which something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// The side that is read.
    Source,
    /// The side that is written.
    Target,
}

/// The reason for which a copy refuses a file, where no call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyRefusal {
    /// A directory, and the copy is not recursive.
    Directory,
    /// A device node, pipe or socket that has no content, or is not to be copied.
    Special,
    /// The copy would go into itself.
    IntoItself,
    /// A directory that is found below itself.
    ContainsItself,
    /// A second name of a directory, which is damage. It was copied by its first.
    SecondName,
    /// More data than the volume has blocks.
    TooMuchData,
    /// A name that no file can have.
    BadName,
    /// The file at the target is the source.
    SameFile,
    /// A symbolic link at the target that leads to nothing.
    DanglingLink,
    /// A file where a directory goes.
    InWayOfDirectory,
    /// A symbolic link where a directory goes.
    LinkInWayOfDirectory,
    /// A directory where another file goes.
    DirectoryInWay,
    /// A device, pipe or socket of the host where a file goes.
    SpecialInWay,
    /// The directory of the target is not there.
    MissingParent,
    /// A file that [`super::CopyOptions::spared`] names.
    Spared,
    /// The caller may not give a file the owner that was asked for.
    Owner,
    /// Another program replaced the file while it was copied.
    Replaced,
    /// Another program moved the directory while it was copied.
    Moved,
}

impl CopyRefusal {
    /// The error of this library with the same errno.
    fn error(self) -> Error {
        use CopyRefusal as R;
        let damaged = |kind: CorruptKind| Error::corrupt(Location::Superblock, kind);
        match self {
            R::Directory | R::DirectoryInWay => Error::IsDir,
            R::Special => Error::NotSupported("copies of device nodes, pipes and sockets"),
            R::IntoItself | R::SameFile | R::BadName => Error::Invalid,
            R::ContainsItself => damaged(LinkDamage::ContainsItself.into()),
            R::SecondName => damaged(LinkDamage::TwoNames.into()),
            R::TooMuchData => damaged(MapDamage::MoreData.into()),
            R::DanglingLink | R::MissingParent => Error::NotFound,
            R::InWayOfDirectory => Error::NotDir,
            R::LinkInWayOfDirectory | R::SpecialInWay => Error::Exists,
            R::Spared => Error::Busy,
            R::Owner => Error::NotPermitted,
            R::Replaced | R::Moved => Error::Stale,
        }
    }
}

impl fmt::Display for CopyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory, and the copy is not recursive",
            Self::Special => "a device node, pipe or socket",
            Self::IntoItself => "copying a directory into itself",
            Self::ContainsItself => "a directory that contains itself",
            Self::SecondName => "a directory with a second name, copied by its first: damage",
            Self::TooMuchData => "its extents have more data than the volume has blocks: damaged",
            Self::BadName => "a name that no file can have",
            Self::SameFile => "the same file as its source",
            Self::DanglingLink => "a symbolic link that leads nowhere",
            Self::InWayOfDirectory | Self::LinkInWayOfDirectory => "in the way of a directory",
            Self::DirectoryInWay => "a directory, in the way of what is not one",
            Self::SpecialInWay => "a device, pipe or socket, in the way of a file",
            Self::MissingParent => "its directory is missing",
            Self::Spared => "the image itself",
            Self::Owner => "its owner: Operation not permitted",
            Self::Replaced => "replaced while it was being copied",
            Self::Moved => "moved while it was being copied",
        })
    }
}

/// A refusal as an error, with one that has its errno behind it.
#[derive(Debug)]
struct Refused {
    why: CopyRefusal,
    error: Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CopyRefusal> for io::Error {
    fn from(why: CopyRefusal) -> io::Error {
        let error = why.error();
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        io::Error::new(kind, Refused { why, error })
    }
}

/// The error of a copy, and the file that it happened at. What was copied until then stays.
#[derive(Debug)]
pub struct CopyError {
    side: CopySide,
    path: PathBuf,
    /// The extended attribute that could not be set, if it is one.
    xattr: Option<String>,
    error: io::Error,
}

impl CopyError {
    pub(super) fn new(side: CopySide, path: &Path, error: io::Error) -> CopyError {
        CopyError {
            side,
            path: path.to_owned(),
            xattr: None,
            error,
        }
    }

    /// The same error, of an extended attribute.
    pub(super) fn of_xattr(self, name: &[u8]) -> CopyError {
        CopyError {
            xattr: Some(String::from_utf8_lossy(name).into_owned()),
            ..self
        }
    }

    /// The side on which it happened.
    pub fn side(&self) -> CopySide {
        self.side
    }

    /// The path on that side.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the extended attribute that could not be set, if it is one.
    pub fn xattr(&self) -> Option<&str> {
        self.xattr.as_deref()
    }

    /// The error without its path.
    pub fn error(&self) -> &io::Error {
        &self.error
    }

    /// The refusal, if no call failed.
    pub fn refusal(&self) -> Option<CopyRefusal> {
        let refused = self.error.get_ref()?.downcast_ref::<Refused>()?;
        Some(refused.why)
    }

    /// The errno, if it has one.
    pub fn errno(&self) -> Option<i32> {
        Error::errno_of(&self.error)
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(xattr) = &self.xattr {
            write!(f, "{xattr}: ")?;
        }
        self.error.fmt(f)
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> io::Error {
        io::Error::new(error.error.kind(), error)
    }
}
