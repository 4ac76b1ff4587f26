//! Limits and settings of a page cache.

use std::time::Duration;

/// The largest folio order: 2 MiB, a huge page.
pub const MAX_ORDER: u32 = 9;

/// Limits and periods of a [`crate::PageCache`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes of folio memory, in use and recycled together. Writers wait for writeback
    /// rather than exceed it. Only copies of folios that are changed while pinned come on top, a
    /// quarter of the budget at most. Smaller budgets count as 256 KiB.
    pub budget_bytes: u64,
    /// The largest folio order, 0..=9. Small budgets lower it.
    pub max_order: u32,
    /// The order of the smallest folio, 0..=4: that of the largest block, where blocks are larger
    /// than pages. Budgets too small for eight such folios count as that much.
    pub min_order: u32,
    /// Bytes dirty and under writeback at which all writers wait. Halfway from the background limit
    /// to this one, writers of files with more than an equal share of it wait.
    pub dirty_limit_bytes: u64,
    /// Dirty bytes above which the flushers write, however young the data is: the background limit.
    pub background_bytes: u64,
    /// How often the flushers look for files that have been dirty for long enough.
    pub flush_interval: Duration,
    /// How long a file may be dirty before a flusher writes it.
    pub dirty_expire: Duration,
    /// The number of flusher threads. With none, a thread that waits at a limit or for memory
    /// writes back by itself.
    pub flushers: usize,
}

impl Config {
    /// The limits that go with a budget. Half of it may be dirty, and flushing begins at an eighth:
    /// so writers rarely wait, and reads keep half of the cache. The periods are Linux's
    /// (`dirty_writeback_centisecs`, `dirty_expire_centisecs`).
    pub fn with_budget(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            max_order: MAX_ORDER,
            min_order: 0,
            dirty_limit_bytes: budget_bytes / 2,
            background_bytes: budget_bytes / 8,
            flush_interval: Duration::from_secs(5),
            dirty_expire: Duration::from_secs(30),
            flushers: 2,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::with_budget(512 << 20)
    }
}
