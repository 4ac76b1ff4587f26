//! An inode in memory.
//!
//! # Invariants
//! - `size >= core.disk_size` for regular files (J1).
//! - Everything in `core` that is not deferred (see `inode/times.rs`) is in the inode table's block
//!   of the newest transaction that changed it.
//! - `doomed` is set exactly while `core.links` is zero.
//!
//! # Locks
//! The fields stand in lock order. The atomics need none.

use extant_sync::OnceLock;
use extant_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use extant_disk::inode::{InodeCore, InodeFlags};
use extant_jbd2::Handle;
use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};
use extant_units::{Ino, Tid};

use crate::state::crypt::InodeKeyCell;
use crate::state::file::FileState;
use crate::state::inode::{
    CoreLock, Deferred, InodeLock, LAZY, MapLock, Noted, SOON, WriterCount, XattrLock,
};
use crate::state::map::KnownBlocks;
use crate::state::quota::InodeQuota;
use crate::types::FileKind;
use crate::types::error::{Error, Result};

/// Receiver of an inode whose last reference goes. The cache, which holds the inodes and so stands
/// above them, implements it.
pub(crate) trait InodeHome: Send + Sync {
    /// Handles the drop of `inode`'s last reference.
    fn unused(&self, inode: &Arc<Inode>);
}

/// An inode in memory. The fields stand in lock order; see `docs/LOCKING.md`.
pub(crate) struct Inode {
    /// Number.
    pub(crate) ino: Ino,
    /// Generation: with the number it seeds the checksums of everything the inode owns.
    pub(crate) generation: u32,
    /// Type.
    pub(crate) kind: FileKind,
    /// The cache that it is in.
    pub(crate) home: Weak<dyn InodeHome>,
    /// Directories: their entries, shared to look, exclusively to change. Files: shared by an
    /// operation that locks a range of the file; exclusively for attributes, flags, a switch of the
    /// data path, moving ranges, and writes on the buffer-head path.
    pub(crate) lock: InodeLock,
    /// Made without a name ([`crate::namei::tmpfile`]): may get its first one although it has no
    /// link.
    pub(crate) linkable: AtomicBool,
    /// Extended attributes.
    pub(crate) xattr_lock: XattrLock,
    /// Record of the inode as an orphan. Taken under a handle, before the orphan list.
    pub(crate) orphan: Mutex<OrphanRecord>,
    /// The extent tree (`i_data_sem`): shared to walk, exclusively to change.
    pub(crate) map_lock: MapLock,
    /// The known part of the map, delayed blocks included.
    pub(crate) known: KnownBlocks,
    /// The stored fields.
    pub(crate) core: CoreLock,
    /// The part of its ids' usage that it has; `None` where none is counted.
    pub(crate) quota: Option<Arc<InodeQuota>>,
    /// `i_size`. Raised before the folio with the new bytes is unlocked. A writer of it has locked
    /// the file from a byte to infinity (a range lock or the EOF lock), or holds `lock`
    /// exclusively.
    pub(crate) size: AtomicU64,
    /// The last transaction that changed the inode.
    pub(crate) sync_tid: TidCell,
    /// The last transaction that fdatasync must wait for.
    pub(crate) datasync_tid: TidCell,
    /// Regular files: the state of their data, made at first use. Much larger than all the rest,
    /// which is made and freed with each inode.
    pub(crate) file_state: OnceLock<Box<FileState>>,
    /// The key of an encrypted inode; see [`crate::crypt`].
    pub(crate) key: InodeKeyCell,
    /// Regular files: openers that may write.
    pub(crate) writers: WriterCount,
    /// References and lifetime; see [`crate::state::inode::inode_cache`].
    pub(crate) life: Life,
    /// Which times in `core` are newer than on disk; see `inode/times.rs`.
    pub(crate) deferred: Deferred,
    /// Known to have no set-id bits and no capabilities; see [`crate::xattr::privileges`].
    pub(crate) no_privileges: AtomicBool,
    /// Time updates that the next read or write can skip; see `inode/times.rs`.
    pub(crate) noted: Noted,
    /// Directories: known to have no block twice; see [`crate::dir`].
    distinct: AtomicBool,
    /// Holds the value of an attribute, or did when it was loaded: an orphan has the flag no more.
    value: bool,
    /// A copy of the flags in `core`, whose lock may be held for as long as a block read takes.
    pub(crate) flags: AtomicU32,
    /// A copy of the size in `core`, for the same reason.
    pub(crate) disk_size: AtomicU64,
}

/// The references to an inode, and the steps of its eviction.
#[derive(Default)]
pub(crate) struct Life {
    /// Number of [`InodeRef`](super::InodeRef)s. Grows from zero only under the cache shard's lock.
    pub(crate) refs: AtomicU32,
    /// No link is left: the inode is evicted with its last reference.
    pub(crate) doomed: AtomicBool,
    /// In the shard's queue of unused inodes.
    pub(crate) queued: AtomicBool,
    /// Used since it was queued: gets a second chance.
    pub(crate) touched: AtomicBool,
    /// Its eviction has begun: no new reference is given out.
    pub(crate) dead: AtomicBool,
}

/// The newest transaction that was noted, if any.
#[derive(Default)]
pub(crate) struct TidCell(AtomicU64);

/// The bits set-user-ID and set-group-ID.
const SET_ID: u16 = 0o6000;

/// Marks a cell that holds a transaction.
const SOME: u64 = 1 << 32;

impl TidCell {
    /// Notes `tid`, unless a newer one was noted.
    pub(crate) fn note(&self, tid: Tid) {
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                let newer = Self::decode(old).is_none_or(|old| tid.is_after(old));
                newer.then_some(SOME | u64::from(tid.get()))
            });
    }

    pub(crate) fn get(&self) -> Option<Tid> {
        Self::decode(self.0.load(Ordering::Acquire))
    }

    fn decode(raw: u64) -> Option<Tid> {
        let tid = u32::try_from(raw & (SOME - 1)).ok()?;
        (raw & SOME != 0).then(|| Tid::new(tid))
    }
}

impl Inode {
    /// An inode in memory for a core that was read or just made.
    pub(crate) fn new(
        home: Weak<dyn InodeHome>,
        ino: Ino,
        kind: FileKind,
        core: InodeCore,
        quota: Option<Arc<InodeQuota>>,
    ) -> Self {
        let life = Life::default();
        life.doomed.store(core.links == 0, Ordering::Relaxed);
        Self {
            value: core.flags.contains(InodeFlags::EA_INODE),
            quota,
            ino,
            generation: core.generation,
            kind,
            home,
            lock: InodeLock::default(),
            linkable: AtomicBool::new(false),
            orphan: Mutex::default(),
            xattr_lock: XattrLock::default(),
            map_lock: MapLock::default(),
            known: KnownBlocks::default(),
            size: AtomicU64::new(core.disk_size),
            flags: AtomicU32::new(core.flags.bits()),
            disk_size: AtomicU64::new(core.disk_size),
            core: CoreLock::new(core),
            sync_tid: TidCell::default(),
            datasync_tid: TidCell::default(),
            file_state: OnceLock::new(),
            key: InodeKeyCell::default(),
            writers: WriterCount::default(),
            life,
            deferred: Deferred::default(),
            no_privileges: AtomicBool::new(false),
            noted: Noted::default(),
            distinct: AtomicBool::new(false),
        }
    }

    /// Returns whether there is one reference: the caller's.
    pub(crate) fn is_counted_once(&self) -> bool {
        self.life.refs.load(Ordering::Acquire) == 1
    }

    /// Notes that `h` changed a block which the content depends on, but not the inode itself: a
    /// block of the map, a directory block.
    pub(crate) fn note_change(&self, h: &Handle) {
        self.sync_tid.note(h.tid());
        self.datasync_tid.note(h.tid());
    }

    /// The transaction that fsync (with `datasync`: fdatasync) waits for; `None` if nothing changed
    /// since the inode was loaded.
    pub(crate) fn last_change(&self, datasync: bool) -> Option<Tid> {
        if datasync {
            self.datasync_tid.get()
        } else {
            self.sync_tid.get()
        }
    }

    /// Takes `tid` for a transaction that changed the inode, as one before it was read may have.
    pub(crate) fn assume_changed_in(&self, tid: Tid) {
        self.sync_tid.note(tid);
        self.datasync_tid.note(tid);
    }

    /// `i_size` in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Returns whether the file has data that is not on the device: the inode must stay in memory.
    pub(crate) fn has_dirty_data(&self) -> bool {
        self.file_state.get().is_some_and(|state| state.is_dirty())
    }

    /// Returns whether a writeback failed and no opener has been told.
    pub(crate) fn has_unseen_fault(&self) -> bool {
        let state = self.file_state.get();
        state.is_some_and(|state| state.has_unseen_fault())
    }

    /// Returns whether any time in `core` is newer than the stored one.
    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.has(SOON | LAZY)
    }

    /// Locks the inode's record as an orphan.
    #[track_caller]
    pub(crate) fn lock_orphan(&self) -> Locked<MutexGuard<'_, OrphanRecord>> {
        lock(Rank::Orphan, || self.orphan.lock())
    }

    /// Returns whether the orphan list has the inode, or its record changes now. The list has a
    /// pointer to it, so no second inode in memory may have its number.
    pub(crate) fn is_on_orphan_list(&self) -> bool {
        let record = self.orphan.try_lock();
        record.is_none_or(|record| *record == OrphanRecord::Listed)
    }

    /// Begins the inode's eviction unless it has begun: no reference is given out from now on.
    /// Returns whether this call began it.
    pub(crate) fn begin_deletion(&self) -> bool {
        !self.life.dead.swap(true, Ordering::AcqRel)
    }

    /// The size on disk in bytes: what the journal has, or gets with the running transaction.
    #[inline]
    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size.load(Ordering::Acquire)
    }

    /// The chattr flags and internal ones.
    #[inline]
    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.load(Ordering::Acquire))
    }

    /// Returns whether no link is left.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.life.doomed.load(Ordering::Acquire)
    }

    /// Returns whether it holds the value of an attribute, or held it until the last one went, so
    /// that no name leads to it.
    pub(crate) fn holds_value(&self) -> bool {
        self.value
    }

    /// Returns whether its eviction has begun, or it left the cache.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.life.dead.load(Ordering::Acquire)
    }

    /// Returns whether a directory is known to have no block twice.
    pub(crate) fn is_distinct(&self) -> bool {
        self.distinct.load(Ordering::Acquire)
    }

    /// Remembers that a directory has no block twice. No change of its map makes that false.
    pub(crate) fn note_distinct(&self) {
        debug_assert_eq!(self.kind, FileKind::Directory);
        self.distinct.store(true, Ordering::Release);
    }

    /// Returns whether the inode is known to have no set-id bits and no capabilities.
    #[inline]
    pub(crate) fn has_no_privileges(&self) -> bool {
        self.no_privileges.load(Ordering::Acquire)
    }

    /// Remembers it, unless set-id bits were set meanwhile. A change of attributes clears the mark
    /// itself.
    pub(crate) fn note_no_privileges(&self) {
        let core = self.core.read();
        if core.mode & SET_ID == 0 {
            self.no_privileges.store(true, Ordering::Release);
        }
    }

    /// Clears that mark: mode, owner or security attributes change.
    pub(crate) fn not_plain(&self) {
        self.no_privileges.store(false, Ordering::Release);
    }

    /// Fails with EPERM if the inode is immutable or protected by fs-verity, or append-only and the
    /// change is not an `append`; with ETXTBSY if its content is about to be fixed.
    pub(crate) fn check_changeable(&self, append: bool) -> Result<()> {
        let flags = self.flags();
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !append)
        {
            return Err(Error::NotPermitted);
        }
        match flags.contains(InodeFlags::VERITY) {
            true => Err(Error::NotPermitted),
            false if self.writers.is_denied() => Err(Error::TextBusy),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tid_cell_keeps_the_newest() {
        let cell = TidCell::default();
        assert_eq!(cell.get(), None);
        cell.note(Tid::new(u32::MAX));
        cell.note(Tid::new(0));
        cell.note(Tid::new(u32::MAX - 3));
        assert_eq!(cell.get(), Some(Tid::new(0)), "0 comes after the wrap");
    }
}

/// How an inode is recorded as an orphan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OrphanRecord {
    /// Not at all: it is no orphan.
    #[default]
    None,
    /// In the list.
    Listed,
    /// In the orphan file: block and slot.
    Slot {
        /// Which of the file's blocks.
        block: usize,
        /// Which slot.
        slot: usize,
    },
}
