//! Counters.
//!
//! A [`Counter`] has a cell for each of the first threads and one for all others. The owner of a cell adds to it without a
//! locked instruction, which on a path of some ten nanoseconds is worth having; a cell goes to another thread only
//! after its owner has ended. A sum over the cells is exact as soon as the counting threads are at rest.

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::MAX_ORDER;

/// Cells with an owner; one more is shared by all threads that found none.
const OWNED: usize = 15;

/// A counter that many threads may bump without meeting: each has a cell, a cache line of its own.
#[derive(Default)]
pub struct Counter {
    cells: [CountCell; OWNED + 1],
}

#[derive(Default)]
#[repr(align(64))]
struct CountCell(AtomicU64);

/// The numbers of cells that no living thread owns.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Numbers that were ever given out.
static GIVEN: Mutex<usize> = Mutex::new(0);

/// A thread's ownership of one cell in every counter.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        if let Some(number) = FREE.lock().pop() {
            return Self(number);
        }
        let mut given = GIVEN.lock();
        let number = *given;
        *given = (number + 1).min(OWNED);
        Self(number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What this thread still counts on its way out goes to the shared cell.
        CELL.with(|cell| cell.set(OWNED));
        if self.0 < OWNED {
            FREE.lock().push(self.0);
        }
    }
}

const UNKNOWN: usize = usize::MAX;
thread_local! {
    static CELL: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = Lease::take();
}

/// The number of this thread's cell.
#[inline]
pub(crate) fn own_cell() -> usize {
    let mine = CELL.with(Cell::get);
    if mine <= OWNED { mine } else { find_cell() }
}

#[cold]
fn find_cell() -> usize {
    // A thread whose lease has gone already counts in the shared cell.
    let mine = LEASE.try_with(|lease| lease.0).unwrap_or(OWNED);
    CELL.with(|cell| cell.set(mine));
    mine
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
        let number = own_cell();
        let cell = &self.cells[number].0;
        if number < OWNED {
            // Nobody else writes this cell.
            let sum = cell.load(Ordering::Relaxed).wrapping_add(n);
            cell.store(sum, Ordering::Relaxed);
        } else {
            cell.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.cells
            .iter()
            .map(|cell| cell.0.load(Ordering::Relaxed))
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
    /// The most bytes ever taken from the host at once.
    pub peak_bytes: u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_count_is_lost_with_more_threads_than_cells() {
        let counter = Counter::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..3 * OWNED {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counter.bump();
                        }
                    });
                }
            });
        }
        assert_eq!(counter.get(), 9 * OWNED as u64 * 1000);
    }
}
