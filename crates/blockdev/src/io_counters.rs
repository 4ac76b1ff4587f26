//! Counters of a host file's I/O.

use std::sync::atomic::AtomicU64;

/// Counters of a host file's I/O since it was opened.
#[derive(Default)]
pub(crate) struct IoCounters {
    /// Requests submitted to a ring.
    pub(crate) requests: AtomicU64,
    /// Those of them that used registered buffers.
    pub(crate) registered: AtomicU64,
    /// System calls that entered a ring.
    pub(crate) enters: AtomicU64,
    /// Requests that a ring did not complete and that system calls completed.
    pub(crate) finished_by_calls: AtomicU64,
    /// Requests made through an aligned copy.
    pub(crate) copied: AtomicU64,
    /// Those of them that had to read the sectors around a write.
    pub(crate) merged: AtomicU64,
}
