//! An inode in memory.
//!
//! Invariants: `size >= core.disk_size` for regular files; everything in `core` that is not deferred (see
//! [`super::times`]) is in the inode table's block of the newest transaction that changed it; `doomed` is set exactly
//! while `core.links` is zero.
//!
//! Locks: the fields stand in lock order. The atomics need none.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};

use extant_disk::csum::Crc32c;
use extant_jbd2::Handle;
use extant_units::{Ino, Tid};
use parking_lot::{Mutex, RwLock};

use super::times::Noted;
use super::{InodeCore, InodeFlags, load};
use crate::error::{Error, Result};
use crate::file::FileData;
use crate::fs::Fs;
use crate::map::{ExtentStatus, MapLock};
use crate::orphan;
use crate::types::FileKind;

/// An inode in memory. The fields stand in lock order; see `docs/LOCKING.md`.
pub(crate) struct Inode {
    /// Number.
    pub(crate) ino: Ino,
    /// Generation: with the number it seeds the checksums of everything the inode owns.
    pub(crate) generation: u32,
    /// Type.
    pub(crate) kind: FileKind,
    /// The file system, for work that starts at the inode (writeback, deletion).
    pub(crate) fs: Weak<Fs>,
    /// Directories: entries (read: look up, list; write: change). Files: size changes and truncation.
    pub(crate) lock: RwLock<()>,
    /// Made without a name ([`crate::namei::tmpfile`]): may get its first one although it has no link.
    pub(crate) linkable: AtomicBool,
    /// Where the inode is recorded as an orphan. Taken under a handle, before the list of orphans.
    pub(crate) orphan: Mutex<orphan::Place>,
    /// Extended attributes.
    pub(crate) xattr_lock: RwLock<()>,
    /// The extent tree (`i_data_sem`): read to walk, write to change.
    pub(crate) map_lock: MapLock,
    /// What is known of the map, delayed ranges included.
    pub(crate) extents: ExtentStatus,
    /// What is stored on disk.
    pub(crate) core: RwLock<InodeCore>,
    /// `i_size`: raised before the folio that carries the new bytes is unlocked. Written under `lock`.
    pub(crate) size: AtomicU64,
    /// The last transaction that changed the inode.
    sync_tid: TidCell,
    /// The last transaction that fdatasync must wait for.
    datasync_tid: TidCell,
    /// Regular files: the cached data, made at first use.
    pub(crate) data: OnceLock<FileData>,
    /// References and fate; see [`super::cache`].
    pub(super) life: Life,
    /// Times that are newer in `core` than on disk; see [`super::times`].
    pub(super) deferred: AtomicU8,
    /// Known to have no set-id bits and no capabilities; see [`crate::privileges`].
    pub(super) plain: AtomicBool,
    /// What the next read or write need not do about times; see [`super::times`].
    pub(super) noted: Noted,
    /// Directories: known to have each of its blocks once; see [`crate::dir`].
    distinct: AtomicBool,
    /// A copy of the flags in `core`, which may be under its lock for as long as a block read takes.
    flags: AtomicU32,
    /// A copy of the size in `core`, likewise.
    disk_size: AtomicU64,
}

/// How often an inode is referenced and what becomes of it.
#[derive(Default)]
pub(super) struct Life {
    /// [`super::InodeRef`]s. Grows from zero only under the cache shard's lock.
    pub(super) refs: AtomicU32,
    /// No name is left: the inode is deleted with its last reference.
    pub(super) doomed: AtomicBool,
    /// In the shard's queue of unused inodes.
    pub(super) queued: AtomicBool,
    /// Used since it was queued: gets a second chance.
    pub(super) touched: AtomicBool,
    /// Its deletion has begun, or it was given up: nobody gets a reference any more.
    pub(super) dead: AtomicBool,
    /// Memory alone knows which way its data takes.
    pub(super) kept: AtomicBool,
}

/// The newest of the transactions that were noted, if any was.
#[derive(Default)]
struct TidCell(AtomicU64);

/// The bits set-user-ID and set-group-ID.
const SET_ID: u16 = 0o6000;

/// Marks a cell that holds a transaction.
const SOME: u64 = 1 << 32;

impl TidCell {
    fn note(&self, tid: Tid) {
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                let newer = Self::decode(old).is_none_or(|old| tid.is_after(old));
                newer.then_some(SOME | u64::from(tid.get()))
            });
    }

    fn get(&self) -> Option<Tid> {
        Self::decode(self.0.load(Ordering::Acquire))
    }

    fn decode(raw: u64) -> Option<Tid> {
        let tid = u32::try_from(raw & (SOME - 1)).ok()?;
        (raw & SOME != 0).then(|| Tid::new(tid))
    }
}

impl Inode {
    /// An inode in memory for a core that was read or just made.
    pub(super) fn new(fs: Weak<Fs>, ino: Ino, kind: FileKind, core: InodeCore) -> Self {
        let life = Life::default();
        life.doomed.store(core.links == 0, Ordering::Relaxed);
        Self {
            ino,
            generation: core.generation,
            kind,
            fs,
            lock: RwLock::default(),
            linkable: AtomicBool::new(false),
            orphan: Mutex::default(),
            xattr_lock: RwLock::default(),
            map_lock: MapLock::default(),
            extents: ExtentStatus::default(),
            size: AtomicU64::new(core.disk_size),
            flags: AtomicU32::new(core.flags.bits()),
            disk_size: AtomicU64::new(core.disk_size),
            core: RwLock::new(core),
            sync_tid: TidCell::default(),
            datasync_tid: TidCell::default(),
            data: OnceLock::new(),
            life,
            deferred: AtomicU8::new(0),
            plain: AtomicBool::new(false),
            noted: Noted::default(),
            distinct: AtomicBool::new(false),
        }
    }

    /// Changes what is stored and encodes it into the inode table under `h`: one credit ([`crate::credits::INODE_UPDATE`]).
    /// `f` runs with `core` locked and must take no lock.
    ///
    /// # Errors
    /// The table's block cannot be read, the journal has stopped, or a value does not fit the record. Unless the record
    /// was the problem, the file system is of no use any more then; `core` keeps the change.
    pub(crate) fn update<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut InodeCore) -> R,
    ) -> Result<R> {
        let mut core = self.core.write();
        let before = (core.disk_size, core.sectors);
        let result = f(&mut core);
        self.flags.store(core.flags.bits(), Ordering::Release);
        self.disk_size.store(core.disk_size, Ordering::Release);
        self.noted.forget();
        self.life.doomed.store(core.links == 0, Ordering::Release);
        load::store(fs, h, self.ino, &core)?;
        self.stored();
        if before != (core.disk_size, core.sectors) {
            if self.kind == FileKind::Regular {
                fs.super_block.note_file_size(fs, h, core.disk_size)?;
            }
            self.datasync_tid.note(h.tid());
        }
        self.sync_tid.note(h.tid());
        Ok(result)
    }

    /// Notes that `h` changed something that reading the content back depends on, without the inode itself: a block of
    /// the map, a directory block.
    pub(crate) fn note_change(&self, h: &Handle) {
        self.sync_tid.note(h.tid());
        self.datasync_tid.note(h.tid());
    }

    /// The transaction that fsync (with `datasync`: fdatasync) waits for; `None` if nothing changed since it was loaded.
    pub(crate) fn last_change(&self, datasync: bool) -> Option<Tid> {
        if datasync {
            self.datasync_tid.get()
        } else {
            self.sync_tid.get()
        }
    }

    /// `i_size` in bytes.
    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Whether the file has data that is not on the device: the inode must stay in memory.
    pub(crate) fn has_dirty_data(&self) -> bool {
        self.data.get().is_some_and(FileData::is_dirty)
    }

    /// Whether the inode stays in memory until the unmount, or its deletion.
    pub(crate) fn keep(&self, on: bool) {
        self.life.kept.store(on, Ordering::Release);
    }

    /// Begins the inode's deletion unless that has begun: from now on nobody gets a reference.
    pub(crate) fn begin_deletion(&self) -> bool {
        !self.life.dead.swap(true, Ordering::AcqRel)
    }

    /// The size on disk in bytes: what the journal has, or gets with a transaction that runs.
    #[inline]
    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size.load(Ordering::Acquire)
    }

    /// The chattr flags and internal ones.
    #[inline]
    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.load(Ordering::Acquire))
    }

    /// Whether no name is left.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.life.doomed.load(Ordering::Acquire)
    }

    /// Whether its deletion has begun, or it left the cache.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.life.dead.load(Ordering::Acquire)
    }

    /// The seed of the checksums of everything the inode owns (directory, extent and orphan blocks); `None` without
    /// metadata checksums.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> Option<Crc32c> {
        super::format(&fs.layout).inode_seed(self.ino, self.generation)
    }

    /// Whether a directory is known to have each of its blocks once.
    pub(crate) fn is_distinct(&self) -> bool {
        self.distinct.load(Ordering::Acquire)
    }

    /// Remembers that a directory has each of its blocks once: no change of its map makes that
    /// false.
    pub(crate) fn note_distinct(&self) {
        self.distinct.store(true, Ordering::Release);
    }

    /// Whether the inode is known to have no set-id bits and no capabilities.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.load(Ordering::Acquire)
    }

    /// Remembers it, if the bits still say so: they may have been set meanwhile. Attributes clear the mark themselves.
    pub(crate) fn note_plain(&self) {
        let core = self.core.read();
        if core.mode & SET_ID == 0 {
            self.plain.store(true, Ordering::Release);
        }
    }

    /// Mode, owner or security attributes change: nothing is known any more.
    pub(crate) fn not_plain(&self) {
        self.plain.store(false, Ordering::Release);
    }

    /// Fails with EPERM if the inode is immutable, or append-only and `append` is not all that is wanted.
    pub(crate) fn check_changeable(&self, append: bool) -> Result<()> {
        let flags = self.flags();
        if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !append)
        {
            return Err(Error::NotPermitted);
        }
        Ok(())
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
