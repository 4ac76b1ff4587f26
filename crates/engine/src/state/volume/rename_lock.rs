//! The lock of renames that give a directory another parent.
//!
//! # Invariants
//! While a thread has a [`RenameGuard`], no directory changes its parent but by that thread. So the
//! parents that it walks stay the parents, and no two renames make a cycle.

use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};

/// The lock: one for each mount.
#[derive(Default)]
pub(crate) struct RenameLock(Mutex<()>);

/// No other thread gives a directory another parent.
#[must_use]
pub(crate) struct RenameGuard<'a> {
    lock: &'a RenameLock,
    _guard: Locked<MutexGuard<'a, ()>>,
}

impl RenameLock {
    /// Takes the lock.
    #[track_caller]
    pub(crate) fn lock(&self) -> RenameGuard<'_> {
        RenameGuard {
            lock: self,
            _guard: lock(Rank::Rename, || self.0.lock()),
        }
    }
}

impl RenameGuard<'_> {
    /// Returns whether it is `lock` that is held.
    pub(crate) fn is_of(&self, lock: &RenameLock) -> bool {
        std::ptr::eq(self.lock, lock)
    }
}
