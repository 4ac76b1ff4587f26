//! The extent status tree: the part of a file's map on disk that is known in memory.
//!
//! A block is a hole, written or unwritten, or unknown. Everything here is a cache of the tree on
//! disk and may be forgotten at any time. What is only in memory, delayed blocks, is not here but
//! in [`super::delayed_space`]; [`super::map_view`] puts both together.
//!
//! # Invariants
//! - Ranges are disjoint, sorted and merged (J13).
//! - A known range is what the tree on disk says (J14).
//! - The sequence grows inside the lock with every change of the map on disk (J16), and not when a
//!   range is only learnt or forgotten.
//!
//! # Locks
//! One mutex per inode, under `map_lock`; no thread waits for I/O under it. It also covers changes
//! of the delayed blocks, whose tree's own lock is a leaf inside of it.
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
pub(crate) use self::shared_status::StatusGuard;
pub(crate) use self::status_cache::StatusCache;
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

    /// The tree, for looking and changing.
    pub(crate) fn lock(&self, cache: &StatusCache) -> StatusGuard<'_> {
        if self.shared.known.get().is_none() && self.shared.known.set(cache.counter()).is_ok() {
            cache.register(&self.shared);
        }
        StatusGuard::new(&self.shared)
    }
}
