//! A mounted file system by inodes.

use std::fmt;
use std::sync::Arc;

use extant_disk::features::Incompat;
use extant_units::Ino;
use tracing::error;

use super::dir_batch::DirBatch;
use super::node::Node;
use crate::api::inspect::usage;
use crate::attr::{self, FlagSet};
use crate::mount::{self, ShutdownMode};
use crate::namei::ParentAndName;
use crate::state::alloc::DirtyBound;
use crate::types::{Attr, Dirent, FileKind, FsStat, RenameFlags, SetAttr, XattrMode};
use crate::volume::Fs;
use crate::{Cred, Result, dir, file, inode, namei, symlink, xattr};

/// A mounted file system. Clones are the same file system; it stays mounted until
/// [`Volume::unmount`], or until the last clone is dropped.
///
/// Permissions (rwx) are not checked here: the caller is a front end that has checked them, or acts
/// for itself. Everything else follows Linux: limits, set-id bits, immutable and append-only files,
/// link counts.
#[derive(Clone)]
pub struct Volume(Arc<Mounted>);

/// Unmounts when the last clone is dropped.
struct Mounted(Arc<Fs>);

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fs = self.fs();
        f.debug_struct("Volume")
            .field("block_size", &fs.layout.block_size.bytes())
            .field("read_only", &fs.options.read_only())
            .finish_non_exhaustive()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !mount::is_unmounted(&self.0)
            && let Err(error) = mount::unmount(&self.0)
        {
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

    /// The inode of a number, for front ends that give numbers out.
    ///
    /// # Errors
    /// [`crate::Error::Stale`] if it is free or reserved, or holds the value of an attribute.
    pub fn node(&self, ino: Ino) -> Result<Node> {
        self.fs().fault.check_alive()?;
        Ok(Node::new(self.fs().iget_handle(ino)?))
    }

    /// Opens `node`: its next [`Volume::fsync`] reports failures of writeback from here on. Without
    /// this, its first read or write opens it.
    pub fn open(&self, node: &Node) {
        node.begin(self.fs());
    }

    /// Returns whether `other` is the same mount.
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

    /// The inode that `names`, from the root on, lead to, if earlier lookups found each name above
    /// the last, and no symbolic link has to be followed (the last one is followed, with `follow`).
    /// `None` says nothing: then [`Volume::lookup`] has the answer, name by name.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn find_cached<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]>,
        follow: bool,
    ) -> Result<Option<Node>> {
        self.fs().fault.check_alive()?;
        Ok(namei::find_path(self.fs(), names, follow)?.map(Node::new))
    }

    /// The attributes of what `names`, from the root on, lead to: as [`Volume::find_cached`], but
    /// an inode that is not in memory stays out of it, if the cache of metadata has its record.
    ///
    /// # Errors
    /// Those of reading the inode.
    pub fn stat_cached<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]>,
        follow: bool,
    ) -> Result<Option<Attr>> {
        self.fs().fault.check_alive()?;
        namei::stat_path(self.fs(), names, follow)
    }

    /// Calls `each` for the entries of `dir` from position `pos` (0 for the first) until it returns
    /// `false`, `.` and `..` included. No lock is held while `each` runs.
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

    /// Some entries of `dir` from position `pos` (0 for the first) on, `.` and `..` included: what
    /// one look at the directory gives. [`DirBatch::next_pos`] says where to go on.
    ///
    /// # Errors
    /// [`crate::Error::NotDir`].
    pub fn read_batch(&self, dir: &Node, pos: u64) -> Result<DirBatch> {
        self.fs().fault.check_alive()?;
        let batch = dir::read_batch(self.fs(), dir.inode(), pos)?;
        inode::touch_atime(self.fs(), dir.inode());
        Ok(DirBatch::new(batch))
    }

    /// Reads the inodes with these numbers ahead, in the order of the inode table: for a listing
    /// that will ask for the attributes of each. Some thousand at a time fit the metadata cache.
    pub fn read_inodes_ahead(&self, inodes: &[Ino]) {
        if self.fs().fault.check_alive().is_ok() {
            self.fs().read_inodes_ahead(inodes);
        }
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

    /// Creates a device node, named pipe, socket or regular file. `rdev` counts for device nodes
    /// only.
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
    pub fn unlink(&self, dir: &Node, name: &[u8]) -> Result<()> {
        namei::unlink(self.fs(), dir.inode(), name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, dir: &Node, name: &[u8]) -> Result<()> {
        namei::rmdir(self.fs(), dir.inode(), name)
    }

    /// Moves `old_name` of `old_dir` to `new_name` of `new_dir`, replacing an existing entry if
    /// that may be replaced.
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
        let old = ParentAndName::new(old_dir.counted(), old_name);
        let new = ParentAndName::new(new_dir.counted(), new_name);
        namei::rename(self.fs(), old, new, flags, cred)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for anything else.
    pub fn readlink(&self, node: &Node) -> Result<Vec<u8>> {
        self.fs().fault.check_alive()?;
        let target = symlink::readlink(self.fs(), node.inode())?;
        inode::touch_atime(self.fs(), node.inode());
        Ok(target)
    }

    /// The attributes as they are in memory: also after a shutdown, until the unmount.
    ///
    /// # Errors
    /// None of its own.
    pub fn getattr(&self, node: &Node) -> Result<Attr> {
        let fs = self.fs();
        fs.fault.check_not_editing()?;
        if mount::is_unmounted(fs) {
            fs.fault.check_alive()?;
        }
        Ok(attr::getattr(fs, node.inode()))
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
    /// [`crate::Error::NoAttribute`]; [`crate::Error::NotSupported`] for other namespaces than
    /// those of ext4.
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

    /// The bound of what a cache above this one holds dirty: operations that take space leave as
    /// much free, but for its write-back.
    pub fn dirty_bound(&self) -> DirtyBound {
        let fs = self.fs();
        DirtyBound::of(fs.alloc.counts.dirty_bound(), fs.layout.block_size.log2())
    }

    /// Bytes that writers may still take, by counters alone: of root's files (`privileged`), or of
    /// other users'. Space of deleted files is missing until it is freed. What a cache above this
    /// one holds dirty is not taken yet.
    pub fn room(&self, privileged: bool) -> u64 {
        let blocks = self.fs().alloc.counts.room(privileged);
        blocks.saturating_mul(self.fs().layout.block_size.bytes_u64())
    }

    /// The finest time that every inode can hold, in nanoseconds: 1, or a whole second where inodes
    /// have 128 bytes.
    pub fn time_granularity(&self) -> u32 {
        // From 256 bytes on, Linux and mke2fs give inodes their nanoseconds.
        if self.fs().layout.inode_size > 128 {
            1
        } else {
            1_000_000_000
        }
    }

    /// Returns whether directories can find names in any spelling of their case (`casefold`).
    pub fn may_fold_case(&self) -> bool {
        let features = &self.fs().layout.features;
        features.has_incompat(Incompat::CASEFOLD)
    }

    /// Returns whether there can be encrypted files (`encrypt`).
    pub fn may_encrypt(&self) -> bool {
        let features = &self.fs().layout.features;
        features.has_incompat(Incompat::ENCRYPT)
    }

    /// Returns whether the mount refuses changes: by request, or after a fault.
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

    /// The engine's counters since the mount, by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        crate::api::inspect::layer_counters::snapshot(self.fs())
    }

    /// Drops all clean cached pages of files: later reads come from the device. For measuring, and
    /// to return memory.
    pub fn drop_caches(&self) {
        if self.fs().fault.check_not_editing().is_ok() {
            file::drop_caches(self.fs());
        }
    }

    /// Checks the state in memory against itself and against the map on disk; with `synced`, also
    /// that nothing is dirty. No operation may run meanwhile. For tests.
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

    /// Waits until the file system's own threads have done the work that operations left to them:
    /// evictions, and requested commits. For tests. The caller has no operation running.
    #[doc(hidden)]
    pub fn wait_for_background_work(&self) {
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

    /// Stops the file system in its present state: every later call fails, the image needs its
    /// journal. With `flush`, earlier changes are made durable first.
    ///
    /// # Errors
    /// The failure that kept something from being made durable; the file system is stopped all the
    /// same.
    pub fn shutdown(&self, flush: bool) -> Result<()> {
        self.fs().fault.check_not_editing()?;
        let mode = if flush {
            ShutdownMode::Flush
        } else {
            ShutdownMode::Now
        };
        mount::shutdown(self.fs(), mode)
    }

    /// Returns whether [`Volume::shutdown`] stopped the file system, and no fault before it. Its
    /// unmount then fails with [`crate::Error::Shutdown`] though nothing went wrong.
    pub fn is_shut_down_by_request(&self) -> bool {
        self.fs().fault.is_by_request()
    }

    /// Writes everything home, marks the image clean and releases its device, but for queues that
    /// are still there. Later calls on any clone fail; a second unmount waits for the first and has
    /// its result.
    ///
    /// # Errors
    /// Those of writing: then the image is not clean, and the next mount replays its journal.
    pub fn unmount(&self) -> Result<()> {
        self.fs().fault.check_not_editing()?;
        mount::unmount(self.fs())
    }
}
