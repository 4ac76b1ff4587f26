//! The guards that prove that an inode's extended attributes are locked.
//!
//! # Invariants
//! Every function that relies on `xattr_lock` takes its guard: [`ExclusiveAttrs`] to change, any
//! [`LockedAttrs`] to read. A guard knows its inode.
//!
//! # Locks
//! The lock has its place in the check of the lock order (`extant_lock_order`).

use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::state::inode::Inode;

/// The locked attributes of one inode.
#[must_use]
pub(super) struct LockedAttrs<'a, G> {
    inode: &'a Inode,
    _guard: Locked<G>,
}

/// Attributes that do not change: others may read them as well.
pub(super) type SharedAttrs<'a> = LockedAttrs<'a, RwLockReadGuard<'a, ()>>;
/// Attributes that only this thread reads and may change.
pub(super) type ExclusiveAttrs<'a> = LockedAttrs<'a, RwLockWriteGuard<'a, ()>>;

impl<'a, G> LockedAttrs<'a, G> {
    /// The inode whose attributes are locked.
    pub(super) fn inode(&self) -> &'a Inode {
        self.inode
    }
}

impl<'a> SharedAttrs<'a> {
    /// Locks the attributes of `inode` shared.
    #[track_caller]
    pub(super) fn lock(inode: &'a Inode) -> Self {
        Self {
            inode,
            _guard: lock(Rank::Xattr, || inode.xattr_lock.0.read()),
        }
    }
}

impl<'a> ExclusiveAttrs<'a> {
    /// Locks the attributes of `inode` exclusively.
    #[track_caller]
    pub(super) fn lock(inode: &'a Inode) -> Self {
        Self {
            inode,
            _guard: lock(Rank::Xattr, || inode.xattr_lock.0.write()),
        }
    }
}
