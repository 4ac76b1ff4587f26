//! The operations of transactions: the file system's part of fast commits.

use std::fmt::Debug;

use extant_disk::jbd2::fast_commit::FastCommitWriter;
use extant_units::Tid;

/// The file system's record of what transactions have done.
pub trait OperationSource: Debug + Send + Sync {
    /// Adds to `fast` what transaction `tid`, which runs, has done since the last call for it.
    /// False if that cannot be told: the whole transaction is committed then.
    ///
    /// Runs on a thread that commits, while no handle is open and none can start. It reads blocks,
    /// starts no handle and waits for none.
    fn tell(&self, tid: Tid, fast: &mut FastCommitWriter) -> bool;
}
