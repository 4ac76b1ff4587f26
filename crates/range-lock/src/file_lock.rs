//! The lock of the file as a whole, as far as the protocol needs it: an argument of each call.
//!
//! A lock holder on a part of the file must not run beside an exclusive holder of the file's own
//! lock (an inode's). Either the caller holds that lock shared, which [`HeldShared`] states, or
//! the protocol looks at it after publishing ([`FileLock::is_exclusive`]).

use extant_sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A file's lock as far as the protocol reads it.
pub trait FileLock {
    /// Returns whether a thread holds the lock exclusively, or has announced that and waits for
    /// sharers.
    ///
    /// A load without an order of its own: the caller has the fences.
    fn is_exclusive(&self) -> bool;
}

/// The caller holds the file's lock shared: no thread holds it exclusively.
pub trait HeldShared: FileLock {}

/// The caller holds the file's lock exclusively.
pub trait HeldExclusively {}

impl FileLock for RwLock<()> {
    #[inline]
    fn is_exclusive(&self) -> bool {
        self.is_locked_exclusive()
    }
}

impl FileLock for RwLockReadGuard<'_, ()> {
    #[inline]
    fn is_exclusive(&self) -> bool {
        false
    }
}

impl HeldShared for RwLockReadGuard<'_, ()> {}

impl HeldExclusively for RwLockWriteGuard<'_, ()> {}
