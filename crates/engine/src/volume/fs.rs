//! The shared state of a mounted file system.
//!
//! [`Fs`] is the first argument of every operation.
//!
//! # Locks
//! [`Fs`] has no locks of its own but `rename_lock` and `growing`; each part brings its own.
//! `docs/LOCKING.md` has the order of them all. A thread may start a handle while it holds locks
//! that the page lists before the handle, and none of those after it.

use extant_sync::OnceLock;
use extant_sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use extant_blockdev::{BlockDevice, FlushLatch};
use extant_disk::quota::QuotaKind;
use extant_jbd2::{BlockCache, Journal};
use extant_name_cache::NameCache;
use extant_sync::Mutex;

use crate::config::{MountOptions, Tuning};
use crate::state::alloc::Allocator;
use crate::state::attr_blocks::SharedBlocks;
use crate::state::crypt::KeyRing;
use crate::state::file::{FileCallbacks, Files};
use crate::state::group::GroupTable;
use crate::state::inode::{Inode, InodeCache};
use crate::state::map::SharedMaps;
use crate::state::orphans::Orphans;
use crate::state::quota::{Dquot, Quotas};
use crate::state::volume::{
    Fault, Layout, Mmp, MountedSuperblock, OperationRecorder, RenameLock, Stats, SystemZones,
};
use crate::types::error::{Error, Result};
use crate::types::interrupt;

/// A mounted file system.
pub(crate) struct Fs {
    /// The device.
    pub(crate) dev: Arc<dyn BlockDevice>,
    /// Remembers that a flush of `dev` has failed.
    pub(crate) latch: Arc<FlushLatch>,
    /// Geometry and features: fixed at mount.
    pub(crate) layout: Layout,
    /// Metadata blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// Transactions over them, with or without a log.
    pub(crate) journal: Arc<Journal>,
    /// Notes of what the running transaction has done, if fast commits are written.
    pub(crate) operations: Option<Arc<OperationRecorder>>,
    /// The superblock's changing fields.
    pub(crate) super_block: MountedSuperblock,
    /// Group descriptors and bitmaps.
    pub(crate) groups: Arc<GroupTable>,
    /// Free space and reservations.
    pub(crate) alloc: Allocator,
    /// Blocks that no file may claim.
    pub(crate) zones: Arc<SystemZones>,
    /// Inodes in memory.
    pub(crate) inodes: Arc<InodeCache>,
    /// Entries of directories, read without their locks. [`crate::namei`] fills it; every change of
    /// an entry in [`crate::dir`] forgets the name.
    pub(crate) names: NameCache,
    /// State that the inodes' maps share.
    pub(crate) maps: SharedMaps,
    /// Quotas; set by a mount that writes a volume with them.
    pub(crate) quotas: OnceLock<Quotas>,
    /// Attribute blocks that inodes share.
    pub(crate) xattr_blocks: SharedBlocks,
    /// Master keys of encrypted files.
    pub(crate) keys: KeyRing,
    /// The page cache, and what else regular files share.
    pub(crate) files: Files,
    /// Unlinked and half-truncated inodes.
    pub(crate) orphans: Orphans,
    /// The mount options.
    pub(crate) options: MountOptions,
    /// The switches of the engine.
    pub(crate) tuning: Tuning,
    /// Counters.
    pub(crate) stats: Arc<Stats>,
    /// Multiple mount protection, if the volume has it.
    pub(crate) mmp: OnceLock<Mmp>,
    /// The latched failure, if any.
    pub(crate) fault: Fault,
    /// The result of the unmount. The thread that unmounts makes it; others wait for it.
    pub(crate) ended: OnceLock<Result<()>>,
    /// Held for renames of a directory to another parent, so that no two of them form a cycle.
    pub(crate) rename_lock: RenameLock,
    /// Held by the thread that grows the volume.
    pub(crate) growing: Mutex<()>,
    /// The long walks of all threads shall end.
    pub(crate) interrupted: AtomicBool,
    /// This file system, for work that outlives a call: threads, callbacks.
    pub(crate) this: Weak<Fs>,
    /// Functions of upper modules that lower ones call.
    pub(crate) upcalls: Upcalls,
}

/// Looks for usage and limits of an id.
type FindDquot = fn(&Fs, QuotaKind, u32) -> Result<Option<Arc<Dquot>>>;

/// Functions of upper modules that lower ones call. The mount, which stands above all of them,
/// hands them in.
pub(crate) struct Upcalls {
    /// Evicts an unlinked inode that has no reference: frees its blocks and its number. The caller
    /// holds no lock and no handle. Called where space is short and before a sync.
    pub(crate) evict: fn(&Arc<Fs>, &Arc<Inode>),
    /// Makes what the page cache and the journal call to write a file's data. Called when the
    /// file's data is first used.
    pub(crate) file_callbacks: fn(&Fs, &Arc<Inode>) -> FileCallbacks,
    /// Finds usage and limits of an id, if the volume counts the kind. Called when an inode is
    /// read, whose usage they have.
    pub(crate) find_dquot: FindDquot,
}

impl Fs {
    /// Fails if this thread's long walk shall end. Called at every block of a walk, where no change
    /// is half done.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    #[inline]
    pub(crate) fn check_interrupted(&self) -> Result<()> {
        self.check_removal_may_end()?;
        if interrupt::is_set() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// As [`Fs::check_interrupted`], for a removal of blocks between two of its transactions. The
    /// end of a single request does not end it.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn check_removal_may_end(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Ends the long walks of all threads, now and later.
    pub(crate) fn interrupt_all(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Evicts the inodes in the queue. The caller holds no lock and no handle.
    #[track_caller]
    pub(crate) fn reap(self: &Arc<Self>) {
        extant_lock_order::assert_none_held();
        while let Some((inode, _busy)) = self.inodes.reaper.pop() {
            (self.upcalls.evict)(self, &inode);
        }
    }

    /// As [`Fs::reap`], but only if the reaper has fallen behind: for operations that add to its
    /// queue. The caller holds no lock and no handle.
    pub(crate) fn reap_if_behind(self: &Arc<Self>) {
        if self.inodes.reaper.is_behind() {
            self.reap();
        }
    }

    /// Evicts the inodes in the queue, and waits for evictions of other threads: before "no space"
    /// is final, and before sync. The caller holds no lock and no handle.
    pub(crate) fn reap_all(self: &Arc<Self>) {
        self.reap();
        self.inodes.reaper.wait_until_idle();
    }
}
