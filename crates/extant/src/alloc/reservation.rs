//! Promised space: the counters and the object that stands for a promise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_units::Blocks;

/// Free and promised blocks of the volume.
///
/// `available` is free minus promised; it is what claims are made against, in one atomic step, so that the
/// sum of promises never exceeds what is free.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    /// Free blocks in the bitmaps, blocks of transactions that are not durable yet included.
    pub(crate) free: AtomicU64,
    /// Blocks promised to delayed allocation.
    pub(crate) reserved: AtomicU64,
    /// Free blocks that are not promised.
    pub(crate) available: AtomicU64,
}

/// A promise of blocks to delayed allocation. It is consumed as blocks are allocated (with
/// `AllocRequest::reserved`) or given back; dropping one that is still full is a bug, which is counted,
/// logged and repaired.
#[derive(Debug)]
#[must_use = "promised space must be consumed or given back"]
pub(crate) struct Reservation {
    counts: Arc<Counts>,
    blocks: u64,
}

impl Reservation {
    /// An empty reservation, to merge others into.
    pub(crate) fn empty(counts: &Arc<Counts>) -> Self {
        Self {
            counts: Arc::clone(counts),
            blocks: 0,
        }
    }

    /// The promise of `n` blocks that the caller has just moved from `available` to `reserved`.
    pub(crate) fn of(counts: &Arc<Counts>, n: Blocks) -> Self {
        Self {
            counts: Arc::clone(counts),
            blocks: n.get(),
        }
    }

    /// Blocks still promised.
    pub(crate) fn blocks(&self) -> Blocks {
        Blocks::new(self.blocks)
    }

    /// Takes over what `other` holds.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.blocks = self
            .blocks
            .saturating_add(std::mem::take(&mut other.blocks));
    }

    /// `n` promised blocks were allocated (with `AllocRequest::reserved`): the promise is kept. At most what is held.
    pub(crate) fn consume(&mut self, n: Blocks) {
        let n = n.get().min(self.blocks);
        self.blocks -= n;
        self.counts.reserved.fetch_sub(n, Ordering::Relaxed);
    }

    /// `n` promised blocks are not needed any more. At most what is held.
    pub(crate) fn give_back(&mut self, n: Blocks) {
        let n = n.get().min(self.blocks);
        self.blocks -= n;
        self.counts.reserved.fetch_sub(n, Ordering::Relaxed);
        self.counts.available.fetch_add(n, Ordering::Relaxed);
    }

    /// Gives back everything.
    pub(crate) fn give_back_all(mut self) {
        self.give_back(Blocks::new(self.blocks));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.blocks != 0 {
            tracing::error!(blocks = self.blocks, "a reservation was dropped while full");
            self.give_back(Blocks::new(self.blocks));
        }
    }
}
