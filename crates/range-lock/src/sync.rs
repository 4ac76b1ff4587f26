//! The atomics, the mutex and the condition variable of the crate: the real ones, or, built with
//! `--cfg extant_shuttle`, ones whose every step a model checker schedules.

#[cfg(not(extant_shuttle))]
pub(crate) use real::*;

#[cfg(not(extant_shuttle))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

    use std::sync::atomic::{Ordering, compiler_fence};

    use parking_lot::{Condvar, Mutex};

    /// Looks at a word that is about to change before a thread sleeps.
    pub(crate) const SPINS: u32 = 60;
    /// Attempts at an EOF lock that another append holds before a record is locked instead.
    pub(crate) const EOF_ATTEMPTS: u32 = 256;

    /// `fence(SeqCst)` for a thread that has published its word by an exchange in `SeqCst` order.
    ///
    /// On x86-64 that exchange is a locked instruction: no later load passes it, so only the
    /// compiler needs to keep the order. Other processors may let a plain load pass the store half
    /// of an exchange.
    #[inline]
    pub(crate) fn fence_after_exchange() {
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// A mutex without data, and what its waiters sleep on.
    #[derive(Default)]
    pub(crate) struct Monitor {
        mutex: Mutex<()>,
        changed: Condvar,
    }

    impl Monitor {
        /// Sleeps with the mutex released while `blocked` says so. `enter` and `leave` run
        /// under it.
        pub(crate) fn wait_while(
            &self,
            enter: impl FnOnce(),
            mut blocked: impl FnMut() -> bool,
            leave: impl FnOnce(),
        ) {
            let mut held = self.mutex.lock();
            enter();
            while blocked() {
                self.changed.wait(&mut held);
            }
            leave();
        }

        /// Wakes all waiters. One that is between its look and its sleep holds the mutex.
        pub(crate) fn wake_all(&self) {
            drop(self.mutex.lock());
            self.changed.notify_all();
        }
    }
}

#[cfg(extant_shuttle)]
pub(crate) use modelled::*;

#[cfg(extant_shuttle)]
mod modelled {
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, fence};

    use std::sync::PoisonError;
    use std::sync::atomic::Ordering;

    use shuttle::sync::{Condvar, Mutex};

    /// The checker decides which thread runs: no thread is worth waiting for on the processor.
    pub(crate) const SPINS: u32 = 0;
    /// As few as show both outcomes.
    pub(crate) const EOF_ATTEMPTS: u32 = 1;

    /// The checker knows one order of memory: a fence either way.
    pub(crate) fn fence_after_exchange() {
        fence(Ordering::SeqCst);
    }

    /// As the real one.
    #[derive(Default)]
    pub(crate) struct Monitor {
        mutex: Mutex<()>,
        changed: Condvar,
    }

    /// Poison is passed over: the model has failed then, and guards of other threads still go.
    impl Monitor {
        pub(crate) fn wait_while(
            &self,
            enter: impl FnOnce(),
            mut blocked: impl FnMut() -> bool,
            leave: impl FnOnce(),
        ) {
            let mut held = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
            enter();
            while blocked() {
                let woken = self.changed.wait(held);
                held = woken.unwrap_or_else(PoisonError::into_inner);
            }
            leave();
        }

        pub(crate) fn wake_all(&self) {
            drop(self.mutex.lock());
            self.changed.notify_all();
        }
    }
}
