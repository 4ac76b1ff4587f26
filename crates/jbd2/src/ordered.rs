//! Data that a commit waits for (data=ordered).
//!
//! Where blocks are allocated for data as written ones, their transaction must not be durable before the data is: otherwise a crash
//! shows what the blocks held before. Whoever allocates so registers the data with the handle
//! ([`crate::Handle::order`]); the commit settles it before it writes the log, and the commit record's preflush makes it durable.

use extant_units::Tid;

/// Data that must be at home before a transaction commits.
pub trait OrderedData: Send + Sync {
    /// Has the data that was registered under transaction `tid` written, as far as it has a place, and waits until the device has answered. Runs on the commit thread: must not
    /// start a handle nor wait for one, must not wait for a commit, and whoever holds a lock that it takes must not do so
    /// either. Failures are the data's owner's to record.
    fn settle(&self, tid: Tid);
}
