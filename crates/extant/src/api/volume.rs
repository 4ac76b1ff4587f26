//! A mounted file system at the level of inodes.

use std::sync::{Arc, OnceLock};

use extant_units::Ino;

use super::types::{Attr, Dirent, FileKind, FsStat, RenameFlags, SeekTarget, SetAttr, XattrMode};
use crate::file::{self, OpenState, Whence, WriteAt};
use crate::fs::Fs;
use crate::inode::{self, FlagSet, InodeRef};
use crate::mount::{self, ShutdownMode};
use crate::{Cred, Error, Result, dir, namei, statfs, xattr};

/// A counted reference to an inode of a [`Volume`]. While one exists, the inode keeps its number and its content
/// even if its last name goes.
#[derive(Clone)]
pub struct Node {
    inode: InodeRef,
    /// What reading and error reporting remember between calls; made at the first use.
    open: Arc<OnceLock<OpenState>>,
}

impl Node {
    fn new(inode: InodeRef) -> Self {
        Self {
            inode,
            open: Arc::default(),
        }
    }

    /// The reader's state, for regular files.
    fn open(&self, fs: &Arc<Fs>) -> Option<&OpenState> {
        let regular = self.inode.kind == FileKind::Regular;
        regular.then(|| self.open.get_or_init(|| file::open(fs, &self.inode)))
    }

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
    fs: Arc<Mounted>,
}

/// A mounted file system that nobody has unmounted yet. Dropping it does.
struct Mounted(Arc<Fs>);

impl std::ops::Deref for Mounted {
    type Target = Arc<Fs>;

    fn deref(&self) -> &Arc<Fs> {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = mount::unmount(&self.0) {
            tracing::error!(%error, "the file system could not be unmounted cleanly");
        }
    }
}

impl Volume {
    pub(super) fn new(fs: Arc<Fs>) -> Self {
        let fs = Arc::new(Mounted(fs));
        Self { fs }
    }

    /// Fails once the file system was shut down.
    fn check(&self) -> Result<()> {
        self.fs.fault.check_alive()
    }

    /// The root directory.
    pub fn root(&self) -> Result<Node> {
        self.node(Ino::ROOT)
    }

    /// The inode of a number, for front ends that hand out numbers (NFS handles). [`crate::Error::Stale`] if it is free.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        self.check()?;
        Ok(Node::new(self.fs.iget(ino)?))
    }

    /// Finds `name` in `dir`.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        self.check()?;
        Ok(Node::new(namei::lookup(&self.fs, &dir.inode, name)?))
    }

    /// Calls `each` for the entries of `dir` from position `pos` (0 for the first) until it returns `false`, `.` and `..`
    /// included. Nothing is locked while `each` runs that a call on another inode would need.
    pub fn readdir(
        &self,
        dir: &Node,
        pos: u64,
        each: &mut dyn FnMut(Dirent<'_>) -> bool,
    ) -> Result<()> {
        self.check()?;
        dir::read(&self.fs, &dir.inode, pos, each)?;
        inode::touch_atime(&self.fs, &dir.inode);
        Ok(())
    }

    /// Creates a regular file.
    pub fn create(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::create(
            &self.fs, &dir.inode, name, perm, cred,
        )?))
    }

    /// Creates a directory.
    pub fn mkdir(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::mkdir(
            &self.fs, &dir.inode, name, perm, cred,
        )?))
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
        let made = namei::mknod(&self.fs, &dir.inode, name, (kind, rdev), perm, cred)?;
        Ok(Node::new(made))
    }

    /// Creates a symbolic link.
    pub fn symlink(&self, dir: &Node, name: &[u8], target: &[u8], cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::symlink(
            &self.fs, &dir.inode, name, target, cred,
        )?))
    }

    /// Creates a regular file without a name; [`Volume::link`] may give it one.
    pub fn tmpfile(&self, dir: &Node, perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::tmpfile(&self.fs, &dir.inode, perm, cred)?))
    }

    /// Gives `node` another name.
    pub fn link(&self, node: &Node, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        namei::link(&self.fs, &node.inode, &dir.inode, name, cred)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        namei::unlink(&self.fs, &dir.inode, name)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        namei::rmdir(&self.fs, &dir.inode, name)
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
        let (old, new) = ((&old_dir.inode, old_name), (&new_dir.inode, new_name));
        namei::rename(&self.fs, old, new, flags, cred)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        self.check()?;
        let target = inode::readlink(&self.fs, &node.inode)?;
        inode::touch_atime(&self.fs, &node.inode);
        Ok(target)
    }

    /// The attributes.
    pub fn getattr(&self, node: &Node) -> Result<Attr> {
        self.check()?;
        Ok(inode::getattr(&self.fs, &node.inode))
    }

    /// Changes attributes and returns the new ones.
    pub fn setattr(&self, node: &Node, changes: &SetAttr, cred: &Cred) -> Result<Attr> {
        inode::setattr(&self.fs, &node.inode, changes, cred)?;
        self.getattr(node)
    }

    /// The chattr flags, in Linux's numbers (`FS_*_FL`).
    pub fn flags(&self, node: &Node) -> Result<u32> {
        self.check()?;
        Ok(inode::get_flags(&node.inode))
    }

    /// Sets the chattr flags; those that cannot be set by a user keep their value.
    pub fn set_flags(&self, node: &Node, flags: u32, cred: &Cred) -> Result<()> {
        inode::set_flags(&self.fs, &node.inode, flags, cred)
    }

    /// The project id.
    pub fn project(&self, node: &Node) -> Result<u32> {
        self.check()?;
        Ok(FlagSet::get(&node.inode).project)
    }

    /// The value of an extended attribute; `name` with its namespace (`user.note`).
    pub fn getxattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        self.check()?;
        xattr::get(&self.fs, &node.inode, name)
    }

    /// The names of the extended attributes, each with its namespace.
    pub fn listxattr(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        xattr::list(&self.fs, &node.inode)
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
        xattr::set(&self.fs, &node.inode, name, value, mode, cred)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, node: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        xattr::remove(&self.fs, &node.inode, name, cred)
    }

    /// Reads from byte `pos` into `buf`; returns how much there was: less than asked for only at the end of the file.
    pub fn read(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        self.check()?;
        file::read(&self.fs, &node.inode, node.open(&self.fs), pos, buf)
    }

    /// Writes `data` at byte `pos`, growing the file if needed. Returns how much was written: less than given only if
    /// space ran out or a limit was met on the way.
    pub fn write(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        node.open(&self.fs);
        let at = WriteAt::Pos(pos);
        file::write(&self.fs, &node.inode, at, data, cred).map(|(_, written)| written)
    }

    /// Writes `data` at the end of the file, as one step; returns where that was and how much was written.
    pub fn append(&self, node: &Node, data: &[u8], cred: &Cred) -> Result<(u64, usize)> {
        node.open(&self.fs);
        file::write(&self.fs, &node.inode, WriteAt::End, data, cred)
    }

    /// Makes the file's content durable, and its attributes too unless `datasync` says that those needed to read it
    /// back are enough. For directories: its entries.
    pub fn fsync(&self, node: &Node, datasync: bool) -> Result<()> {
        file::fsync(&self.fs, &node.inode, node.open(&self.fs), datasync)
    }

    /// Finds data or a hole.
    pub fn seek(&self, node: &Node, target: SeekTarget) -> Result<u64> {
        self.check()?;
        let (whence, pos) = match target {
            SeekTarget::Data(pos) => (Whence::Data, pos),
            SeekTarget::Hole(pos) => (Whence::Hole, pos),
        };
        file::seek(&self.fs, &node.inode, whence, pos)
    }

    /// Totals.
    pub fn statfs(&self) -> Result<FsStat> {
        self.check()?;
        self.fs.reap_all(); // what was deleted counts as free
        Ok(statfs::statfs(&self.fs))
    }

    /// Whether the mount refuses changes.
    pub fn read_only(&self) -> bool {
        self.fs.options.read_only()
    }

    /// Makes everything durable that was done before the call.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    /// Stops the file system where it is: every later change fails. With `flush` what was done so far is committed first.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        let mode = if flush {
            ShutdownMode::Flush
        } else {
            ShutdownMode::Now
        };
        mount::shutdown(&self.fs, mode)
    }

    /// Writes everything home, marks the image clean and lets go of it. Later calls on any clone fail; a second
    /// unmount does nothing.
    pub fn unmount(&self) -> Result<()> {
        mount::unmount(&self.fs)
    }
}
