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

mod status_cache;
mod status_tree;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extant_lock_order::{Held, Rank, taking};
use parking_lot::{Mutex, MutexGuard};

pub(crate) use status_cache::StatusCache;
pub(crate) use status_tree::Status;
pub(in crate::map) use status_tree::{ReservationFate, StatusTree};

/// One inode's status tree; see the module.
#[derive(Default)]
pub(crate) struct ExtentStatus {
    shared: Arc<SharedStatus>,
}

/// The part that the file system's [`StatusCache`] reaches as well.
#[derive(Default)]
struct SharedStatus {
    sequence: AtomicU64,
    /// Blocks in delayed state; a copy of the tree's count.
    delayed: AtomicU64,
    tree: Mutex<StatusTree>,
    /// Set when the inode's first range becomes known.
    cache: OnceLock<Arc<StatusCache>>,
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
    pub(in crate::map) fn lock(&self, cache: &Arc<StatusCache>) -> StatusGuard<'_> {
        if self.shared.cache.get().is_none() && self.shared.cache.set(Arc::clone(cache)).is_ok() {
            cache.register(&self.shared);
        }
        StatusGuard::new(&self.shared)
    }
}

impl Drop for SharedStatus {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.get() {
            let tree = self.tree.get_mut();
            cache.adjust(tree.reclaimable(), 0);
        }
    }
}

/// The locked tree. Its drop publishes the sequence and the counts, then unlocks.
pub(in crate::map) struct StatusGuard<'a> {
    shared: &'a SharedStatus,
    reclaimable: usize,
    tree: MutexGuard<'a, StatusTree>,
    _held: Held,
}

impl<'a> StatusGuard<'a> {
    fn new(shared: &'a SharedStatus) -> Self {
        let held = taking(Rank::Status);
        let tree = shared.tree.lock();
        Self {
            shared,
            reclaimable: tree.reclaimable(),
            tree,
            _held: held,
        }
    }
}

impl Deref for StatusGuard<'_> {
    type Target = StatusTree;

    #[inline]
    fn deref(&self) -> &StatusTree {
        &self.tree
    }
}

impl DerefMut for StatusGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut StatusTree {
        &mut self.tree
    }
}

impl Drop for StatusGuard<'_> {
    fn drop(&mut self) {
        let (sequence, delayed) = (self.tree.sequence(), self.tree.delayed());
        if sequence != self.shared.sequence.load(Ordering::Relaxed) {
            self.shared.sequence.store(sequence, Ordering::Release);
            self.shared.delayed.store(delayed, Ordering::Relaxed);
        }
        let now = self.tree.reclaimable();
        if now != self.reclaimable
            && let Some(cache) = self.shared.cache.get()
        {
            cache.adjust(self.reclaimable, now);
        }
    }
}
