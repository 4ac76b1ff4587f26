//! A mounted file system at the level of inodes.

use std::sync::Arc;

use extant_units::Ino;

use super::types::{Attr, Dirent, FileKind, FsStat, RenameFlags, SeekTarget, SetAttr, XattrMode};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Cred, Result};

/// A counted reference to an inode of a [`Volume`]. While one exists, the inode keeps its number and its content
/// even if its last name goes.
#[derive(Clone)]
pub struct Node {
    inode: Arc<Inode>,
}

impl Node {
    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// Changes each time the number is used again.
    pub fn generation(&self) -> u32 {
        self.inode.generation
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.inode.kind
    }
}

/// A mounted file system. Clones are the same file system; it stays mounted until [`Volume::unmount`], or until the
/// last clone is dropped.
///
/// Permissions (rwx) are not checked here: the caller is a front end that has done so, or acts for itself.
/// Everything else is as Linux does it: limits, set-id bits, immutable and append-only files, link counts.
#[derive(Clone)]
pub struct Volume {
    fs: Arc<Fs>,
}

#[allow(unused_variables, reason = "the engine lands piece by piece")]
impl Volume {
    /// The root directory.
    pub fn root(&self) -> Result<Node> {
        todo!()
    }

    /// The inode of a number, for front ends that hand out numbers (NFS handles). [`crate::Error::Stale`] if it is free.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        todo!()
    }

    /// Finds `name` in `dir`.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        todo!()
    }

    /// Calls `each` for the entries of `dir` from position `pos` (0 for the first) until it returns `false`, `.` and `..`
    /// included. Nothing is locked while `each` runs that a call on another inode would need.
    pub fn readdir(
        &self,
        dir: &Node,
        pos: u64,
        each: &mut dyn FnMut(Dirent<'_>) -> bool,
    ) -> Result<()> {
        todo!()
    }

    /// Creates a regular file.
    pub fn create(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        todo!()
    }

    /// Creates a directory.
    pub fn mkdir(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        todo!()
    }

    /// Creates a device node, named pipe, socket or regular file. `rdev` counts for device nodes only.
    pub fn mknod(
        &self,
        dir: &Node,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Node> {
        todo!()
    }

    /// Creates a symbolic link.
    pub fn symlink(&self, dir: &Node, name: &[u8], target: &[u8], cred: &Cred) -> Result<Node> {
        todo!()
    }

    /// Creates a regular file without a name; [`Volume::link`] may give it one.
    pub fn tmpfile(&self, dir: &Node, perm: u16, cred: &Cred) -> Result<Node> {
        todo!()
    }

    /// Gives `node` another name.
    pub fn link(&self, node: &Node, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        todo!()
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        todo!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        todo!()
    }

    /// Moves `old_name` of `old_dir` to `new_name` of `new_dir`, replacing what is there if it may be replaced.
    pub fn rename(
        &self,
        old_dir: &Node,
        old_name: &[u8],
        new_dir: &Node,
        new_name: &[u8],
        flags: RenameFlags,
        cred: &Cred,
    ) -> Result<()> {
        todo!()
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        todo!()
    }

    /// The attributes.
    pub fn getattr(&self, node: &Node) -> Result<Attr> {
        todo!()
    }

    /// Changes attributes and returns the new ones.
    pub fn setattr(&self, node: &Node, changes: &SetAttr, cred: &Cred) -> Result<Attr> {
        todo!()
    }

    /// The chattr flags, in Linux's numbers (`FS_*_FL`).
    pub fn flags(&self, node: &Node) -> Result<u32> {
        todo!()
    }

    /// Sets the chattr flags; those that cannot be set by a user keep their value.
    pub fn set_flags(&self, node: &Node, flags: u32, cred: &Cred) -> Result<()> {
        todo!()
    }

    /// The project id.
    pub fn project(&self, node: &Node) -> Result<u32> {
        todo!()
    }

    /// The value of an extended attribute; `name` with its namespace (`user.note`).
    pub fn getxattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        todo!()
    }

    /// The names of the extended attributes, each with its namespace.
    pub fn listxattr(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        todo!()
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        cred: &Cred,
    ) -> Result<()> {
        todo!()
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, node: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        todo!()
    }

    /// Reads from byte `pos` into `buf`; returns how much there was: less than asked for only at the end of the file.
    pub fn read(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        todo!()
    }

    /// Writes `data` at byte `pos`, growing the file if needed. Returns how much was written: less than given only if
    /// space ran out or a limit was met on the way.
    pub fn write(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        todo!()
    }

    /// Writes `data` at the end of the file, as one step; returns where that was and how much was written.
    pub fn append(&self, node: &Node, data: &[u8], cred: &Cred) -> Result<(u64, usize)> {
        todo!()
    }

    /// Makes the file's content durable, and its attributes too unless `datasync` says that those needed to read it
    /// back are enough. For directories: its entries.
    pub fn fsync(&self, node: &Node, datasync: bool) -> Result<()> {
        todo!()
    }

    /// Finds data or a hole.
    pub fn seek(&self, node: &Node, target: SeekTarget) -> Result<u64> {
        todo!()
    }

    /// Totals.
    pub fn statfs(&self) -> Result<FsStat> {
        todo!()
    }

    /// Whether the mount refuses changes.
    pub fn read_only(&self) -> bool {
        self.fs.options.read_only()
    }

    /// Makes everything durable that was done before the call.
    pub fn sync(&self) -> Result<()> {
        todo!()
    }

    /// Stops the file system where it is: every later change fails. With `flush` what was done so far is committed first.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        todo!()
    }

    /// Writes everything home, marks the image clean and lets go of it. Later calls on any clone fail; a second
    /// unmount does nothing.
    pub fn unmount(&self) -> Result<()> {
        todo!()
    }
}
