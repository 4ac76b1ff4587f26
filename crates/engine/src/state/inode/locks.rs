//! The locks of an inode, each a type of its own. `docs/LOCKING.md` has their order.
//!
//! # Invariants
//! One module takes each, so a function that relies on one gets a token from there:
//! `inode/inode_locks.rs` (`lock`), `map/locked_map.rs` (`map_lock`) and `xattr/locked_attrs.rs`
//! (`xattr_lock`). What [`CoreLock`] protects it holds.

use extant_disk::inode::InodeCore;
use extant_lock_order::{Locked, Rank, lock};
use extant_range_lock::FileLock;
use extant_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of an inode as a whole: `lock`.
#[derive(Default)]
pub(crate) struct InodeLock(pub(crate) RwLock<()>);

impl FileLock for InodeLock {
    #[inline]
    fn is_exclusive(&self) -> bool {
        FileLock::is_exclusive(&self.0)
    }
}

/// The lock of the extent tree, `map_lock`: shared to walk, exclusive to change.
#[derive(Default)]
pub(crate) struct MapLock(pub(crate) RwLock<()>);

/// The lock of the extended attributes, `xattr_lock`: shared to read, exclusive to change.
#[derive(Default)]
pub(crate) struct XattrLock(pub(crate) RwLock<()>);

/// The stored fields of an inode, and their lock: `core`. It has its place in the check of the lock
/// order (`extant_lock_order`): under it only the content of a block is locked.
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
