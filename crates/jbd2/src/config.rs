//! What a journal's owner chooses.

use std::time::Duration;

use extant_failpoint::ActiveFailpoint;

/// What a journal's owner chooses.
#[derive(Clone, Debug)]
pub struct Config {
    /// The age at which a running transaction is committed (`commit=`).
    pub commit_interval: Duration,
    /// Whether commits and checkpoints flush the device (`barrier`). Without it a crash may lose or mix anything.
    pub barrier: bool,
    /// Whether the log is written with checksums v3 (file systems with metadata_csum). A log that has v2 or
    /// v3 already keeps its checksums whatever is said here.
    pub checksums: bool,
    /// Whether a handle that uses more credits than it declared is let off with a count, instead of failing
    /// an assertion. False in builds with debug assertions.
    pub tolerate_overflow: bool,
    /// Whether each start of a handle first commits what the handles before it did, and waits for
    /// that: for tests. A crash then shows the state between any two handles of one operation,
    /// which otherwise mostly share a transaction.
    pub commit_each_handle: bool,
    /// The failpoint that a test switches on.
    pub failpoint: ActiveFailpoint,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            barrier: true,
            checksums: true,
            tolerate_overflow: !cfg!(debug_assertions),
            commit_each_handle: false,
            failpoint: ActiveFailpoint::default(),
        }
    }
}
