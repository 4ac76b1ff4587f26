//! What a copy asks of the side it reads from and of the side it writes to.
//!
//! # Invariants
//! A path is followed once, for an operand. From there on each step is one name in a directory that
//! is open, and attributes are set of files that are open: what becomes of names meanwhile leads no
//! step elsewhere.
//!
//! # Errors
//! A failure from here says what happened. The job adds where.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::{DataBudget, FileKind, Timestamp};

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

/// Identifies a file of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// An extended attribute: name with namespace, and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// The length of what ends when it ends: pipes, devices.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The first copy of a file that has several names.
pub(crate) struct First {
    /// The names that lead to it, from the directory where the copy began.
    pub(crate) path: PathBuf,
    /// What it is.
    pub(crate) id: Id,
}

/// An open file whose attributes can be changed.
pub(crate) trait Change {
    /// What it is.
    fn id(&self) -> Id;
    /// Sets owner and group; `false` if this side does not let its caller do so.
    fn set_owner(&self, like: &Attributes) -> Result<bool, Failure>;
    /// Sets the permission bits of anything but a link.
    fn set_perm(&self, perm: u16) -> Result<(), Failure>;
    /// Sets the times.
    fn set_times(&self, like: &Attributes) -> Result<(), Failure>;
    /// Sets an extended attribute. For one that this side cannot store, returns the reason.
    fn set_xattr(&self, xattr: &Xattr) -> Result<Option<String>, Failure>;
    /// Removes an extended attribute, if it is there and can be removed.
    fn drop_xattr(&self, name: &str);
}

/// A file to read.
pub(crate) trait Source {
    /// Reads at a position; zero at the end.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure>;
    /// The next range of data from `pos` on that is not a hole: its beginning and end. `None` if
    /// only holes follow.
    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure>;
    /// The length now; [`UNKNOWN`] of what ends when it ends.
    fn len(&self) -> Result<u64, Failure>;
}

/// A file to write.
pub(crate) trait Target {
    /// Writes all of it at a position.
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure>;
    /// Ends the file here.
    fn set_len(&self, len: u64) -> Result<(), Failure>;
    /// Its attributes; `None` of devices and pipes, which keep theirs.
    fn change(&self) -> Option<&dyn Change>;
}

/// A file that was found, by name or by path; a symbolic link itself unless it was asked to be
/// followed.
pub(crate) trait Item<'a> {
    /// The attributes when it was found.
    fn attributes(&self) -> &Attributes;
    /// Returns whether nothing describes it: a directory that an archive has names below, and no
    /// entry of.
    fn is_implied(&self) -> bool {
        false
    }
    /// What a symbolic link says.
    fn read_link(&self) -> Result<PathBuf, Failure>;
    /// The extended attributes.
    fn xattrs(&self) -> Result<Vec<Xattr>, Failure>;
    /// Opens a file for reading.
    fn open(&self) -> Result<Box<dyn Source + 'a>, Failure>;
    /// Opens a directory. One that is only written to need not be readable.
    fn enter(&self) -> Result<Rc<dyn Dir<'a> + 'a>, Failure>;
    /// Opens a regular file to write it anew, and empties it.
    fn rewrite(&self) -> Result<Box<dyn Target + 'a>, Failure>;
    /// Opens a device or pipe to write into it.
    fn open_device(&self) -> Result<Box<dyn Target + 'a>, Failure>;
    /// The file as one whose attributes can be changed.
    fn change(&self) -> &dyn Change;
}

/// A file that was found.
pub(crate) type Found<'a> = Box<dyn Item<'a> + 'a>;

/// The names in a directory; those of an image as many at a time as fit bounded memory.
pub(crate) type Names = Box<dyn Iterator<Item = Result<OsString, Failure>>>;

/// An open directory. Names are single ones, and links are not followed.
pub(crate) trait Dir<'a>: Change {
    /// The names in it, in order.
    fn names(&self) -> Result<Names, Failure>;
    /// The extended attributes.
    fn xattrs(&self) -> Result<Vec<Xattr>, Failure>;
    /// What has this name.
    fn find(&self, name: &OsStr) -> Result<Option<Found<'a>>, Failure>;
    /// Creates a regular file, where there is nothing.
    fn create(&self, name: &OsStr, perm: u16) -> Result<Box<dyn Target + 'a>, Failure>;
    /// Makes a directory and opens it.
    fn mkdir(&self, name: &OsStr, perm: u16) -> Result<Rc<dyn Dir<'a> + 'a>, Failure>;
    /// Makes a symbolic link.
    fn symlink(&self, name: &OsStr, says: &Path) -> Result<Found<'a>, Failure>;
    /// Makes a device node, pipe or socket.
    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> Result<Found<'a>, Failure>;
    /// Gives the first copy of a file another name, here.
    fn hard_link(&self, name: &OsStr, first: &First) -> Result<(), Failure>;
    /// Removes a name of anything but a directory.
    fn remove(&self, name: &OsStr) -> Result<(), Failure>;
    /// Lets go of its descriptor, if it has one: a deep tree has more directories than a process
    /// may open.
    fn park(&self);
    /// Gets the descriptor of the directory above back, if that was parked.
    fn restore_parent(&self) -> Result<(), Failure>;
}

/// A side of a copy: where paths lead.
pub(crate) trait FileTree<'a> {
    /// How a path is shown in messages.
    fn show(&self, path: &Path) -> String;
    /// The data that all files together can have.
    fn budget(&self) -> Result<DataBudget, Failure>;
    /// Whether this is the live system: there is something behind devices and pipes, and symbolic
    /// links lead out of a tree.
    fn live(&self) -> bool;
    /// What is at a path; `None` if there is nothing.
    fn item(&self, path: &Path, follow: bool) -> Result<Option<Found<'a>>, Failure>;
    /// The directory that the last name of a path is in, and that name.
    fn parent(&self, path: &Path) -> Result<(Rc<dyn Dir<'a> + 'a>, OsString), Failure>;
}
