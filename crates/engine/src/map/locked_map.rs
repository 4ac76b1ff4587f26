//! The guards that prove that a file's map is locked.
//!
//! # Invariants
//! Every function that relies on the lock takes its guard: [`SharedMap`] or [`ExclusiveMap`], or
//! any [`LockedMap`] where both will do. A guard knows its inode, so a function cannot get the
//! guard of one file and the map of another.
//!
//! # Locks
//! The lock has its place in the check of the lock order (`extant_lock_order`).

use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::state::inode::Inode;

/// The locked map of one inode.
pub(crate) struct LockedMap<'a, G> {
    inode: &'a Inode,
    _guard: Locked<G>,
}

/// A map that cannot change: others may walk it as well.
pub(crate) type SharedMap<'a> = LockedMap<'a, RwLockReadGuard<'a, ()>>;
/// A map that only this thread walks and may change.
pub(crate) type ExclusiveMap<'a> = LockedMap<'a, RwLockWriteGuard<'a, ()>>;

impl<'a, G> LockedMap<'a, G> {
    /// The inode whose map is locked.
    pub(super) fn inode(&self) -> &'a Inode {
        self.inode
    }
}

impl<'a> SharedMap<'a> {
    /// Locks the map of `inode` shared.
    #[track_caller]
    pub(crate) fn lock(inode: &'a Inode) -> Self {
        Self {
            inode,
            _guard: lock(Rank::Map, || inode.map_lock.0.read()),
        }
    }
}

impl<'a> ExclusiveMap<'a> {
    /// Locks the map of `inode` exclusively.
    #[track_caller]
    pub(crate) fn lock(inode: &'a Inode) -> Self {
        Self {
            inode,
            _guard: lock(Rank::Map, || inode.map_lock.0.write()),
        }
    }
}
