//! A lock for many readers or one writer.
//!
//! The value lies in a real lock that is never contended: a gate that the checker sees decides
//! which thread may take it.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::modelled::condvar::Condvar;
use crate::modelled::mutex::{Mutex, MutexGuard};

/// The accesses to a [`RwLock`].
#[derive(Default)]
struct Gate {
    readers: usize,
    writer: bool,
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T> {
    gate: Mutex<Gate>,
    changed: Condvar,
    value: parking_lot::RwLock<T>,
}

/// A [`RwLock`] held shared.
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// `None` only while it is dropped.
    held: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// A [`RwLock`] held exclusively.
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    /// `None` only while it is dropped or downgraded.
    held: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            gate: Mutex::default(),
            changed: Condvar::new(),
            value: parking_lot::RwLock::new(value),
        }
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut gate = self.gate_when(|gate| !gate.writer);
        gate.readers += 1;
        let held = Some(self.value.try_read().unwrap());
        RwLockReadGuard { lock: self, held }
    }

    /// Shared access, if no thread has exclusive access.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let mut gate = self.gate.lock();
        if gate.writer {
            return None;
        }
        gate.readers += 1;
        let held = Some(self.value.try_read().unwrap());
        Some(RwLockReadGuard { lock: self, held })
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut gate = self.gate_when(|gate| !gate.writer && gate.readers == 0);
        gate.writer = true;
        let held = Some(self.value.try_write().unwrap());
        RwLockWriteGuard { lock: self, held }
    }

    /// Exclusive access, if there is no other access.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let mut gate = self.gate.lock();
        if gate.writer || gate.readers > 0 {
            return None;
        }
        gate.writer = true;
        let held = Some(self.value.try_write().unwrap());
        Some(RwLockWriteGuard { lock: self, held })
    }

    /// Returns whether a thread has exclusive access.
    pub fn is_locked_exclusive(&self) -> bool {
        self.gate.lock().writer
    }

    fn gate_when(&self, is_open: fn(&Gate) -> bool) -> MutexGuard<'_, Gate> {
        let mut gate = self.gate.lock();
        while !is_open(&gate) {
            self.changed.wait(&mut gate);
        }
        gate
    }

    /// The value, which no other thread can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Returns whether a thread has any access.
    pub fn is_locked(&self) -> bool {
        let gate = self.gate.lock();
        gate.writer || gate.readers > 0
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// From exclusive to shared, with no other access in between.
    pub fn downgrade(mut this: Self) -> RwLockReadGuard<'a, T> {
        let lock = this.lock;
        let mut gate = lock.gate.lock();
        let held = this.held.take().unwrap();
        let held = Some(parking_lot::RwLockWriteGuard::downgrade(held));
        gate.writer = false;
        gate.readers += 1;
        drop(gate);
        lock.changed.notify_all();
        RwLockReadGuard { lock, held }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.held.take());
        self.lock.gate.lock().readers -= 1;
        self.lock.changed.notify_all();
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            drop(held);
            self.lock.gate.lock().writer = false;
            self.lock.changed.notify_all();
        }
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_deref().unwrap()
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_deref().unwrap()
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_deref_mut().unwrap()
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLockReadGuard").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLockWriteGuard").finish_non_exhaustive()
    }
}
