//! How flusher threads are woken and stopped.
//!
//! # Concurrency
//! A kick is a flag beside the mutex, so that a writer that finds it set already pays one load. The
//! first thread that sets the flag takes the mutex before it notifies:
//!
//! 1. A flusher holds the mutex from its look at the flag until it waits.
//! 2. A thread that sets the flag takes and releases the mutex, and notifies afterwards.
//! 3. So the flusher either sees the flag, or waits already when the notification comes.

use std::time::Duration;

use extant_sync::atomic::{AtomicBool, Ordering};
use extant_sync::{Condvar, Mutex};

/// Wakes and stops the flushers of a cache.
#[derive(Default)]
pub(crate) struct FlusherWakeup {
    stopped: Mutex<bool>,
    wake: Condvar,
    kicked: AtomicBool,
}

impl FlusherWakeup {
    /// Wakes the flushers. One that is at work looks again before it sleeps.
    pub(crate) fn kick(&self) {
        if !self.kicked.load(Ordering::Relaxed) && !self.kicked.swap(true, Ordering::AcqRel) {
            drop(self.stopped.lock());
            self.wake.notify_all();
        }
    }

    /// Ends all waits, now and later.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }

    /// Sleeps until the next kick, at most for `interval`. Returns false when flushers are to stop.
    pub(crate) fn wait(&self, interval: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped && !self.take_kick() {
            self.wake.wait_for(&mut stopped, interval);
            self.take_kick();
        }
        !*stopped
    }

    fn take_kick(&self) -> bool {
        self.kicked.swap(false, Ordering::AcqRel)
    }
}
