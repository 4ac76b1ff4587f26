//! The mappings that hold dirty data, oldest first.
//!
//! An entry holds its owner strongly, so that a file with dirty data stays in memory. A flusher takes
//! an entry (it stays listed, but busy), writes, and puts it back: at the end of the list if the
//! mapping is still dirty, off the list otherwise.

use crate::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::sync::Mutex;

use crate::AddressSpace;

/// Why dirty data is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritebackReason {
    /// There is more dirty data than the background limit, or memory is short.
    Background,
    /// The data has been dirty for long enough.
    Expired,
    /// Somebody asked for everything.
    Sync,
}

/// Whoever can write a mapping's dirty data.
pub trait Writeback: Send + Sync {
    /// Writes about `max_bytes` of dirty data, all of it for [`WritebackReason::Sync`]. Failures are recorded in the
    /// mapping's errors; data that cannot be written is clean afterwards. Runs on a flusher thread or on a thread
    /// that waits for memory: takes no lock that such a thread may hold (file locks, the invalidate lock).
    fn write_back(self: Arc<Self>, reason: WritebackReason, max_bytes: u64);
}

#[derive(Default)]
pub(crate) struct DirtyList {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last_key: u64,
    entries: BTreeMap<u64, ListEntry>,
}

struct ListEntry {
    owner: Arc<dyn Writeback>,
    mapping: Weak<AddressSpace>,
    since: Instant,
    busy: bool,
}

/// An entry that a flusher works on.
pub(crate) struct Taken {
    key: u64,
    pub(crate) owner: Arc<dyn Writeback>,
    pub(crate) mapping: Arc<AddressSpace>,
}

impl DirtyList {
    /// Lists `mapping`, which has just gained dirty bytes.
    #[inline]
    pub(crate) fn add(&self, mapping: &AddressSpace) {
        // Pairs with the order in `settle`: either it sees the dirty bytes, or this sees the zero.
        if mapping.dirty_key.load(Ordering::SeqCst) == 0 {
            self.add_slow(mapping);
        }
    }

    #[cold]
    fn add_slow(&self, mapping: &AddressSpace) {
        // An owner on its way out writes nothing any more.
        let Some(owner) = mapping.owner().upgrade() else {
            return;
        };
        let mut inner = self.inner.lock();
        if mapping.dirty_key.load(Ordering::SeqCst) != 0 {
            return;
        }
        let entry = ListEntry {
            owner,
            mapping: mapping.weak(),
            since: Instant::now(),
            busy: false,
        };
        let key = inner.push(entry);
        mapping.dirty_key.store(key, Ordering::SeqCst);
    }

    /// The number of listed mappings.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// The oldest entry that nobody works on and that has been dirty since `before` or longer.
    pub(crate) fn take(&self, before: Option<Instant>) -> Option<Taken> {
        let mut dead = Vec::new();
        let mut inner = self.inner.lock();
        let mut taken = None;
        for (&key, entry) in &mut inner.entries {
            if entry.busy || before.is_some_and(|before| entry.since > before) {
                continue;
            }
            let Some(mapping) = entry.mapping.upgrade() else {
                dead.push(key);
                continue;
            };
            entry.busy = true;
            taken = Some(Taken {
                key,
                owner: entry.owner.clone(),
                mapping,
            });
            break;
        }
        let dead: Vec<_> = dead
            .into_iter()
            .filter_map(|key| inner.entries.remove(&key))
            .collect();
        drop(inner);
        drop(dead);
        taken
    }

    /// Puts an entry back after work on it.
    pub(crate) fn put_back(&self, taken: Taken) {
        let mut inner = self.inner.lock();
        let Some(mut entry) = inner.entries.remove(&taken.key) else {
            return;
        };
        taken.mapping.dirty_key.store(0, Ordering::SeqCst);
        if taken.mapping.dirty_bytes() != 0 {
            entry.busy = false;
            entry.since = Instant::now();
            let key = inner.push(entry);
            taken.mapping.dirty_key.store(key, Ordering::SeqCst);
            return;
        }
        // The owner may end here, which must not happen under the lock.
        drop(inner);
        drop(entry);
    }

    /// Takes `mapping` off the list.
    pub(crate) fn remove(&self, mapping: &AddressSpace) {
        let mut inner = self.inner.lock();
        let key = mapping.dirty_key.swap(0, Ordering::SeqCst);
        let entry = inner.entries.remove(&key);
        drop(inner);
        drop(entry);
    }

    /// Takes everything off the list: nobody will write it any more.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut self.inner.lock().entries);
        drop(entries);
    }

    /// The owners of everything listed now.
    pub(crate) fn owners(&self) -> Vec<Arc<dyn Writeback>> {
        let inner = self.inner.lock();
        inner.entries.values().map(|e| e.owner.clone()).collect()
    }
}

impl Inner {
    fn push(&mut self, entry: ListEntry) -> u64 {
        self.last_key += 1;
        self.entries.insert(self.last_key, entry);
        self.last_key
    }
}
