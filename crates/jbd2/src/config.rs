//! The settings of a journal.

use std::sync::Arc;
use std::time::Duration;

use extant_failpoint::ActiveFailpoint;

use crate::operation_source::OperationSource;

/// The settings of a journal.
#[derive(Clone, Debug)]
pub struct Config {
    /// The age at which a running transaction is committed (`commit=`).
    pub commit_interval: Duration,
    /// Commits and checkpoints flush the device (`barrier`). Without flushes a crash may
    /// lose writes or reorder them.
    pub barrier: bool,
    /// The log is written with checksums v3 (file systems with `metadata_csum`). A log that
    /// has v2 or v3 already keeps its checksums in either case.
    pub checksums: bool,
    /// Credits that each handle has beside those it asks for: for blocks that change with what any
    /// operation changes, such as counts of usage.
    pub spare_credits: u32,
    /// A handle that uses more credits than it declared is only counted. If false, it fails
    /// an assertion; that is the default of builds with debug assertions.
    pub tolerate_overflow: bool,
    /// Each start of a handle first commits the handles before it and waits for the
    /// commit. For tests: a crash then shows the state between any two handles of one operation,
    /// which otherwise mostly share a transaction.
    pub commit_each_handle: bool,
    /// Fast commits are written, with what this says of a transaction, if the log has room for
    /// them.
    pub operations: Option<Arc<dyn OperationSource>>,
    /// The failpoint that a test switches on.
    pub failpoint: ActiveFailpoint,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            barrier: true,
            checksums: true,
            spare_credits: 0,
            tolerate_overflow: !cfg!(debug_assertions),
            commit_each_handle: false,
            operations: None,
            failpoint: ActiveFailpoint::default(),
        }
    }
}
