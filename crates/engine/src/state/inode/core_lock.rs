//! The lock of an inode's stored fields, `core` in `docs/LOCKING.md`.
//!
//! # Locks
//! It has its place in the check of the lock order (`extant_lock_order`): under it only the content
//! of a block is locked.

use extant_disk::inode::InodeCore;
use extant_lock_order::{Locked, Rank, lock};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The stored fields of an inode, and their lock.
pub(crate) struct CoreLock(RwLock<InodeCore>);

impl CoreLock {
    pub(crate) fn new(core: InodeCore) -> Self {
        Self(RwLock::new(core))
    }

    /// The fields, to read.
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, InodeCore>> {
        lock(Rank::InodeCore, || self.0.read())
    }

    /// The fields, to change; [`crate::state::inode::Inode::update`] stores the change as well.
    #[inline]
    #[track_caller]
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, InodeCore>> {
        lock(Rank::InodeCore, || self.0.write())
    }
}
