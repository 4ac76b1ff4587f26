//! The files that hold dirty data, oldest first.
//!
//! An entry holds its file's owner strongly, so that a file with dirty data stays in memory. A
//! flusher takes an entry, which stays listed but is marked busy, writes, and puts it back: at the
//! end of the list if the file is still dirty, off the list otherwise.
//!
//! # Concurrency
//! No dirty file is missing from the list. A file is dirtied while a flusher puts its entry back:
//!
//! 1. The writer adds to `bytes`, then loads `key`.
//! 2. The flusher, under the list's lock, stores zero to `key`, then loads `bytes`.
//! 3. All four are sequentially consistent. So the flusher sees the bytes and keeps the entry, or
//!    the writer sees the zero and lists the file again.
//!
//! A file also stays listed while another thread's pass runs on it: a caller that asks for all data
//! waits for the files of the list only, and the data of that pass may be in flight. A pass begins
//! before it cleans what it writes, so `put_back` looks for it after `bytes`.
//!
//! The model `writeback_beside_redirtying` of `iomap`'s interleavings runs through these steps.

use extant_sync::time::Instant;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use extant_sync::Mutex;
use extant_sync::atomic::{AtomicU64, Ordering};

/// Why dirty data is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritebackReason {
    /// There is more dirty data than the background limit, or memory is short.
    Background,
    /// The data has been dirty for long enough.
    Expired,
    /// The caller asked for everything.
    Sync,
}

/// A file with at most this much dirty data is small: flushers take many of them at a time.
pub const SMALL_FILE_BYTES: u64 = 64 << 10;
/// The most small files that a flusher takes at a time.
pub const FILES_TOGETHER: usize = 256;

/// The owner of an address space: it can write the dirty data of its file.
pub trait Writeback: Any + Send + Sync {
    /// Writes about `max_bytes` of dirty data, all of it for [`WritebackReason::Sync`]. Failures
    /// are recorded in the address space's errors; data that cannot be written is clean afterwards.
    ///
    /// Runs on a flusher thread, or on a thread that waits for memory. It takes no lock that such a
    /// thread may hold: no file lock and not the invalidate lock.
    fn write_back(self: Arc<Self>, reason: WritebackReason, max_bytes: u64);

    /// Writes the dirty data of `files`, this one among them, as [`Writeback::write_back`] does for
    /// each: together where that is of use.
    fn write_back_all(&self, files: &[Arc<dyn Writeback>], reason: WritebackReason) {
        for file in files {
            Arc::clone(file).write_back(reason, u64::MAX);
        }
    }
}

/// A file's part in the list.
pub(crate) struct DirtyState {
    /// Dirty bytes, not counting what is under writeback.
    pub(crate) bytes: AtomicU64,
    /// The key of the file's entry; zero: not listed.
    key: AtomicU64,
    owner: Weak<dyn Writeback>,
}

/// A file that the list can hold.
pub(crate) trait DirtyFile: Send + Sync {
    fn dirty(&self) -> &DirtyState;
    fn weak(&self) -> Weak<dyn DirtyFile>;
    /// A writeback pass runs on it.
    fn is_in_pass(&self) -> bool;
}

impl DirtyState {
    pub(crate) fn new(owner: Weak<dyn Writeback>) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            key: AtomicU64::new(0),
            owner,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.key.load(Ordering::SeqCst) != 0
    }

    /// Returns whether the owner still exists.
    pub(crate) fn has_owner(&self) -> bool {
        self.owner.strong_count() > 0
    }
}

#[derive(Default)]
pub(crate) struct DirtyList {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    last_key: u64,
    by_key: BTreeMap<u64, ListEntry>,
}

struct ListEntry {
    owner: Arc<dyn Writeback>,
    file: Weak<dyn DirtyFile>,
    since: Instant,
    busy: bool,
}

/// An entry that a flusher works on.
pub(crate) struct Taken {
    key: u64,
    pub(crate) owner: Arc<dyn Writeback>,
    file: Arc<dyn DirtyFile>,
}

impl Taken {
    /// The file's dirty bytes now.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.file.dirty().bytes()
    }
}

impl DirtyList {
    /// Lists `file`, which has just gained dirty bytes.
    #[inline]
    pub(crate) fn add(&self, file: &impl DirtyFile) {
        if !file.dirty().is_listed() {
            self.add_slow(file);
        }
    }

    #[cold]
    fn add_slow(&self, file: &impl DirtyFile) {
        let state = file.dirty();
        // An owner that is being dropped writes nothing any more.
        let Some(owner) = state.owner.upgrade() else {
            return;
        };
        let mut entries = self.entries.lock();
        if state.is_listed() {
            return;
        }
        let entry = ListEntry {
            owner,
            file: file.weak(),
            since: Instant::now(),
            busy: false,
        };
        let key = entries.push(entry);
        state.key.store(key, Ordering::SeqCst);
    }

    /// The number of listed files.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().by_key.len()
    }

    /// Takes the oldest entry that is not busy and has been dirty since `before` or longer.
    pub(crate) fn take(&self, before: Option<Instant>) -> Option<Taken> {
        let mut dead = Vec::new();
        let mut entries = self.entries.lock();
        let mut taken = None;
        for (&key, entry) in &mut entries.by_key {
            if entry.busy || before.is_some_and(|before| entry.since > before) {
                continue;
            }
            let Some(file) = entry.file.upgrade() else {
                dead.push(key);
                continue;
            };
            entry.busy = true;
            taken = Some(Taken {
                key,
                owner: entry.owner.clone(),
                file,
            });
            break;
        }
        let dead: Vec<_> = dead
            .into_iter()
            .filter_map(|key| entries.by_key.remove(&key))
            .collect();
        // Dropping an entry may drop its owner, which must not happen under the lock.
        drop(entries);
        drop(dead);
        taken
    }

    /// Takes up to `most` entries of [small](SMALL_FILE_BYTES) files, as [`DirtyList::take`] does.
    /// Looks at a few more of them than that.
    pub(crate) fn take_small(&self, before: Option<Instant>, most: usize) -> Vec<Taken> {
        let mut taken = Vec::new();
        let mut passed = Vec::new();
        let mut entries = self.entries.lock();
        let idle = entries.by_key.iter_mut().filter(|(_, entry)| !entry.busy);
        for (&key, entry) in idle.take(2 * most) {
            if taken.len() == most || before.is_some_and(|before| entry.since > before) {
                break;
            }
            let Some(file) = entry.file.upgrade() else {
                continue;
            };
            if file.dirty().bytes() > SMALL_FILE_BYTES {
                passed.push(file);
                continue;
            }
            entry.busy = true;
            let owner = entry.owner.clone();
            taken.push(Taken { key, owner, file });
        }
        // As in `take`.
        drop(entries);
        drop(passed);
        taken
    }

    /// Puts an entry back after work on it.
    pub(crate) fn put_back(&self, taken: Taken) {
        let state = taken.file.dirty();
        let mut entries = self.entries.lock();
        // An eviction took the file off the list meanwhile.
        let Some(mut entry) = entries.by_key.remove(&taken.key) else {
            return;
        };
        debug_assert!(entry.busy, "an entry that a flusher took stays marked");
        state.key.store(0, Ordering::SeqCst);
        if state.bytes() != 0 || taken.file.is_in_pass() {
            entry.busy = false;
            entry.since = Instant::now();
            let key = entries.push(entry);
            state.key.store(key, Ordering::SeqCst);
            return;
        }
        // As in `take`.
        drop(entries);
        drop(entry);
    }

    /// Takes a file off the list.
    pub(crate) fn remove(&self, state: &DirtyState) {
        let mut entries = self.entries.lock();
        let key = state.key.swap(0, Ordering::SeqCst);
        let entry = entries.by_key.remove(&key);
        drop(entries);
        drop(entry);
    }

    /// Takes everything off the list: no flusher will write it any more.
    pub(crate) fn clear(&self) {
        let entries = std::mem::take(&mut self.entries.lock().by_key);
        drop(entries);
    }

    /// The owners of everything that is listed now.
    pub(crate) fn owners(&self) -> Vec<Arc<dyn Writeback>> {
        let entries = self.entries.lock();
        entries.by_key.values().map(|e| e.owner.clone()).collect()
    }
}

impl Entries {
    fn push(&mut self, entry: ListEntry) -> u64 {
        self.last_key += 1;
        let before = self.by_key.insert(self.last_key, entry);
        debug_assert!(before.is_none(), "keys are not used again");
        self.last_key
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Silent;

    impl Writeback for Silent {
        fn write_back(self: Arc<Self>, _: WritebackReason, _: u64) {}
    }

    struct File {
        state: DirtyState,
        in_pass: AtomicBool,
        this: Weak<File>,
    }

    impl DirtyFile for File {
        fn dirty(&self) -> &DirtyState {
            &self.state
        }

        fn weak(&self) -> Weak<dyn DirtyFile> {
            self.this.clone()
        }

        fn is_in_pass(&self) -> bool {
            self.in_pass.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_file_stays_listed_while_another_thread_writes_it_back() {
        let owner: Arc<dyn Writeback> = Arc::new(Silent);
        let file = Arc::new_cyclic(|this| File {
            state: DirtyState::new(Arc::downgrade(&owner)),
            in_pass: AtomicBool::new(true),
            this: this.clone(),
        });
        let list = DirtyList::default();
        file.state.bytes.store(1, Ordering::SeqCst);
        list.add(&*file);
        let taken = list.take(None).unwrap();
        // The other thread's pass has cleaned all of it, and its request is under way.
        file.state.bytes.store(0, Ordering::SeqCst);
        list.put_back(taken);
        assert_eq!(list.owners().len(), 1, "a sync waits for it");
        file.in_pass.store(false, Ordering::SeqCst);
        let taken = list.take(None).unwrap();
        list.put_back(taken);
        assert!(list.owners().is_empty() && !file.state.is_listed());
    }
}
