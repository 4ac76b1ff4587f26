//! The last component of a path, for calls that create, remove or move a name.
//!
//! Such a call needs a name. A path may end in none (`/`, `dir/.`, `dir/..`), and each call has an
//! error of its own for that, as in Linux. A slash behind a name means a directory.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant_engine::{Error, FileKind, Node, Result, Volume};

use crate::walk::{checked, components, directory};

/// How a path ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathEnd<'p> {
    /// In a name, with slashes behind it or without.
    Name(&'p [u8]),
    /// In `.`.
    Dot,
    /// In `..`.
    DotDot,
    /// The path is the root.
    Root,
}

impl<'p> PathEnd<'p> {
    fn of(path: &'p [u8]) -> Self {
        let last = path.split(|&b| b == b'/').rfind(|name| !name.is_empty());
        match last {
            None => Self::Root,
            Some(b".") => Self::Dot,
            Some(b"..") => Self::DotDot,
            Some(name) => Self::Name(name),
        }
    }

    /// The name.
    ///
    /// # Errors
    /// `other` if there is none.
    pub(crate) fn name_or(self, other: Error) -> Result<&'p [u8]> {
        match self {
            Self::Name(name) => Ok(name),
            Self::Dot | Self::DotDot | Self::Root => Err(other),
        }
    }
}

/// The directory that holds the last component of `path`, and that component.
///
/// # Errors
/// Those of following the path.
pub(crate) fn parent<'p>(volume: &Volume, path: &'p Path) -> Result<(Node, PathEnd<'p>)> {
    let bytes = checked(path)?;
    let end = PathEnd::of(bytes);
    let mut names = components(bytes);
    if !matches!(end, PathEnd::Dot | PathEnd::Root) {
        names.next_back();
    }
    Ok((directory(volume, names)?, end))
}

/// Parent and name of a name to create.
///
/// # Errors
/// [`Error::Exists`] for a path that ends in no name, as mkdir(2); those of following the path.
pub(crate) fn parent_of_new<'p>(volume: &Volume, path: &'p Path) -> Result<(Node, &'p [u8])> {
    let (dir, end) = parent(volume, path)?;
    Ok((dir, end.name_or(Error::Exists)?))
}

/// As [`parent_of_new`], for a name of anything but a directory.
///
/// # Errors
/// Also [`Error::NotFound`] for a path that ends in a slash where nothing is, as mknod(2).
pub(crate) fn parent_of_new_leaf<'p>(volume: &Volume, path: &'p Path) -> Result<(Node, &'p [u8])> {
    let (dir, name) = parent_of_new(volume, path)?;
    if ends_in_slash(path) {
        volume.lookup(&dir, name)?;
        return Err(Error::Exists);
    }
    Ok((dir, name))
}

/// Parent and name of a directory to remove.
///
/// # Errors
/// For a path that ends in no name, [`Error::Invalid`] after a dot, [`Error::NotEmpty`] after two,
/// [`Error::Busy`] for the root, as rmdir(2); those of following the path.
pub(crate) fn parent_of_dir<'p>(volume: &Volume, path: &'p Path) -> Result<(Node, &'p [u8])> {
    let (dir, end) = parent(volume, path)?;
    match end {
        PathEnd::Name(name) => Ok((dir, name)),
        PathEnd::Dot => Err(Error::Invalid),
        PathEnd::DotDot => Err(Error::NotEmpty),
        PathEnd::Root => Err(Error::Busy),
    }
}

/// Parent and name of anything but a directory, to remove it.
///
/// # Errors
/// [`Error::IsDir`] for a path that ends in no name, [`Error::IsDir`] and [`Error::NotDir`] for one
/// that ends in a slash, as unlink(2); those of following the path.
pub(crate) fn parent_of_leaf<'p>(volume: &Volume, path: &'p Path) -> Result<(Node, &'p [u8])> {
    let (dir, end) = parent(volume, path)?;
    let name = end.name_or(Error::IsDir)?;
    if ends_in_slash(path) {
        return match volume.lookup(&dir, name)?.kind() {
            FileKind::Directory => Err(Error::IsDir),
            _ => Err(Error::NotDir),
        };
    }
    Ok((dir, name))
}

/// Returns whether a path ends in a slash, so that its last name means a directory.
pub(crate) fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}
