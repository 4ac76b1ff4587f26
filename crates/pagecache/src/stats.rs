//! Counters.

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::MAX_ORDER;

const SHARDS: usize = 8;

/// A counter that many threads may bump without meeting: each thread has a shard, a cache line of its own.
#[derive(Default)]
pub struct Counter {
    shards: [Shard; SHARDS],
}

#[derive(Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn shard() -> usize {
    SHARD.with(|cell| {
        let mine = cell.get();
        if mine < SHARDS {
            return mine;
        }
        let mine = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
        cell.set(mine);
        mine
    })
}

impl Counter {
    /// Adds one.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.shards[shard()].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.shards
            .iter()
            .map(|s| s.0.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// The cache's live counters.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) folios_by_order: [AtomicU64; MAX_ORDER as usize + 1],
    pub(crate) reclaimed: AtomicU64,
    pub(crate) reclaim_scans: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) memory_waits: AtomicU64,
    pub(crate) flusher_passes: AtomicU64,
    pub(crate) stable_waits: AtomicU64,
}

/// A snapshot of the cache's counters.
#[derive(Clone, Debug, Default)]
pub struct PageCacheStats {
    /// The byte budget.
    pub budget_bytes: u64,
    /// Bytes in folios.
    pub used_bytes: u64,
    /// Bytes taken from the host: in folios, or waiting to be used again.
    pub held_bytes: u64,
    /// Dirty bytes.
    pub dirty_bytes: u64,
    /// Bytes on their way to the device.
    pub writeback_bytes: u64,
    /// Folios ever made, by order.
    pub folios_by_order: [u64; MAX_ORDER as usize + 1],
    /// Folios taken away to make room.
    pub reclaimed: u64,
    /// Folios that reclaim looked at.
    pub reclaim_scans: u64,
    /// Writers that waited at the dirty limit.
    pub throttled: u64,
    /// Waits for folio memory.
    pub memory_waits: u64,
    /// Mappings that flushers were sent to.
    pub flusher_passes: u64,
    /// Waits for a folio's writeback to end.
    pub stable_waits: u64,
}

impl Counters {
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
