//! The lock, the atomics and the parking of the crate: the real ones, or, built with `--cfg extant_shuttle`, ones whose every
//! step a model checker schedules (`tests/interleavings.rs`).

#[cfg(not(extant_shuttle))]
pub(crate) use real::*;

#[cfg(not(extant_shuttle))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    pub(crate) use std::thread::{Thread, current, park};

    /// Looks at an atomic that is about to change before a thread sleeps.
    pub(crate) const SPINS: u32 = 60;
}

#[cfg(extant_shuttle)]
pub(crate) use modelled::*;

#[cfg(extant_shuttle)]
mod modelled {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
    pub(crate) use shuttle::thread::{Thread, current, park};

    /// The checker decides who runs: nobody is worth waiting for on the spot.
    pub(crate) const SPINS: u32 = 0;

    /// As `parking_lot::Mutex`.
    #[derive(Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        #[allow(clippy::unwrap_used, reason = "a model that panicked is over")]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
