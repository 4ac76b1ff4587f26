//! The locks under the model checker: the same interface, with every acquisition and release a
//! point where the checker may switch threads.
//!
//! The value lies in a real lock that is never contended: a gate that the checker sees decides
//! which thread may take it. Timeouts expire at once, after the checker had its chance to switch.
//! A guard that is dropped while its thread panics poisons the checker's lock. That is ignored: the
//! model has failed then, and guards of other threads still go.

#![allow(clippy::unwrap_used, reason = "nothing here outlives a test")]

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use shuttle::sync as checked;

fn locked<T>(mutex: &checked::Mutex<T>) -> checked::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(checked::Mutex<T>);

/// A held [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only within [`Condvar::wait`].
    held: Option<checked::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(checked::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Some(locked(&self.0));
        MutexGuard { mutex: self, held }
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

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(checked::Condvar);

impl Condvar {
    /// A condition without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().unwrap();
        let woken = self.0.wait(held);
        guard.held = Some(woken.unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets other threads run, and returns.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        drop(guard.held.take());
        shuttle::thread::yield_now();
        guard.held = Some(locked(&guard.mutex.0));
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

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
