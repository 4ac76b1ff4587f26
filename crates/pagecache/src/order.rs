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

    /// Whether a thread has the lock exclusively, or waits for readers to leave: for tests.
    #[cfg(not(extant_shuttle))]
    #[doc(hidden)]
    pub fn is_wanted_alone(&self) -> bool {
        self.0.try_read().is_none()
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
    #[cfg(not(extant_shuttle))]
    pub(crate) fn is_held(&self) -> bool {
        self.0.is_locked()
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> Locked<MutexGuard<'_, ()>> {
        lock(Rank::Pass, || self.0.lock())
    }
}
