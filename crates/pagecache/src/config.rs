//! What a page cache may use.

use std::time::Duration;

/// The largest folio order: 2 MiB, a huge page.
pub const MAX_ORDER: u32 = 9;

/// Limits and periods of a [`crate::PageCache`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes of folio memory, in use and recycled together. Never exceeded: writers wait
    /// for writeback instead. (Copies of folios that are changed while pinned may come on top, a quarter at most.) At least 256 KiB are used.
    pub budget_bytes: u64,
    /// The largest folio order, 0..=9. Small budgets lower it.
    pub max_order: u32,
    /// Dirty and under-writeback bytes at which all writers wait; halfway to it, those of files with more than an equal share
    /// of it do.
    pub dirty_limit_bytes: u64,
    /// Dirty bytes at which the flushers start without being asked.
    pub background_bytes: u64,
    /// How often the flushers look for expired dirty mappings.
    pub flush_interval: Duration,
    /// The age at which a dirty mapping is written without being asked.
    pub dirty_expire: Duration,
    /// The number of flusher threads. With none, whoever needs clean memory writes back by itself.
    pub flushers: usize,
}

impl Config {
    /// The limits that go with a budget: half of it may be dirty, flushing begins at an eighth.
    pub fn with_budget(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            max_order: MAX_ORDER,
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
