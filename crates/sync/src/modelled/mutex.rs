//! A mutex.
//!
//! The value lies in the checker's own lock, which decides which thread may take it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};

use shuttle::sync as checked;

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(pub(super) checked::Mutex<T>);

/// A held [`Mutex`].
pub struct MutexGuard<'a, T> {
    pub(super) mutex: &'a Mutex<T>,
    /// `None` only while its thread waits, or has it unlocked.
    pub(super) held: Option<checked::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(checked::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Some(self.locked());
        MutexGuard { mutex: self, held }
    }

    pub(super) fn locked(&self) -> checked::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let held = Some(held);
        Some(MutexGuard { mutex: self, held })
    }

    /// Returns whether a thread holds the lock.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Runs `work` without the lock.
    pub fn unlocked<R>(this: &mut Self, work: impl FnOnce() -> R) -> R {
        drop(this.held.take());
        let done = work();
        this.held = Some(this.mutex.locked());
        done
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexGuard").finish_non_exhaustive()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_deref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_deref_mut().unwrap()
    }
}
