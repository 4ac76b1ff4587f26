//! The number of ranges that the status trees of a file system know.

use extant_sync::atomic::{AtomicU64, Ordering};

/// The number, which every tree adjusts and the bound of their memory reads.
#[derive(Default)]
pub(super) struct KnownRanges(AtomicU64);

impl KnownRanges {
    /// The number now.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts that a tree went from `before` ranges to `after`.
    pub(super) fn adjust(&self, before: usize, after: usize) {
        let (before, after) = (before as u64, after as u64);
        if after > before {
            self.0.fetch_add(after - before, Ordering::Relaxed);
        } else {
            let all = self.0.fetch_sub(before - after, Ordering::Relaxed);
            debug_assert!(
                before - after <= all,
                "{before} of {all} ranges become {after}"
            );
        }
    }
}
