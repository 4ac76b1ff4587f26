//! A mounted file system at the level of inodes.

use std::sync::Arc;

use extant_iomap::ReadView;
use extant_units::Ino;
use tracing::error;

use super::node::Node;
use crate::BufferedPath;
use crate::Cred;
use crate::Result;
use crate::attr::{self, FlagSet};
use crate::dir;
use crate::file;
use crate::file::{Reader, Whence, WriteAt};
use crate::inode;
use crate::inspect::usage;
use crate::mount::{self, ShutdownMode};
use crate::namei;
use crate::namei::symlink_target;
use crate::types::{
    Attr, Dirent, FallocateMode, FileKind, FsStat, RenameFlags, SeekTarget, SetAttr, XattrMode,
};
use crate::volume::Fs;
use crate::xattr;

/// A mounted file system. Clones are the same file system; it stays mounted until [`Volume::unmount`], or until the
/// last clone is dropped.
///
/// Permissions (rwx) are not checked here: the caller is a front end that has done so, or acts for itself.
/// Everything else is as Linux does it: limits, set-id bits, immutable and append-only files, link counts.
#[derive(Clone)]
pub struct Volume(Arc<Mounted>);

/// Unmounts when the last user is gone.
struct Mounted(Arc<Fs>);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = mount::unmount(&self.0) {
            error!("unmount: {error}");
        }
    }
}

impl Volume {
    pub(super) fn new(fs: Arc<Fs>) -> Volume {
        Volume(Arc::new(Mounted(fs)))
    }

    pub(super) fn fs(&self) -> &Arc<Fs> {
        &self.0.0
    }

    /// The root directory.
    ///
    /// # Errors
    /// Damage, or a file system that is shut down: as with every call here, and not repeated below.
    pub fn root(&self) -> Result<Node> {
        self.node(Ino::ROOT)
    }

    /// The inode of a number, for front ends that hand out numbers.
    ///
    /// # Errors
    /// [`crate::Error::Stale`] if it is free or one of the format's own.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        self.fs().fault.check_alive()?;
        Ok(Node::new(self.fs().iget(ino)?))
    }

    /// Opens `node`: failures to write it back from here on are told to its next [`Volume::fsync`]. Without this, its first
    /// read or write opens it.
    pub fn open(&self, node: &Node) {
        node.open(self.fs());
    }

    /// Whether `other` is the same mount.
    pub fn is_same(&self, other: &Volume) -> bool {
        Arc::ptr_eq(self.fs(), other.fs())
    }

    /// Finds `name`, `.` and `..` included, in `dir`.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`], [`crate::Error::NameTooLong`], [`crate::Error::NotDir`].
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Node> {
        self.fs().fault.check_alive()?;
        Ok(Node::new(namei::lookup(self.fs(), dir.inode(), name)?))
    }

    /// Calls `each` for the entries of `dir` from position `pos` (0 for the first) until it returns `false`, `.` and `..`
    /// included. No lock is held while `each` runs.
    ///
    /// # Errors
    /// [`crate::Error::NotDir`].
    pub fn readdir(
        &self,
        dir: &Node,
        pos: u64,
        each: &mut dyn FnMut(Dirent<'_>) -> bool,
    ) -> Result<()> {
        self.fs().fault.check_alive()?;
        dir::read(self.fs(), dir.inode(), pos, each)?;
        inode::touch_atime(self.fs(), dir.inode());
        Ok(())
    }

    /// Creates a regular file.
    ///
    /// # Errors
    /// As open(2) with `O_CREAT | O_EXCL`.
    pub fn create(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::create(
            self.fs(),
            dir.inode(),
            name,
            perm,
            cred,
        )?))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, dir: &Node, name: &[u8], perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::mkdir(
            self.fs(),
            dir.inode(),
            name,
            perm,
            cred,
        )?))
    }

    /// Creates a device node, named pipe, socket or regular file. `rdev` counts for device nodes only.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(
        &self,
        dir: &Node,
        name: &[u8],
        kind: FileKind,
        perm: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Node> {
        let made = namei::mknod(self.fs(), dir.inode(), name, (kind, rdev), perm, cred)?;
        Ok(Node::new(made))
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, dir: &Node, name: &[u8], target: &[u8], cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::symlink(
            self.fs(),
            dir.inode(),
            name,
            target,
            cred,
        )?))
    }

    /// Creates a regular file without a name; [`Volume::link`] may give it one.
    ///
    /// # Errors
    /// As open(2) with `O_TMPFILE`.
    pub fn tmpfile(&self, dir: &Node, perm: u16, cred: &Cred) -> Result<Node> {
        Ok(Node::new(namei::tmpfile(
            self.fs(),
            dir.inode(),
            perm,
            cred,
        )?))
    }

    /// Gives `node` another name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, node: &Node, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        namei::link(self.fs(), node.inode(), dir.inode(), name, cred)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        // Who asks decides nothing yet, but every change says it.
        let _ = cred;
        namei::unlink(self.fs(), dir.inode(), name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, dir: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        // Who asks decides nothing yet, but every change says it.
        let _ = cred;
        namei::rmdir(self.fs(), dir.inode(), name)
    }

    /// Moves `old_name` of `old_dir` to `new_name` of `new_dir`, replacing what is there if it may be replaced.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(
        &self,
        old_dir: &Node,
        old_name: &[u8],
        new_dir: &Node,
        new_name: &[u8],
        flags: RenameFlags,
        cred: &Cred,
    ) -> Result<()> {
        let (old, new) = ((old_dir.counted(), old_name), (new_dir.counted(), new_name));
        namei::rename(self.fs(), old, new, flags, cred)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for anything else.
    pub fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        self.fs().fault.check_alive()?;
        let target = symlink_target::readlink(self.fs(), node.inode())?;
        inode::touch_atime(self.fs(), node.inode());
        Ok(target)
    }

    /// The attributes.
    ///
    /// # Errors
    /// None of its own.
    pub fn getattr(&self, node: &Node) -> Result<Attr> {
        self.fs().fault.check_alive()?;
        Ok(attr::getattr(self.fs(), node.inode()))
    }

    /// Changes attributes and returns the new ones.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2) and utimensat(2).
    pub fn setattr(&self, node: &Node, changes: &SetAttr, cred: &Cred) -> Result<Attr> {
        attr::setattr(self.fs(), node.inode(), changes, cred)?;
        self.getattr(node)
    }

    /// The chattr flags, in Linux's numbers (`FS_*_FL`).
    ///
    /// # Errors
    /// None of its own.
    pub fn flags(&self, node: &Node) -> Result<u32> {
        self.fs().fault.check_alive()?;
        Ok(attr::get_flags(node.inode()))
    }

    /// Sets the chattr flags; those that cannot be set by a user keep their value.
    ///
    /// # Errors
    /// As `FS_IOC_SETFLAGS`.
    pub fn set_flags(&self, node: &Node, flags: u32, cred: &Cred) -> Result<()> {
        attr::set_flags(self.fs(), node.inode(), flags, cred)
    }

    /// The other view of the flags, `FS_XFLAG_*`, and the project id.
    ///
    /// # Errors
    /// None of its own.
    pub fn xflags(&self, node: &Node) -> Result<(u32, u32)> {
        self.fs().fault.check_alive()?;
        let FlagSet { xflags, project } = FlagSet::get(node.inode());
        Ok((xflags, project))
    }

    /// Sets the flags of the other view and the project id.
    ///
    /// # Errors
    /// As `FS_IOC_FSSETXATTR`.
    pub fn set_xflags(&self, node: &Node, xflags: u32, project: u32, cred: &Cred) -> Result<()> {
        FlagSet { xflags, project }.set(self.fs(), node.inode(), cred)
    }

    /// The value of an extended attribute; `name` with its namespace (`user.note`).
    ///
    /// # Errors
    /// [`crate::Error::NoAttribute`]; [`crate::Error::NotSupported`] for other namespaces than those of ext4.
    pub fn getxattr(&self, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        self.fs().fault.check_alive()?;
        xattr::get(self.fs(), node.inode(), name)
    }

    /// The names of the extended attributes, each with its namespace.
    ///
    /// # Errors
    /// None of its own.
    pub fn listxattr(&self, node: &Node) -> Result<Vec<Vec<u8>>> {
        self.fs().fault.check_alive()?;
        xattr::list(self.fs(), node.inode())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn setxattr(
        &self,
        node: &Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        cred: &Cred,
    ) -> Result<()> {
        xattr::set(self.fs(), node.inode(), name, value, mode, cred)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn removexattr(&self, node: &Node, name: &[u8], cred: &Cred) -> Result<()> {
        xattr::remove(self.fs(), node.inode(), name, cred)
    }

    /// Reads from byte `pos` into `buf`; returns how much there was: less than asked for only at the end of the file, or
    /// where the device failed.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if nothing could be read; [`crate::Error::IsDir`] and [`crate::Error::Invalid`] for what holds no data.
    pub fn read(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_as(Reader::Ordinary, node, pos, buf)
    }

    /// [`Volume::read`] for front ends whose callers cache what they read, such as a kernel: bytes that are not cached here
    /// already are read past the cache, straight into `buf`, and take no memory twice. Blocks that somebody else writes at
    /// the same moment may be seen half old, half new.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_uncached(&self, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_as(Reader::Caching, node, pos, buf)
    }

    fn read_as(&self, reader: Reader, node: &Node, pos: u64, buf: &mut [u8]) -> Result<usize> {
        let open = node.open(self.fs());
        file::read(self.fs(), node.inode(), open, reader, pos, buf)
    }

    /// Writes `data` at byte `pos`, growing the file if needed. Returns how much was written: less than given only if
    /// space ran out or a limit was met on the way.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        // A failure to write this back is one that the node's next fsync tells.
        let open = node.open(self.fs());
        let at = WriteAt::Pos(pos);
        let wrote = file::write(self.fs(), node.inode(), open, at, data, cred);
        wrote.map(|(_, written)| written)
    }

    /// Writes back what a cache above this one took earlier (the kernel's page cache of a mount): like [`Volume::write`], but
    /// no privileges are taken away and no time is noted, which that cache did when it took the write, and what the
    /// file's flags forbid by now does not matter. Large pieces go straight to the device and
    /// are cached no second time. The caller keeps pieces that overlap apart.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn write_back(&self, node: &Node, pos: u64, data: &[u8], cred: &Cred) -> Result<usize> {
        let open = node.open(self.fs());
        let at = WriteAt::Cached(pos);
        let wrote = file::write(self.fs(), node.inode(), open, at, data, cred);
        wrote.map(|(_, written)| written)
    }

    /// Writes `data` at the end of the file, as one step; returns where that was and how much was written.
    ///
    /// # Errors
    /// As write(2) with `O_APPEND`.
    pub fn append(&self, node: &Node, data: &[u8], cred: &Cred) -> Result<(u64, usize)> {
        let open = node.open(self.fs());
        let at = WriteAt::End;
        file::write(self.fs(), node.inode(), open, at, data, cred)
    }

    /// Drops from memory what is cached of the file and also on the device: the POSIX_FADV_DONTNEED of posix_fadvise(2). Changes
    /// that are not written yet stay.
    pub fn drop_cached(&self, node: &Node) {
        file::drop_clean(node.inode());
    }

    /// Makes the file's content durable, and its attributes too unless `datasync` says that those needed to read it
    /// back are enough. For directories: its entries.
    ///
    /// # Errors
    /// Whatever kept data from the device, once for each node.
    pub fn fsync(&self, node: &Node, datasync: bool) -> Result<()> {
        file::fsync(self.fs(), node.inode(), node.open(self.fs()), datasync)
    }

    /// Shows `len` bytes from byte `pos` on, or as many as the file has there, where they lie in the page cache: a snapshot
    /// without a copy. At most [`crate::MAX_VIEW`] bytes. See [`ReadView`].
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn view(&self, node: &Node, pos: u64, len: usize) -> Result<ReadView> {
        file::view(self.fs(), node.inode(), node.open(self.fs()), pos, len)
    }

    /// Has `change` alter `len` bytes from byte `pos` on where they lie in the page cache, as a store into a shared mapping of the file
    /// would. It is called with the position and the bytes of one piece after the other, each as long as they lie together;
    /// never past the end of the file. Space is taken before a piece is shown; afterwards it is dirty, whatever `change` did. Returns
    /// the bytes changed: fewer than `len` at the end of the file, or if an error came after some. (On the per-block path the pieces
    /// are copies that are written afterwards, and space is taken then.)
    ///
    /// Others that want the bytes of a piece wait until `change` returns. It must not use this file system: on its own
    /// thread every call fails with [`crate::Error::Deadlock`]; waiting for another thread that uses it would hang.
    ///
    /// # Errors
    /// As pwrite(2), if nothing was shown; [`crate::Error::NoSpace`] if there is none for the first piece.
    pub fn edit(
        &self,
        node: &Node,
        pos: u64,
        len: usize,
        cred: &Cred,
        change: impl FnMut(u64, &mut [u8]),
    ) -> Result<usize> {
        let open = node.open(self.fs());
        file::edit(self.fs(), node.inode(), open, (pos, len), cred, change)
    }

    /// Allocates, frees, zeroes or moves `len` bytes of a regular file from byte `offset` on. Durable on return only with
    /// the mount option `sync` or the file's flag.
    ///
    /// # Errors
    /// As fallocate(2), and with nothing changed then; but [`crate::Error::NoSpace`] may come after a part was allocated.
    pub fn fallocate(
        &self,
        node: &Node,
        mode: FallocateMode,
        offset: u64,
        len: u64,
        cred: &Cred,
    ) -> Result<()> {
        // A failure to write what must survive is one that the node's next fsync tells as well.
        node.open(self.fs());
        file::fallocate(self.fs(), node.inode(), mode, (offset, len), cred)
    }

    /// Finds data or a hole.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchAddress`] at or past the end of the file, or if no data follows.
    pub fn seek(&self, node: &Node, target: SeekTarget) -> Result<u64> {
        let (whence, pos) = match target {
            SeekTarget::Data(pos) => (Whence::Data, pos),
            SeekTarget::Hole(pos) => (Whence::Hole, pos),
        };
        file::seek(self.fs(), node.inode(), whence, pos)
    }

    /// Which code moves a regular file's data: what the mount asks for, unless the file cannot have it.
    ///
    /// # Errors
    /// [`crate::Error::IsDir`] and [`crate::Error::Invalid`] for what is no regular file.
    pub fn buffered_path(&self, node: &Node) -> Result<BufferedPath> {
        file::buffered_path(self.fs(), node.inode())
    }

    /// Moves a file's data to another path while the file is in use: what is dirty is written, and the cache emptied.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] if the file cannot have that path; [`crate::Error::Busy`] if it goes on being dirtied through mappings;
    /// what keeps its data from being written.
    pub fn set_buffered_path(&self, node: &Node, path: BufferedPath) -> Result<()> {
        file::set_buffered_path(self.fs(), node.inode(), path)
    }

    /// Totals.
    ///
    /// # Errors
    /// None of its own.
    pub fn statfs(&self) -> Result<FsStat> {
        self.fs().fault.check_alive()?;
        // Space of deleted files counts as free as soon as it is.
        self.fs().reap_all();
        Ok(usage::statfs(self.fs()))
    }

    /// Bytes that writers may still take, by counters alone: of root's files (`privileged`), or of
    /// other users'. Space of deleted files is missing until it is free.
    pub fn room(&self, privileged: bool) -> u64 {
        let blocks = self.fs().alloc.counts.room(privileged);
        blocks.saturating_mul(self.fs().layout.block_size.bytes_u64())
    }

    /// The finest time that every inode can hold, in nanoseconds: 1, or a whole second where inodes have 128 bytes.
    pub fn time_granularity(&self) -> u32 {
        // From 256 bytes on Linux and mke2fs give inodes their nanoseconds.
        if self.fs().layout.inode_size > 128 {
            1
        } else {
            1_000_000_000
        }
    }

    /// Whether the mount refuses changes: it was asked for so, or a fault has stopped it.
    pub fn read_only(&self) -> bool {
        matches!(
            self.fs().check_writable(),
            Err(crate::Error::ReadOnly | crate::Error::Shutdown(_))
        )
    }

    /// The block size in bytes.
    pub fn block_size(&self) -> u32 {
        1 << self.fs().layout.block_size.log2()
    }

    /// The engine's counters since the mount, by name: what was done, not how long it took.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        crate::inspect::layer_counters::snapshot(self.fs())
    }

    /// Drops everything cached of files that is not dirty: later reads come from the device. For measuring, and for giving
    /// memory back.
    pub fn drop_caches(&self) {
        if self.fs().fault.check_not_editing().is_ok() {
            file::drop_caches(self.fs());
        }
    }

    /// Checks what is in memory against itself and the map on disk; with `synced`, that nothing is dirty as well. No
    /// operation may run meanwhile. For tests.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    #[doc(hidden)]
    pub fn verify(
        &self,
        verifier: &mut crate::Verifier,
        synced: bool,
    ) -> std::result::Result<(), String> {
        verifier.check(self.fs(), synced)
    }

    /// Waits until the file system's own threads have done what operations left to them: deletions, and commits that were asked
    /// for. For tests. Hold no open operation.
    #[doc(hidden)]
    pub fn settle(&self) {
        self.fs().inodes.reaper.wait_for_thread();
        self.fs().journal.wait_until_idle();
    }

    /// Makes everything durable that was done before the call.
    ///
    /// # Errors
    /// Those of writing.
    pub fn sync(&self) -> Result<()> {
        self.fs().sync()
    }

    /// Stops the file system where it is: every later call fails, the image needs its journal. With `flush`, what was
    /// done so far is made durable first.
    ///
    /// # Errors
    /// What was to be made durable could not be; the file system is stopped all the same.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        self.fs().fault.check_not_editing()?;
        let mode = if flush {
            ShutdownMode::Flush
        } else {
            ShutdownMode::Now
        };
        mount::shutdown(self.fs(), mode)
    }

    /// Writes everything home, marks the image clean and lets go of it. Later calls on any clone fail; a second
    /// unmount does nothing.
    ///
    /// # Errors
    /// What writing brings: then the image is not clean, and the next mount replays its journal.
    pub fn unmount(&self) -> Result<()> {
        self.fs().fault.check_not_editing()?;
        mount::unmount(self.fs())
    }
}
