//! State that an inode's status tree shares with the bound on the memory of all trees, and the
//! guard of its lock.

use extant_sync::OnceLock;
use extant_sync::atomic::{AtomicU64, Ordering};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use extant_lock_order::{Held, Rank, taking};
use extant_sync::{Mutex, MutexGuard};

use super::known_ranges::KnownRanges;
use super::status_tree::StatusTree;

/// One inode's tree, and what can be read of it without its lock.
#[derive(Default)]
pub(super) struct SharedStatus {
    pub(super) sequence: AtomicU64,
    tree: Mutex<StatusTree>,
    /// Set when the inode's first range becomes known.
    pub(super) known: OnceLock<Arc<KnownRanges>>,
}

impl Drop for SharedStatus {
    fn drop(&mut self) {
        if let Some(known) = self.known.get() {
            let tree = self.tree.get_mut();
            known.adjust(tree.len(), 0);
        }
    }
}

/// The locked tree. Its drop publishes the sequence and the count, then unlocks.
pub(crate) struct StatusGuard<'a> {
    shared: &'a SharedStatus,
    /// Known ranges when the tree was locked.
    known: usize,
    tree: MutexGuard<'a, StatusTree>,
    _held: Held,
}

impl<'a> StatusGuard<'a> {
    pub(super) fn new(shared: &'a SharedStatus) -> Self {
        let held = taking(Rank::Status);
        let tree = shared.tree.lock();
        Self {
            shared,
            known: tree.len(),
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
        let sequence = self.tree.sequence();
        if sequence != self.shared.sequence.load(Ordering::Relaxed) {
            self.shared.sequence.store(sequence, Ordering::Release);
        }
        let now = self.tree.len();
        if now != self.known
            && let Some(known) = self.shared.known.get()
        {
            known.adjust(self.known, now);
        }
    }
}
