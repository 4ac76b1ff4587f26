//! What a copy asks of the place it reads from and of the place it writes to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::{FileKind, Timestamp};

use crate::failure::Failure;

/// Attributes, as far as copies keep them.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    pub(crate) perm: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) links: u64,
    /// Device number of a device node, in Linux's 32-bit encoding.
    pub(crate) rdev: u32,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    /// What it is the same file as.
    pub(crate) id: Id,
}

/// Tells one file of a tree from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// An extended attribute: name with namespace, and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// The length of what ends when it ends: pipes, devices.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A file to read.
pub(crate) trait Source {
    /// Reads at a position; zero at the end.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure>;
    /// The next range of data from `pos` on that is not a hole: its beginning and end. `None` if only holes follow.
    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure>;
}

/// A file to write.
pub(crate) trait Target {
    /// Writes all of it at a position.
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure>;
    /// Ends the file here.
    fn set_len(&self, len: u64) -> Result<(), Failure>;
}

/// A place that files can be copied from and to. Paths are its own; links are not followed unless said so.
pub(crate) trait Tree {
    /// How a path is shown to people.
    fn show(&self, path: &Path) -> String;
    /// The attributes; `None` if there is nothing.
    fn attributes(&self, path: &Path, follow: bool) -> Result<Option<Attributes>, Failure>;
    /// The names in a directory, in order.
    fn names(&self, dir: &Path) -> Result<Vec<OsString>, Failure>;
    /// What a symbolic link says.
    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure>;
    /// The extended attributes.
    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>, Failure>;
    /// Opens a file for reading; a link is followed.
    fn open(&self, path: &Path) -> Result<Box<dyn Source + '_>, Failure>;
    /// Creates a regular file, or empties it.
    fn create(&self, path: &Path, perm: u16) -> Result<Box<dyn Target + '_>, Failure>;
    /// Opens a device or pipe to write into it.
    fn open_device(&self, path: &Path) -> Result<Box<dyn Target + '_>, Failure>;
    /// Whether this is the live system: there is something behind devices and pipes, and symbolic links lead out of a tree.
    fn live(&self) -> bool;
    /// Makes a directory.
    fn mkdir(&self, path: &Path, perm: u16) -> Result<(), Failure>;
    /// Makes a symbolic link.
    fn symlink(&self, path: &Path, says: &Path) -> Result<(), Failure>;
    /// Makes a device node, pipe or socket.
    fn make_node(&self, path: &Path, like: &Attributes, perm: u16) -> Result<(), Failure>;
    /// Gives a file another name.
    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure>;
    /// Removes a name of anything but a directory.
    fn remove(&self, path: &Path) -> Result<(), Failure>;
    /// Sets owner and group; `false` if this side does not let its caller do so.
    fn set_owner(&self, path: &Path, like: &Attributes) -> Result<bool, Failure>;
    /// Sets the permission bits of anything but a link.
    fn set_perm(&self, path: &Path, perm: u16) -> Result<(), Failure>;
    /// Sets the times.
    fn set_times(&self, path: &Path, like: &Attributes) -> Result<(), Failure>;
    /// Sets an extended attribute. One that this side cannot store is left out with a warning.
    fn set_xattr(&self, path: &Path, xattr: &Xattr) -> Result<(), Failure>;
    /// Removes an extended attribute, if it is there and can be removed.
    fn drop_xattr(&self, path: &Path, name: &str);
}
