//! A bound of the data that a cache above the engine holds dirty.
//!
//! # Responsibility
//! A front end may let its callers dirty data that the engine sees only when it is written back:
//! the kernel's page cache of a mount does. The front end says how much that can be at most. Each
//! claim of space leaves as much free, so that an operation that takes space by name (fallocate, a
//! new directory) cannot take what an accepted write needs. The write-back spends it.
//!
//! # Concurrency
//! The front end raises the bound (1), and reads the room (2) before it lets a caller dirty data. A
//! claim takes its blocks (3), and reads the bound (4) before it keeps them. All four are
//! sequentially consistent: if (2) misses (3), (1) comes before (4), so the claim gives its blocks
//! back where they are no longer free for it.

use extant_sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::cell::Cell;
use std::sync::Arc;

extant_sync::thread_local! {
    /// Blocks of the bound that claims of this thread may spend.
    static SPENDABLE: Cell<u64> = const { Cell::new(0) };
    /// Blocks that claims of this thread leave free at most, whatever the bound is.
    static LEFT_AT_MOST: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The bound has refused a claim of this thread.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// A bound of the data that a cache above the engine holds dirty. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct DirtyBound {
    blocks: Arc<AtomicU64>,
    block_log2: u32,
}

/// Blocks that claims of the thread could spend before, and can again once this is dropped.
struct SpendableBefore(u64);

impl Drop for SpendableBefore {
    fn drop(&mut self) {
        SPENDABLE.set(self.0);
    }
}

/// Blocks that claims of the thread left free at most, and do again once this is dropped.
struct LeftBefore(u64);

impl Drop for LeftBefore {
    fn drop(&mut self) {
        LEFT_AT_MOST.set(self.0);
    }
}

impl DirtyBound {
    pub(crate) fn of(blocks: &Arc<AtomicU64>, block_log2: u32) -> Self {
        Self {
            blocks: Arc::clone(blocks),
            block_log2,
        }
    }

    /// Sets the bound to `bytes`: from now on claims leave so much free.
    pub fn set(&self, bytes: u64) {
        let blocks = bytes.div_ceil(1 << self.block_log2);
        self.blocks.store(blocks, SeqCst);
    }

    /// Runs `calls`, whose claims on this thread may spend `bytes` of the bound: they write data
    /// that it stands for.
    pub fn spending<R>(&self, bytes: u64, calls: impl FnOnce() -> R) -> R {
        let _before = SpendableBefore(SPENDABLE.replace(bytes >> self.block_log2));
        calls()
    }

    /// Runs `calls`, whose claims on this thread leave `bytes` free at most, however high the bound
    /// is or becomes meanwhile.
    pub fn leaving_at_most<R>(&self, bytes: u64, calls: impl FnOnce() -> R) -> R {
        let _before = LeftBefore(LEFT_AT_MOST.replace(bytes >> self.block_log2));
        calls()
    }

    /// Runs `calls`. Returns also whether a claim of theirs on this thread failed that would have
    /// found its blocks without the bound.
    pub fn refuses<R>(calls: impl FnOnce() -> R) -> (R, bool) {
        REFUSED.set(false);
        let result = calls();
        (result, REFUSED.get())
    }
}

/// Notes that the bound alone has refused a claim of this thread.
pub(crate) fn note_refusal() {
    REFUSED.set(true);
}

/// Blocks that claims of this thread leave free where the bound is `blocks`.
pub(crate) fn left_free(blocks: &AtomicU64) -> u64 {
    // What is spent may be more than there is.
    let left = blocks.load(SeqCst).saturating_sub(SPENDABLE.get());
    left.min(LEFT_AT_MOST.get())
}
