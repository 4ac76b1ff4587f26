//! Counters of a cache, and the snapshot that callers get.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::MAX_ORDER;

/// The cache's live counters.
#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) folios_by_order: [AtomicU64; MAX_ORDER as usize + 1],
    pub(crate) reclaimed: AtomicU64,
    pub(crate) reclaim_scans: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) memory_waits: AtomicU64,
    pub(crate) flusher_passes: AtomicU64,
    pub(crate) stable_waits: AtomicU64,
}

/// A snapshot of the cache's counters and accounts.
#[derive(Clone, Debug, Default)]
pub struct PageCacheStats {
    /// The byte budget.
    pub budget_bytes: u64,
    /// Bytes in folios.
    pub used_bytes: u64,
    /// Bytes taken from the host: in folios, or free to be used again.
    pub held_bytes: u64,
    /// The most bytes ever taken from the host at once.
    pub peak_bytes: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Bytes under writeback.
    pub writeback_bytes: u64,
    /// Folios ever added to the cache, by order.
    pub folios_by_order: [u64; MAX_ORDER as usize + 1],
    /// Folios that reclaim removed.
    pub reclaimed: u64,
    /// Folios that reclaim looked at.
    pub reclaim_scans: u64,
    /// Times that a writer waited at the dirty limit.
    pub throttled: u64,
    /// Times that an allocation waited for folio memory.
    pub memory_waits: u64,
    /// Times that a flusher wrote back a file.
    pub flusher_passes: u64,
    /// Times that a thread waited for the end of a folio's writeback.
    pub stable_waits: u64,
}

/// Adds one. Counters order nothing.
#[inline]
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl CacheCounters {
    pub(crate) fn snapshot(&self) -> PageCacheStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageCacheStats {
            folios_by_order: array::from_fn(|i| get(&self.folios_by_order[i])),
            reclaimed: get(&self.reclaimed),
            reclaim_scans: get(&self.reclaim_scans),
            throttled: get(&self.throttled),
            memory_waits: get(&self.memory_waits),
            flusher_passes: get(&self.flusher_passes),
            stable_waits: get(&self.stable_waits),
            ..PageCacheStats::default()
        }
    }
}
