//! Counters.

/// A journal's counters since it was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct JournalStats {
    /// Handles started (restarts count again).
    pub handles: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Callers of `commit` that had to wait for one.
    pub commit_waits: u64,
    /// Metadata blocks written to the log.
    pub blocks_logged: u64,
    /// Blocks written to the log in all: descriptors, revokes and commit records included.
    pub log_blocks_written: u64,
    /// Revoke records written.
    pub revokes: u64,
    /// Blocks written home.
    pub blocks_checkpointed: u64,
    /// Times the tail of the log was moved on disk.
    pub tail_updates: u64,
    /// Times a start had to wait for room in the log.
    pub space_waits: u64,
    /// Blocks copied because a snapshot of them was held when they were modified.
    pub cow_copies: u64,
    /// Credits used beyond those that handles declared.
    pub credit_overflows: u64,
    /// Data that commits waited for, in registrations.
    pub ordered: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks read from the device.
    pub cache_misses: u64,
    /// Blocks dropped from the cache to keep its budget.
    pub cache_evictions: u64,
}
