//! A lock for many readers or one writer.
//!
//! The value lies in a real lock that is never contended: a gate decides which thread may take it.
//! The checker switches before an access begins and before it ends, and where a thread waits.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::modelled::condvar::Condvar;
use crate::modelled::mutex::Mutex;
use crate::modelled::thread::step;

/// The accesses to a [`RwLock`].
#[derive(Default)]
struct Gate {
    readers: usize,
    writer: bool,
    /// Threads that wait, or are about to.
    waiters: usize,
}

impl Gate {
    /// Enters shared, if no thread has exclusive access.
    fn read(&mut self) -> bool {
        let enters = !self.writer;
        self.readers += usize::from(enters);
        enters
    }

    /// Enters exclusively, if there is no other access.
    fn write(&mut self) -> bool {
        let enters = !self.writer && self.readers == 0;
        self.writer |= enters;
        enters
    }
}

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T> {
    /// Never held where the checker switches.
    gate: std::sync::Mutex<Gate>,
    queue: Mutex<()>,
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
            gate: std::sync::Mutex::default(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            value: parking_lot::RwLock::new(value),
        }
    }

    fn gate(&self) -> std::sync::MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters by `enter`, which returns whether it could, at once or after a wait.
    fn enter(&self, enter: fn(&mut Gate) -> bool) {
        step();
        if enter(&mut self.gate()) {
            return;
        }
        let mut queue = self.queue.lock();
        self.gate().waiters += 1;
        while !enter(&mut self.gate()) {
            self.changed.wait(&mut queue);
        }
        self.gate().waiters -= 1;
    }

    /// Leaves by `leave`, and lets others try.
    fn leave(&self, leave: fn(&mut Gate)) {
        step();
        leave(&mut self.gate());
        let waiters = self.gate().waiters;
        if waiters > 0 {
            // A thread that was about to wait does so by now.
            drop(self.queue.lock());
            self.changed.notify_all();
        }
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.enter(Gate::read);
        let held = Some(self.value.try_read().unwrap());
        RwLockReadGuard { lock: self, held }
    }

    /// Shared access, if no thread has exclusive access.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        step();
        let enters = self.gate().read();
        enters.then(|| RwLockReadGuard {
            lock: self,
            held: Some(self.value.try_read().unwrap()),
        })
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.enter(Gate::write);
        let held = Some(self.value.try_write().unwrap());
        RwLockWriteGuard { lock: self, held }
    }

    /// Exclusive access, if there is no other access.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        step();
        let enters = self.gate().write();
        enters.then(|| RwLockWriteGuard {
            lock: self,
            held: Some(self.value.try_write().unwrap()),
        })
    }

    /// Returns whether a thread has exclusive access.
    pub fn is_locked_exclusive(&self) -> bool {
        step();
        self.gate().writer
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
        step();
        let gate = self.gate();
        gate.writer || gate.readers > 0
    }
}

impl<'a, T> RwLockWriteGuard<'a, T> {
    /// From exclusive to shared, with no other access in between.
    pub fn downgrade(mut this: Self) -> RwLockReadGuard<'a, T> {
        let lock = this.lock;
        let held = this.held.take().unwrap();
        let held = Some(parking_lot::RwLockWriteGuard::downgrade(held));
        lock.leave(|gate| {
            gate.writer = false;
            gate.readers += 1;
        });
        RwLockReadGuard { lock, held }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.held.take());
        self.lock.leave(|gate| gate.readers -= 1);
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            drop(held);
            self.lock.leave(|gate| gate.writer = false);
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
