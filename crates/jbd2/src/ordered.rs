//! Data that a commit waits for (`data=ordered`).
//!
//! # Invariants
//! J26: where a transaction allocates blocks as written extents, the data of those blocks is
//! durable before the transaction is. Otherwise a crash would show what the blocks held before.
//! The allocating code registers the data with its handle ([`crate::Handle::order`]). The commit
//! calls [`OrderedData::write_and_wait`] before it writes the log, and the preflush of the commit
//! record makes the data durable.

use extant_units::Tid;

/// Data that must be on the device before a transaction commits.
pub trait OrderedData: Send + Sync {
    /// Writes the data that was registered under transaction `tid`, as far as its blocks are
    /// allocated, and waits until the device has completed the writes.
    ///
    /// Runs on the thread that commits. It must not start a handle, wait for one or wait for a
    /// commit, and it must not take a lock whose holders do. The implementation records failures
    /// for the owner of the data.
    fn write_and_wait(&self, tid: Tid);
}
