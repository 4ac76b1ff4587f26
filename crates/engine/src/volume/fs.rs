//! The shared state of a mounted file system.
//!
//! [`Fs`] is the first argument of every operation.
//!
//! # Locks
//! [`Fs`] has no lock of its own but `rename_lock`; each part brings its own. `docs/LOCKING.md` has
//! the order of them all. A thread may start a handle while it holds locks that the page lists
//! before the handle, and none of those after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use extant_blockdev::{BlockDevice, FlushLatch};
use extant_jbd2::{BlockCache, Handle, Journal};
use extant_units::Tid;
use parking_lot::Mutex;

use crate::alloc::Allocator;
use crate::config::MountOptions;
use crate::config::Tuning;
use crate::file::{self, Files};
use crate::group::GroupTable;
use crate::inode::InodeCache;
use crate::map::StatusCache;
use crate::orphan::Orphans;
use crate::types::error::{Error, Result};
use crate::types::interrupt;
use crate::volume::fault::Fault;
use crate::volume::layout::Layout;
use crate::volume::mmp::Mmp;
use crate::volume::mounted_superblock::MountedSuperblock;
use crate::volume::stats::Stats;
use crate::volume::system_zones::SystemZones;
use crate::xattr::SharedBlocks;

/// A mounted file system.
pub(crate) struct Fs {
    /// The device.
    pub(crate) dev: Arc<dyn BlockDevice>,
    /// Whether a flush of `dev` has failed.
    pub(crate) latch: Arc<FlushLatch>,
    /// Geometry and features: fixed at mount.
    pub(crate) layout: Layout,
    /// Metadata blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// Transactions over them, with or without a log.
    pub(crate) journal: Arc<Journal>,
    /// The superblock's changing fields.
    pub(crate) super_block: MountedSuperblock,
    /// Group descriptors and bitmaps.
    pub(crate) groups: Arc<GroupTable>,
    /// Free space and reservations.
    pub(crate) alloc: Allocator,
    /// Blocks that no file may claim.
    pub(crate) zones: Arc<SystemZones>,
    /// Inodes in memory.
    pub(crate) inodes: InodeCache,
    /// The bound on the memory of the inodes' extent status trees.
    pub(crate) status: Arc<StatusCache>,
    /// Attribute blocks that inodes share.
    pub(crate) xattr_blocks: SharedBlocks,
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
    /// Held for renames of a directory to another parent, so that no two of them form a cycle.
    pub(crate) rename_lock: Mutex<()>,
    /// The long walks of all threads shall end.
    pub(crate) interrupted: AtomicBool,
}

impl Fs {
    /// Starts a handle with room for `credits` metadata blocks, if the file system may be modified.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`] on a read-only mount and after a fault,
    /// [`crate::Error::Shutdown`] after one that refuses everything, and the journal's errors. May
    /// wait for log space: see the lock order above.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle> {
        self.start_with_revokes(credits, 0)
    }

    /// As [`Fs::start`], with room for `revokes` revoke records: for handles that free metadata
    /// blocks.
    ///
    /// # Errors
    /// As [`Fs::start`].
    pub(crate) fn start_with_revokes(&self, credits: u32, revokes: u32) -> Result<Handle> {
        self.check_writable()?;
        let handle = self.journal.start_with_revokes(credits, revokes);
        handle.map_err(|error| {
            // The file system may have stopped while this thread waited.
            match self.check_writable() {
                Err(refused) => refused,
                Ok(()) => error.into(),
            }
        })
    }

    /// Fails if this thread's long walk shall end. Called at every block of a walk, where no change
    /// is half done.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    #[inline]
    pub(crate) fn go_on(&self) -> Result<()> {
        self.go_on_removing()?;
        if interrupt::is_set() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// As [`Fs::go_on`], for a removal of blocks between two of its transactions. The end of a
    /// single request does not end it.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn go_on_removing(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Ends the long walks of all threads, now and later.
    pub(crate) fn interrupt_all(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
    }

    /// Fails if the file system may not be modified.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.fault.check()?;
        if self.options.read_only() {
            return Err(crate::Error::ReadOnly);
        }
        self.note_stopped_journal();
        self.fault.check()
    }

    /// Latches that the journal has stopped by itself, or that a flush of the device has failed, if
    /// either is so. Called before a change, and after a commit or a flush has failed.
    #[inline]
    pub(crate) fn note_stopped_journal(&self) {
        if let Some(why) = self.latch.failure() {
            self.fault
                .flush_failed(self, &why.to_string(), file::note_lost_writes);
        } else if let Some(why) = self.journal.aborted() {
            self.fault.journal_stopped(self, &why);
        }
    }

    /// Waits until the transaction `tid` is durable. The caller holds no lock and no handle.
    ///
    /// # Errors
    /// The journal has stopped, which is latched.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        let committed = self.journal.commit(tid);
        self.note_stopped_journal();
        Ok(committed?)
    }
}
