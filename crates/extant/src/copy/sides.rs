//! The calls of a copy on the side it reads from and on the side it writes to.
//!
//! # Responsibility
//! A side that is only read implements the methods without a body. Those with one refuse to change
//! anything.
//!
//! # Invariants
//! A path is followed once, for an operand. From there on each step is one name in a directory that
//! is open, and attributes are set of files that are open: what becomes of names meanwhile leads no
//! step elsewhere.
//!
//! # Errors
//! An error says what happened. The copy adds the path.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant_engine::{DataBudget, FileKind, Timestamp};
use rustix::io::Errno;

use crate::walk_dir::Entered;

/// Attributes, as far as copies preserve them.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits, with set-id bits and the sticky bit.
    pub perm: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Names.
    pub links: u64,
    /// Device number of a device node, in Linux's 32-bit encoding.
    pub rdev: u32,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Identity: equal for the names of one file.
    pub id: Id,
}

/// Identifies a file of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Device number of the file system, 0 in a volume.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// An extended attribute: name with namespace, and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// The length of what ends when it ends: pipes, devices.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// The first copy of a file that has several names.
#[derive(Clone, Debug)]
pub struct FirstName {
    /// The names that lead to it, from the directory where the copy began.
    pub path: PathBuf,
    /// Identity of the file.
    pub id: Id,
}

/// The refusal of a side that is only read.
fn read_only<T>() -> io::Result<T> {
    Err(Errno::ROFS.into())
}

/// A file to read.
pub trait Source {
    /// Reads at a position; zero at the end.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize>;
    /// The next range of data from `pos` on that is not a hole: its beginning and end. `None` if
    /// only holes follow.
    fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>>;
    /// The length now; `u64::MAX` of what ends when it ends.
    fn len_now(&self) -> io::Result<u64>;
}

/// A file to write.
pub trait Sink<'a> {
    /// Writes all of it at a position.
    fn write_at(&self, data: &[u8], pos: u64) -> io::Result<()>;
    /// Ends the file here.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The file, to change its attributes; `None` of devices and pipes, which keep theirs.
    fn file(&self) -> Option<&AnyFile<'a>>;
}

/// Any file of a side.
pub type AnyFile<'a> = dyn TreeFile<'a> + 'a;

/// A file that was found.
pub type Found<'a> = Rc<AnyFile<'a>>;

/// The names in a directory; those of a volume as many at a time as fit bounded memory.
pub type Names = Box<dyn Iterator<Item = io::Result<OsString>>>;

/// A file that was found, by name or by path; a symbolic link itself unless it was asked to be
/// followed. Names in a directory are single ones, and links are not followed.
pub trait TreeFile<'a> {
    /// The attributes when it was found.
    fn attributes(&self) -> &Attributes;
    /// Returns whether nothing describes it: a directory that an archive has names below, and no
    /// entry of.
    fn is_implied(&self) -> bool {
        false
    }
    /// The target of a symbolic link.
    fn read_link(&self) -> io::Result<PathBuf>;
    /// The extended attributes.
    fn xattrs(&self) -> io::Result<Vec<Xattr>>;
    /// Opens a file for reading.
    fn open(&self) -> io::Result<Box<dyn Source + 'a>>;
    /// Opens a directory. One that is only written to need not be readable.
    fn enter(&self) -> io::Result<Found<'a>>;
    /// Notes that a directory is entered. Returns `false` for one that was entered before and moved
    /// since; a second name of one is damage.
    fn note(&self, _entered: &mut Entered) -> io::Result<bool> {
        Ok(true)
    }
    /// The names in an open directory, in order.
    fn names(&self) -> io::Result<Names>;
    /// The file of this name in an open directory.
    fn find(&self, name: &OsStr) -> io::Result<Option<Found<'a>>>;
    /// Closes the descriptor of an open directory, if it has one: a deep tree has more directories
    /// than a process may open.
    fn park(&self) {}
    /// Opens the directory above again, if that was parked.
    fn restore_parent(&self) -> io::Result<()> {
        Ok(())
    }

    /// Sets owner and group; `false` if this side does not let its caller do so.
    fn set_owner(&self, _uid: u32, _gid: u32) -> io::Result<bool> {
        read_only()
    }
    /// Sets the permission bits of anything but a link.
    fn set_perm(&self, _perm: u16) -> io::Result<()> {
        read_only()
    }
    /// Sets the times.
    fn set_times(&self, _like: &Attributes) -> io::Result<()> {
        read_only()
    }
    /// Sets an extended attribute. For one that this side cannot store, returns the reason.
    fn set_xattr(&self, _xattr: &Xattr) -> io::Result<Option<String>> {
        read_only()
    }
    /// Removes an extended attribute, if it is there and can be removed.
    fn drop_xattr(&self, _name: &str) {}
    /// Opens a regular file to write it anew, and empties it.
    fn rewrite(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        read_only()
    }
    /// Opens a device or pipe to write into it.
    fn open_device(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        read_only()
    }

    /// Creates a regular file in an open directory, where there is nothing.
    fn create(&self, _name: &OsStr, _perm: u16) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        read_only()
    }
    /// Makes a directory and opens it.
    fn mkdir(&self, _name: &OsStr, _perm: u16) -> io::Result<Found<'a>> {
        read_only()
    }
    /// Makes a symbolic link.
    fn symlink(&self, _name: &OsStr, _target: &Path) -> io::Result<Found<'a>> {
        read_only()
    }
    /// Makes a device node, pipe or socket.
    fn make_node(&self, _name: &OsStr, _like: &Attributes, _perm: u16) -> io::Result<Found<'a>> {
        read_only()
    }
    /// Gives the first copy of a file another name, here.
    fn hard_link(&self, _name: &OsStr, _first: &FirstName) -> io::Result<()> {
        read_only()
    }
    /// Removes a name of anything but a directory.
    fn remove(&self, _name: &OsStr) -> io::Result<()> {
        read_only()
    }
}

/// A side of a copy: the files that paths lead to.
pub trait FileTree<'a> {
    /// Returns whether this is the live system: there is something behind devices and pipes, and
    /// symbolic links lead out of a tree.
    fn is_live(&self) -> bool {
        false
    }
    /// The data that all files together can have.
    fn budget(&self) -> io::Result<DataBudget> {
        Ok(DataBudget::unbounded())
    }
    /// The file at a path; `None` if there is nothing.
    fn item(&self, path: &Path, follow: bool) -> io::Result<Option<Found<'a>>>;
    /// The directory that the last name of a path is in, and that name.
    fn parent(&self, _path: &Path) -> io::Result<(Found<'a>, OsString)> {
        read_only()
    }
}
