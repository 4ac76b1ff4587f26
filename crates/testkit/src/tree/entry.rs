//! One entry of a tree.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Kind of an entry, with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Hash of its bytes.
        hash: u64,
    },
    /// A directory.
    Dir,
    /// A symbolic link and its target.
    Symlink(PathBuf),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device's number.
    Char(u64),
    /// A block device's number.
    Block(u64),
}

/// A time in nanoseconds since the epoch, negative before it.
pub type Nanos = i128;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Permission and set-id bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u64,
    /// Last modification.
    pub mtime: Nanos,
    /// Last access.
    pub atime: Nanos,
    /// Last change.
    pub ctime: Nanos,
    /// Inode number.
    pub ino: u64,
    /// Allocated 512-byte units.
    pub blocks: u64,
    /// Extended attributes, POSIX ACLs among them.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    /// The first path, in order, of those that share this inode; its own if there is one only.
    pub first_link: PathBuf,
}
