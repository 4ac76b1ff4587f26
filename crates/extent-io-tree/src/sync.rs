//! The lock, the atomics and the parking of the crate: the real ones, or, built with `--cfg
//! extant_shuttle`, ones whose every step a model checker schedules (`tests/interleavings.rs`).

#[cfg(not(extant_shuttle))]
pub(crate) use real::*;

#[cfg(not(extant_shuttle))]
mod real {
    pub(crate) use parking_lot::MutexGuard;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    pub(crate) use std::thread::{Thread, current, park};

    /// Looks at an atomic that is about to change before a thread sleeps.
    pub(crate) const SPINS: u32 = 60;

    /// Looks at a lock that is held before a thread sleeps.
    const LOOKS: u32 = 64;
    /// The most pauses between two of them.
    const PAUSES: u32 = 32;

    /// A lock that is held for some tens of nanoseconds: a thread waits for it on the
    /// processor, as sleeping and being woken would take a hundred times as long, and sleeps
    /// only if its holder does.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.try_lock().unwrap_or_else(|| self.wait())
        }

        #[cold]
        fn wait(&self) -> MutexGuard<'_, T> {
            let mut pauses = 1;
            for _ in 0..LOOKS {
                (0..pauses).for_each(|_| std::hint::spin_loop());
                if let Some(guard) = self.0.try_lock() {
                    return guard;
                }
                pauses = (pauses * 2).min(PAUSES);
            }
            self.0.lock()
        }
    }
}

#[cfg(extant_shuttle)]
pub(crate) use modelled::*;

#[cfg(extant_shuttle)]
mod modelled {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    pub(crate) use shuttle::thread::{Thread, current, park};
    use std::sync::PoisonError;

    /// The checker decides which thread runs: none is worth waiting for on the processor.
    pub(crate) const SPINS: u32 = 0;

    /// As `parking_lot::Mutex`.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        /// A guard that is dropped while its thread panics poisons the lock; the model has failed
        /// then, and guards of other threads still go.
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
