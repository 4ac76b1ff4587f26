//! The locks, the time and the storage of threads under the model checker: the same interface, with
//! every acquisition and release a point where the checker may switch threads.
//!
//! A guard that is dropped while its thread panics poisons the checker's lock. That is ignored: the
//! model has failed then, and guards of other threads still go.

#![allow(clippy::unwrap_used, reason = "nothing here outlives a test")]

pub(crate) mod alarms;
pub(crate) mod condvar;
pub(crate) mod execution;
pub(crate) mod fixed_hash;
pub(crate) mod local;
pub(crate) mod mutex;
pub(crate) mod once_lock;
pub(crate) mod rw_lock;
pub(crate) mod simulated_time;
pub mod thread;
