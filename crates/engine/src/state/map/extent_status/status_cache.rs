//! The bound on the memory of all status trees of a file system.

use extant_sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use extant_sync::Mutex;

use super::known_ranges::KnownRanges;
use super::shared_status::{SharedStatus, StatusGuard};

/// Ranges that may be remembered for all inodes together: about 32 MiB.
const LIMIT: u64 = 1 << 19;
/// Ranges examined in one inode before the next one.
const BATCH: usize = 256;
/// Dropped trees that the list may hold before it is swept, besides one per tree in use. Each holds
/// its memory.
const SLACK: usize = 1024;

/// Counts what the status trees of a file system remember, and makes them forget beyond a limit.
///
/// Inodes are visited in turn; within one, a cursor moves on. A range that was looked up since the
/// cursor's last visit stays for another round.
///
/// # Locks
/// The list's mutex is never held while a tree is locked.
pub(crate) struct StatusCache {
    limit: u64,
    /// Ranges in all trees.
    known: Arc<KnownRanges>,
    /// Ranges forgotten so far.
    forgotten: AtomicU64,
    trees: Mutex<Trees>,
}

/// The trees, in the order of their visits.
#[derive(Default)]
struct Trees {
    turns: VecDeque<Weak<SharedStatus>>,
    /// Length at which dropped trees are swept out.
    sweep_at: usize,
}

impl Default for StatusCache {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl StatusCache {
    /// A cache with a limit of about `limit` ranges.
    pub(crate) fn with_limit(limit: u64) -> Self {
        Self {
            limit,
            known: Arc::default(),
            forgotten: AtomicU64::new(0),
            trees: Mutex::default(),
        }
    }

    /// Ranges known in all trees.
    pub(crate) fn known(&self) -> u64 {
        self.known.get()
    }

    /// Ranges forgotten since the mount.
    #[cfg(test)]
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Trees in the list, dropped ones included.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.trees.lock().turns.len()
    }

    /// The counter that each tree adjusts.
    pub(super) fn counter(&self) -> Arc<KnownRanges> {
        Arc::clone(&self.known)
    }

    pub(super) fn register(&self, tree: &Arc<SharedStatus>) {
        let mut trees = self.trees.lock();
        if trees.turns.len() >= trees.sweep_at {
            trees.turns.retain(|tree| tree.strong_count() > 0);
            trees.sweep_at = 2 * trees.turns.len() + SLACK;
        }
        trees.turns.push_back(Arc::downgrade(tree));
    }

    /// Forgets ranges while there are more than the limit, down to an eighth below it. Cheap below
    /// the limit. Called with no tree locked.
    pub(crate) fn shrink(&self) {
        if self.known() <= self.limit {
            return;
        }
        let target = self.limit - self.limit / 8;
        // Every inode may need two visits per batch of its ranges: one to clear the marks, one to
        // forget.
        let mut turns = self.trees.lock().turns.len() as u64 + 2 * self.known() / BATCH as u64 + 2;
        while self.known() > target && turns > 0 {
            turns -= 1;
            let Some(weak) = self.trees.lock().turns.pop_front() else {
                return;
            };
            let Some(tree) = weak.upgrade() else { continue };
            let forgotten = StatusGuard::new(&tree).forget_some(BATCH);
            self.forgotten
                .fetch_add(forgotten as u64, Ordering::Relaxed);
            self.trees.lock().turns.push_back(weak);
        }
    }
}
