//! The counters of a journal, as its users see them.

/// A journal's counters since it was opened.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct JournalStats {
    /// Handles started. A restart counts as a start.
    pub handles: u64,
    /// Transactions committed. A transaction that ends empty does not count.
    pub commits: u64,
    /// Calls that waited for a commit of a live transaction.
    pub commit_waits: u64,
    /// Commits that such a call made by itself, without the commit thread.
    pub own_commits: u64,
    /// Fast commits written.
    pub fast_commits: u64,
    /// Blocks of fast commits written.
    pub fast_blocks: u64,
    /// Commits of a whole transaction for a call that a fast commit would serve, had the
    /// transaction no change that none can tell.
    pub fast_untold: u64,
    /// The same, had the area of fast commits room.
    pub fast_no_room: u64,
    /// Metadata blocks written to the log.
    pub blocks_logged: u64,
    /// All blocks written to the log: copies, descriptors, revoke blocks and commit records.
    pub log_blocks_written: u64,
    /// Revoke records written.
    pub revokes: u64,
    /// Metadata blocks written to their home locations.
    pub blocks_checkpointed: u64,
    /// Moves of the log's tail in the superblock.
    pub tail_updates: u64,
    /// Times a start waited for space in the log.
    pub space_waits: u64,
    /// Blocks copied because a snapshot of them existed when they were modified.
    pub cow_copies: u64,
    /// Credits that handles used beyond those they declared.
    pub credit_overflows: u64,
    /// Registrations of ordered data that commits waited for.
    pub ordered: u64,
    /// Lookups that found the block's bytes in the cache.
    pub cache_hits: u64,
    /// Blocks read from the device.
    pub cache_misses: u64,
    /// Blocks evicted to keep the cache within its budget.
    pub cache_evictions: u64,
}
