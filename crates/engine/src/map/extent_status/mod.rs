//! The extent status tree: the part of a file's map that is known in memory.
//!
//! Every block of a file is in exactly one of four states ([`MapState`](crate::map::MapState)), or
//! unknown. Delayed ranges are known here and nowhere else. All others are a cache of the tree on
//! disk and may be forgotten at any time.
//!
//! # Invariants
//! - Ranges are disjoint, sorted and merged (J13).
//! - A known range is what the tree on disk says, except that a delayed one is a hole there (J14).
//! - The reservation holds one block per delayed block (J9, J10).
//! - The sequence grows inside the lock with every change of a mapping (J16), and not when a range
//!   is only learnt from disk or forgotten.
//!
//! # Locks
//! One mutex per inode, a leaf under `map_lock`; no thread waits for I/O under it.
//!
//! # Concurrency
//! The sequence can be read without the lock: a user of a mapping compares it after locking the
//! folio. Memory is bounded for all inodes of a file system together, see [`StatusCache`].

mod known_ranges;
mod shared_status;
mod status_cache;
mod status_tree;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::shared_status::SharedStatus;
pub(in crate::map) use self::shared_status::StatusGuard;
pub(crate) use self::status_cache::StatusCache;
pub(in crate::map) use self::status_tree::ReservationFate;
pub(crate) use self::status_tree::Status;
#[cfg(test)]
use self::status_tree::StatusTree;

/// One inode's status tree; see the module.
#[derive(Default)]
pub(crate) struct ExtentStatus {
    shared: Arc<SharedStatus>,
}

impl ExtentStatus {
    /// The sequence now. Takes no lock.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.shared.sequence.load(Ordering::Acquire)
    }

    /// Blocks in delayed state. Takes no lock.
    #[inline]
    pub(crate) fn delayed_blocks(&self) -> u64 {
        self.shared.delayed.load(Ordering::Relaxed)
    }

    /// The tree, for looking and changing.
    pub(in crate::map) fn lock(&self, cache: &StatusCache) -> StatusGuard<'_> {
        if self.shared.known.get().is_none() && self.shared.known.set(cache.counter()).is_ok() {
            cache.register(&self.shared);
        }
        StatusGuard::new(&self.shared)
    }
}
