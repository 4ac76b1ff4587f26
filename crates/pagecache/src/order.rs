//! The locks of a mapping that others take, with a note of where they stand in the lock order.

use extant_lock_order::{Locked, Rank, lock};

use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock between the cache and the block map of a file.
pub struct InvalidateLock(RwLock<()>);

impl Default for InvalidateLock {
    fn default() -> Self {
        Self(RwLock::new(()))
    }
}

impl InvalidateLock {
    /// Keeps the file's blocks in their place.
    #[track_caller]
    pub fn read(&self) -> Locked<RwLockReadGuard<'_, ()>> {
        lock(Rank::Invalidate, || self.0.read())
    }

    /// Keeps everybody from adding and filling folios.
    #[track_caller]
    pub fn write(&self) -> Locked<RwLockWriteGuard<'_, ()>> {
        lock(Rank::Invalidate, || self.0.write())
    }
}

/// Writeback passes, one at a time.
pub(crate) struct PassLock(Mutex<()>);

impl Default for PassLock {
    fn default() -> Self {
        Self(Mutex::new(()))
    }
}

impl PassLock {
    #[track_caller]
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, ()>> {
        lock(Rank::Pass, || self.0.lock())
    }
}
