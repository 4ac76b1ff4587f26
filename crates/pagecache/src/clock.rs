//! Reclaim: the second-chance clock.
//!
//! Every folio joins the end of the clock's queue when it is made. Reclaim takes folios from the
//! front. A folio that was used since the last look, is dirty, locked or under writeback goes to
//! the end again; other folios leave the cache. The queue holds weak references: one whose folio is
//! gone is skipped.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::counters::{CacheCounters, bump};
use crate::folio::Folio;
use crate::folio_guard::FolioGuard;
use extant_sync::Mutex;
use extant_sync::atomic::Ordering;

/// Folios taken from the queue at a time.
const BATCH: usize = 32;
/// Dead references that the queue may hold before it is swept, beside one per live folio.
const SLACK: usize = 1024;

#[derive(Default)]
pub(crate) struct Clock {
    queue: Mutex<VecDeque<Weak<Folio>>>,
}

impl Clock {
    /// Adds a new folio; `live` is the number of folios in the cache.
    pub(crate) fn push(&self, folio: &Arc<Folio>, live: usize) {
        let mut queue = self.queue.lock();
        if queue.len() > 2 * live + SLACK {
            queue.retain(|folio| folio.strong_count() > 0);
        }
        queue.push_back(Arc::downgrade(folio));
    }

    fn take(&self) -> Vec<Weak<Folio>> {
        let mut queue = self.queue.lock();
        let count = queue.len().min(BATCH);
        queue.drain(..count).collect()
    }

    fn put_back(&self, folios: Vec<Weak<Folio>>) {
        self.queue.lock().extend(folios);
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Takes folios out of the cache until `want` bytes are free, or each folio was looked at
    /// twice. Returns the bytes freed.
    pub(crate) fn reclaim(&self, want: u64, counters: &CacheCounters) -> u64 {
        let mut freed = 0;
        let most_looks = 2 * self.len() + BATCH;
        let mut looks = 0;
        while freed < want && looks < most_looks {
            let batch = self.take();
            if batch.is_empty() {
                break;
            }
            looks += batch.len();
            let mut in_use = Vec::new();
            for weak in batch {
                let Some(folio) = weak.upgrade() else {
                    continue;
                };
                bump(&counters.reclaim_scans);
                if freed < want && evict(&folio) {
                    freed += folio.len() as u64;
                    bump(&counters.reclaimed);
                } else {
                    in_use.push(weak);
                }
            }
            self.put_back(in_use);
        }
        freed
    }
}

/// References to a folio that is in no use: the index's and the one of [`evict`]'s caller.
const IDLE_REFS: usize = 2;

/// Takes `folio` out of its address space, unless it is in use, dirty or under writeback.
fn evict(folio: &Arc<Folio>) -> bool {
    if folio.take_referenced() || folio.is_under_writeback() {
        return false;
    }
    if Arc::strong_count(folio) > IDLE_REFS + folio.recent_refs.load(Ordering::Relaxed) {
        // A thread has looked the folio up and is about to use it.
        return false;
    }
    let Some(owner) = folio.owner().upgrade() else {
        return false;
    };
    let Some(guard) = FolioGuard::try_lock(folio, &*owner) else {
        return false;
    };
    if !guard.is_attached() || guard.has_dirty() || folio.is_under_writeback() {
        return false;
    }
    guard.detach();
    true
}
