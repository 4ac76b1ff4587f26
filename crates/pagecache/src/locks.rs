//! The locks of an address space that callers take, each with its rank in the lock order.

use std::sync::atomic::{AtomicUsize, Ordering};

use extant_lock_order::{Locked, Rank, lock, took};

use extant_sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock between a file's cache and its block map: Linux's `invalidate_lock`.
pub struct InvalidateLock(RwLock<()>);

/// The invalidate lock, held shared: the file's cached blocks do not move on the device.
#[must_use]
pub struct InvalidateShared<'a> {
    _held: Locked<RwLockReadGuard<'a, ()>>,
}

/// The invalidate lock, held exclusively: no thread fills folios from the device.
#[must_use]
pub struct InvalidateExclusive<'a> {
    _held: Locked<RwLockWriteGuard<'a, ()>>,
}

impl Default for InvalidateLock {
    fn default() -> Self {
        Self(RwLock::new(()))
    }
}

impl InvalidateLock {
    /// Keeps the file's blocks from moving.
    #[track_caller]
    pub fn read(&self) -> InvalidateShared<'_> {
        InvalidateShared {
            _held: lock(Rank::Invalidate, || self.0.read()),
        }
    }

    /// Returns whether a thread has the lock exclusively, or waits for readers to leave.
    #[doc(hidden)] // For the engine's tests, which wait until another thread has come this far.
    pub fn is_wanted_exclusively(&self) -> bool {
        self.0.try_read().is_none()
    }

    /// Keeps all threads from filling folios.
    #[track_caller]
    pub fn write(&self) -> InvalidateExclusive<'_> {
        InvalidateExclusive {
            _held: lock(Rank::Invalidate, || self.0.write()),
        }
    }
}

/// Admits one writeback pass of an address space at a time.
#[derive(Default)]
pub(crate) struct PassLock {
    pass: Mutex<()>,
    /// Threads that met a pass and wait for its end.
    waiting: AtomicUsize,
}

/// The right to write the file back: no other pass runs while this exists.
#[must_use]
pub struct WritebackPass<'a> {
    _held: Locked<MutexGuard<'a, ()>>,
}

impl PassLock {
    pub(crate) fn is_held(&self) -> bool {
        self.pass.is_locked()
    }

    /// Returns whether a thread has met a pass and waits for its end.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> WritebackPass<'_> {
        let wait = || {
            self.waiting.fetch_add(1, Ordering::Release);
            let guard = self.pass.lock();
            self.waiting.fetch_sub(1, Ordering::Release);
            guard
        };
        WritebackPass {
            _held: lock(Rank::Pass, || self.pass.try_lock().unwrap_or_else(wait)),
        }
    }

    /// [`PassLock::lock`], unless a pass runs. A lock that is tried is in order at any time.
    pub(crate) fn try_lock(&self) -> Option<WritebackPass<'_>> {
        let guard = self.pass.try_lock()?;
        Some(WritebackPass {
            _held: Locked::new(guard, took(Rank::Pass)),
        })
    }
}
