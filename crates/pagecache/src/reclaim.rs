//! Reclaim: the second-chance clock.
//!
//! Every folio is put at the end of the clock's queue when it is made. Reclaim takes folios from the front: one that was used
//! since it was last looked at, is dirty, locked or under writeback goes to the end again; others leave
//! the cache. The queue holds weak references: a folio that was dropped meanwhile is skipped.

use crate::sync::atomic::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crate::sync::Mutex;

use crate::cache::Shared;
use crate::folio::Folio;

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
}

impl Shared {
    /// Takes folios out of the cache until `want` bytes are free or each was looked at twice; returns the bytes freed.
    pub(crate) fn reclaim(&self, want: u64) -> u64 {
        let mut freed = 0;
        let mut looks = 2 * self.clock.len() + BATCH;
        while freed < want && looks > 0 {
            let batch = self.clock.take();
            if batch.is_empty() {
                break;
            }
            looks = looks.saturating_sub(batch.len());
            let mut kept = Vec::new();
            for weak in batch {
                let Some(folio) = weak.upgrade() else {
                    continue;
                };
                self.counters.reclaim_scans.fetch_add(1, Ordering::Relaxed);
                if freed < want && evict(&folio) {
                    freed += folio.len() as u64;
                    self.counters.reclaimed.fetch_add(1, Ordering::Relaxed);
                } else {
                    kept.push(weak);
                }
            }
            self.clock.put_back(kept);
        }
        freed
    }
}

/// Takes `folio` out of its mapping unless it is wanted.
fn evict(folio: &Arc<Folio>) -> bool {
    if folio.take_referenced() || folio.is_under_writeback() {
        return false;
    }
    if Arc::strong_count(folio) > 2 + folio.remembered.load(Ordering::Relaxed) {
        // Beside the index, this function and those who remember it, somebody has found it and is about to use it.
        return false;
    }
    let Some(mapping) = folio.mapping().upgrade() else {
        return false;
    };
    let Some(guard) = folio.try_write(&mapping) else {
        return false;
    };
    if !guard.is_attached() || guard.has_dirty() || folio.is_under_writeback() {
        return false;
    }
    guard.detach();
    true
}
