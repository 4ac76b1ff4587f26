//! Threads that sleep until a lock word has been withdrawn.
//!
//! # Concurrency
//! A waiter counts itself, fences and looks at the word (steps 1 to 3 of the crate's protocol: its
//! count is its word). A release withdraws the lock word and then reads the count. So either the
//! waiter sees that the word is gone, or the release sees the waiter. The release then passes
//! through the mutex that a waiter holds from its count to its sleep: the wake cannot come between
//! the last look and the sleep. Models: `j39_a_waiter_for_a_slot_is_woken` and
//! `j39_a_waiter_for_the_eof_lock_is_woken`.

use std::hint::spin_loop;

use extant_sync::atomic::{AtomicU32, Ordering, fence};
use extant_sync::{Condvar, Mutex, SPINS};

use crate::step::{Omitted, Step};

/// See the module.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// Threads that sleep or are about to look for the last time.
    count: AtomicU32,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl Sleepers {
    /// Waits while `blocked`: for a moment on the processor, then asleep. Returns whether the
    /// moment was too short.
    #[cold]
    pub(crate) fn wait_while(&self, omitted: Omitted, blocked: impl Fn() -> bool) -> bool {
        if !blocked() {
            return false;
        }
        for _ in 0..SPINS {
            spin_loop();
            if !blocked() {
                return false;
            }
        }
        let is_early = omitted.is(Step::WaiterIsCountedFirst);
        let mut early = is_early.then(&blocked);
        let mut held = self.mutex.lock();
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while early.take().unwrap_or_else(&blocked) {
            self.changed.wait(&mut held);
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
        true
    }

    /// Wakes all waiters. To be called after a sequentially consistent operation has withdrawn
    /// the word that they wait for.
    #[inline]
    pub(crate) fn wake(&self, omitted: Omitted) {
        if self.are_there() && !omitted.is(Step::ReleaseWakes) {
            self.wake_all();
        }
    }

    /// A waiter that is between its last look and its sleep holds the mutex.
    #[cold]
    fn wake_all(&self) {
        drop(self.mutex.lock());
        self.changed.notify_all();
    }

    /// Returns whether a thread sleeps or is about to.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Ordering::SeqCst) != 0
    }
}
