//! The locks under the model checker: the same interface, with every acquisition and release a
//! point where the checker may switch threads.
//!
//! The value lies in a real lock that is never contended: a gate that the checker sees decides
//! which thread may take it. Timeouts expire at once, after the checker had its chance to switch.

#![allow(
    unreachable_pub,
    reason = "the real ones are public, as are signatures that name them"
)]
#![allow(clippy::unwrap_used, reason = "nothing here outlives a test")]

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync as checked;

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
        let held = Some(self.0.lock().unwrap());
        MutexGuard { mutex: self, held }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Some(self.0.try_lock().ok()?);
        Some(MutexGuard { mutex: self, held })
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
        guard.held = Some(self.0.wait(held).unwrap());
    }

    /// Lets other threads run, and returns.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        drop(guard.held.take());
        shuttle::thread::yield_now();
        guard.held = Some(guard.mutex.0.lock().unwrap());
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Which accesses to a [`RwLock`] there are.
#[derive(Default)]
struct Gate {
    readers: usize,
    writer: bool,
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T> {
    gate: checked::Mutex<Gate>,
    changed: checked::Condvar,
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
            gate: checked::Mutex::default(),
            changed: checked::Condvar::new(),
            value: parking_lot::RwLock::new(value),
        }
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut gate = self.gate.lock().unwrap();
        while gate.writer {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.readers += 1;
        let held = Some(self.value.try_read().unwrap());
        RwLockReadGuard { lock: self, held }
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut gate = self.gate.lock().unwrap();
        while gate.writer || gate.readers > 0 {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.writer = true;
        let held = Some(self.value.try_write().unwrap());
        RwLockWriteGuard { lock: self, held }
    }

    /// Exclusive access, if there is no other access.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let mut gate = self.gate.lock().unwrap();
        if gate.writer || gate.readers > 0 {
            return None;
        }
        gate.writer = true;
        let held = Some(self.value.try_write().unwrap());
        Some(RwLockWriteGuard { lock: self, held })
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
        let mut gate = lock.gate.lock().unwrap();
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
        self.lock.gate.lock().unwrap().readers -= 1;
        self.lock.changed.notify_all();
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            drop(held);
            self.lock.gate.lock().unwrap().writer = false;
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
