//! The locks and atomics of the crate: the real ones or, built with `--cfg extant_shuttle`, ones
//! whose every step a model checker schedules (`crates/iomap/tests/interleavings/`).
//!
//! The locks of folios, address spaces and the cache's lists come from here. Counters, and locks
//! under which no other lock is taken (the arena, readahead), stay the real ones.

#[cfg(extant_shuttle)]
mod modelled;

#[cfg(extant_shuttle)]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(extant_shuttle))]
pub(crate) use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Atomics.
pub(crate) mod atomic {
    #[cfg(extant_shuttle)]
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    #[cfg(not(extant_shuttle))]
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::atomic::{Ordering, fence};
}
