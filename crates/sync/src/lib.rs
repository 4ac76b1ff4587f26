//! Locks, atomics, threads and time of the crates whose protocols are model-checked: the real ones
//! or, built with `--cfg extant_shuttle`, ones of which a model checker (shuttle) schedules every
//! step.
//!
//! # Responsibility
//! Real builds re-export `parking_lot` and `std`, and add [`SpinMutex`] and
//! [`atomic::fence_after_exchange`]. A crate takes each lock and atomic from here that orders its
//! protocol. Counters, and locks under which no other lock is taken and no other thread is waited
//! for, may stay the real ones: a model has fewer steps without them.
//!
//! # Concurrency
//! The checker knows one order of memory: it finds wrong orders of steps, not wrong memory
//! orderings. `docs/SCHEDULES.md` has the models ("Interleavings").
#![forbid(unsafe_code)]

pub mod atomic;
pub mod hash;
#[cfg(extant_shuttle)]
mod modelled;
mod spin_mutex;
pub mod time;

pub use spin_mutex::SpinMutex;

#[cfg(extant_shuttle)]
pub use modelled::alarms::sleeping;
#[cfg(extant_shuttle)]
pub use modelled::condvar::{Condvar, WaitTimeoutResult};
#[cfg(extant_shuttle)]
pub use modelled::execution::restart;
#[cfg(extant_shuttle)]
pub use modelled::local::Local;
#[cfg(extant_shuttle)]
pub use modelled::mutex::{Mutex, MutexGuard};
#[cfg(extant_shuttle)]
pub use modelled::once_lock::OnceLock;
#[cfg(extant_shuttle)]
pub use modelled::rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(extant_shuttle)]
pub use modelled::thread;
#[cfg(not(extant_shuttle))]
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(extant_shuttle)]
#[doc(hidden)]
pub use shuttle;
#[cfg(not(extant_shuttle))]
pub use std::sync::OnceLock;
#[cfg(not(extant_shuttle))]
pub use std::{thread, thread_local};

/// Times that a thread looks at a word that is about to change before it sleeps. The checker
/// decides which thread runs: there no thread is worth waiting for on the processor.
pub const SPINS: u32 = if cfg!(extant_shuttle) { 0 } else { 60 };
