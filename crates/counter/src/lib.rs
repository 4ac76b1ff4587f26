//! Event counters and histograms of durations that many threads bump without sharing a cache line.
//!
//! A [`Counter`] has `OWNED` cells with one owner thread each, and one cell that all other
//! threads share. The owner adds to its cell with a plain load and store; a locked instruction
//! would cost more than the rest of some of the paths that are counted. A [`Histogram`] has as many
//! cells, of a count per bucket.
//!
//! # Invariants
//! * A cell below `OWNED` has at most one owner at a time. It goes to another thread only after
//!   its owner has ended.
//! * A thread has the same cell number in every counter.
//!
//! # Concurrency
//! [`Counter::get`] adds up the cells while threads may go on counting. The sum is exact as soon as
//! the counting threads are at rest: a counter is a statistic, and orders nothing.
#![forbid(unsafe_code)]

mod histogram;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub use histogram::{BUCKETS, Histogram, lower_bound};

/// Cells with an owner. Enough for the threads of a mount; more cells only cost memory.
const OWNED: usize = 15;
/// The number of the cell that threads without a cell of their own share.
const SHARED: usize = OWNED;

/// A count of events. Each of the first threads has a cell of its own, a cache line apart.
#[derive(Default)]
pub struct Counter {
    cells: [CountCell; OWNED + 1],
}

#[derive(Default)]
#[repr(align(64))]
struct CountCell(AtomicU64);

/// Numbers of cells whose owner has ended.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The lowest number that never had an owner; [`SHARED`] when there is none.
static NEXT: Mutex<usize> = Mutex::new(0);

/// A thread's ownership of one cell in every counter.
struct Lease(usize);

impl Lease {
    fn take() -> Self {
        if let Some(number) = FREE.lock().pop() {
            return Self(number);
        }
        let mut next = NEXT.lock();
        let number = *next;
        *next = (number + 1).min(SHARED);
        Self(number)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What this thread still counts while it ends goes to the shared cell.
        CELL.with(|cell| cell.set(SHARED));
        if self.0 < OWNED {
            let mut free = FREE.lock();
            debug_assert!(!free.contains(&self.0), "cell {} has one owner", self.0);
            free.push(self.0);
        }
    }
}

/// The cell number of a thread that has not counted yet.
const UNKNOWN: usize = usize::MAX;
thread_local! {
    static CELL: Cell<usize> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = Lease::take();
}

/// The number of this thread's cell.
#[inline]
fn own_cell() -> usize {
    let mine = CELL.with(Cell::get);
    if mine <= SHARED { mine } else { find_cell() }
}

#[cold]
fn find_cell() -> usize {
    // A thread whose lease is gone already counts in the shared cell.
    let mine = LEASE.try_with(|lease| lease.0).unwrap_or(SHARED);
    CELL.with(|cell| cell.set(mine));
    mine
}

/// Adds `n` to a count of this thread's cell, which has this number.
#[inline]
fn add_to(count: &AtomicU64, number: usize, n: u64) {
    if number < OWNED {
        // No other thread writes this cell, so a plain load and store lose no count.
        let sum = count.load(Ordering::Relaxed).wrapping_add(n);
        count.store(sum, Ordering::Relaxed);
    } else {
        count.fetch_add(n, Ordering::Relaxed);
    }
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
        add_to(&self.cells[number].0, number, n);
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

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn no_count_is_lost_with_more_threads_than_cells() {
        // Interpreted, a step takes a thousand times as long.
        const EACH: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let counter = Counter::default();
        for _ in 0..3 {
            // All at once: a thread that ends gives its cell to the next.
            let start = Barrier::new(3 * OWNED);
            std::thread::scope(|scope| {
                for _ in 0..3 * OWNED {
                    scope.spawn(|| {
                        start.wait();
                        (0..EACH).for_each(|_| counter.bump());
                    });
                }
            });
        }
        assert_eq!(counter.get(), 9 * OWNED as u64 * EACH);
    }
}
