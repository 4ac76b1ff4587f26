//! The inodes in memory, by number.
//!
//! # Invariants
//! - At most one [`Inode`] per number. Concurrent requests for a number that is not in memory share
//!   one read.
//! - An [`InodeRef`] counts. The count grows from zero only under the shard's lock, so an inode
//!   that is found unused there may be evicted.
//! - An unused inode stays for a while: each shard keeps a bounded queue of them with second
//!   chances. One that is used again stays in the queue, so the drop of its last reference then
//!   takes no lock. An inode that is evicted needs no write (see [`super`]). One that has dirty
//!   data or deferred times stays until these are written.
//! - In a full queue an inode that was asked for once and has nothing but its record gets a place
//!   only one time in [`ADMITTED`]; the others leave at once. So a walk over more inodes than there
//!   is room for keeps those in memory that other work uses, and its own use the same memory one
//!   after the other.
//! - An inode may leave before its newest change is durable. The shard remembers the newest
//!   transaction of those that left, and an inode that is read again takes that one for its own:
//!   so its fsync waits for every change that was made before.
//! - The last reference to an unlinked inode hands it to the reaper (`reaper`). From then on
//!   no reference to it is given out.
//! - A shard counts the inodes that enter it. While the count stays, an inode that was not in
//!   memory still is not, so its record in the table is all there is of it (see `inode/peek.rs`).
//!
//! # Locks
//! A shard's lock is a leaf, except that an inode's orphan record is tried under it. It is never
//! held over a read, nor while an inode is dropped.
//!
//! # Concurrency
//! Shards are chosen by number: requests for numbers in different shards never meet. An inode knows
//! its shard, and not the cache: threads that make and drop inodes of different shards write no
//! common word.

use extant_sync::atomic::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use extant_jbd2::NumberHash;
use extant_sync::{Condvar, Mutex};
use extant_units::{Ino, Tid, at_most_usize};

use crate::state::inode::inode_ref::reference;
use crate::state::inode::{EvictionQueue, Inode, InodeHome, InodeRef, Reaper, TidCell};
use crate::state::volume::Stats;
use crate::types::FileKind;

const SHARDS: usize = 64;
/// Bytes of the metadata cache's budget for each unused inode that stays in memory. One with data
/// takes about as many beside its data.
const BUDGET_PER_UNUSED: u64 = 4096;
/// Unused inodes that a shard keeps at least, before it evicts one.
const LEAST_UNUSED: usize = 4;
/// Steps of the queue per inode that becomes unused: more than one, so that a queue that grew
/// shrinks again.
const STEPS: usize = 4;
/// Of the inodes that come to a full queue and may leave at once, one in so many gets a place, so
/// that new work displaces what was in use before.
const ADMITTED: u64 = 8;

/// The inodes in memory.
pub(crate) struct InodeCache {
    shards: Box<[Arc<Shard>]>,
    /// Unlinked inodes that wait for their eviction.
    pub(crate) reaper: Reaper,
    /// Inodes that got deferred times. By number, as the list keeps no inode in memory: one whose
    /// times were stored meanwhile may leave.
    pub(crate) late: Mutex<Vec<Ino>>,
    /// Held from when a thread empties that list until the times of its inodes are stored.
    pub(crate) storing: Mutex<()>,
}

/// The inodes whose numbers fall into one shard, on cache lines of their own.
#[repr(align(128))]
pub(crate) struct Shard {
    pub(crate) state: Mutex<ShardState>,
    /// A busy slot got its inode, or became empty.
    pub(crate) loaded: Condvar,
    /// Unused inodes that it keeps.
    most_unused: usize,
    stats: Arc<Stats>,
    evictions: Arc<EvictionQueue>,
}

/// State that a shard's lock guards.
#[derive(Default)]
pub(crate) struct ShardState {
    slots: HashMap<Ino, CacheSlot, NumberHash>,
    /// Slots that were filled so far.
    arrivals: u64,
    unused: VecDeque<Arc<Inode>>,
    /// Inodes that came to a full queue and could leave at once.
    passing: u64,
    /// The newest transaction that changed an inode which has left.
    left: TidCell,
}

/// Entry of the cache for an inode number.
pub(crate) enum CacheSlot {
    /// A thread reads the inode.
    Busy,
    Ready(Arc<Inode>),
}

impl InodeCache {
    /// An empty cache beside a cache of metadata with a budget of `metadata_bytes`.
    pub(crate) fn new(stats: &Arc<Stats>, metadata_bytes: u64) -> Arc<Self> {
        let reaper = Reaper::default();
        let most_unused = at_most_usize(metadata_bytes / BUDGET_PER_UNUSED) / SHARDS;
        let shard = |_| {
            Arc::new(Shard {
                state: Mutex::default(),
                loaded: Condvar::new(),
                most_unused: most_unused.max(LEAST_UNUSED),
                stats: Arc::clone(stats),
                evictions: Arc::clone(reaper.queue()),
            })
        };
        Arc::new(Self {
            shards: (0..SHARDS).map(shard).collect(),
            reaper,
            late: Mutex::default(),
            storing: Mutex::default(),
        })
    }

    /// The cache as inode `ino` knows it.
    pub(crate) fn home_of(&self, ino: Ino) -> Weak<dyn InodeHome> {
        Arc::downgrade(self.shard(ino)) as Weak<dyn InodeHome>
    }

    /// Returns whether `inode` belongs to this cache, and so to its file system.
    pub(crate) fn is_home_of(&self, inode: &Inode) -> bool {
        std::ptr::addr_eq(inode.home.as_ptr(), Arc::as_ptr(self.shard(inode.ino)))
    }

    /// A reference to an inode in memory, for work that starts at the inode itself. `None` once it
    /// was evicted or its eviction has begun.
    pub(crate) fn grab(&self, inode: &Arc<Inode>) -> Option<InodeRef> {
        let state = self.shard(inode.ino).state.lock();
        match state.slots.get(&inode.ino) {
            Some(CacheSlot::Ready(there)) if Arc::ptr_eq(there, inode) => reference(there),
            _ => None,
        }
    }

    /// A reference to the inode of a number, if it is in memory and its eviction has not begun: for
    /// work on what keeps it there, such as its deferred times.
    pub(crate) fn counted(&self, ino: Ino) -> Option<InodeRef> {
        let state = self.shard(ino).state.lock();
        match state.slots.get(&ino) {
            Some(CacheSlot::Ready(inode)) => reference(inode),
            _ => None,
        }
    }

    /// The shard of a number.
    #[inline]
    pub(crate) fn shard(&self, ino: Ino) -> &Arc<Shard> {
        let at = ino.get() as usize % self.shards.len();
        &self.shards[at]
    }

    /// Begins the deletion of `inode`, whose last name goes, if the caller's reference is the only
    /// one and the inode has no data in memory. Returns whether it did.
    pub(crate) fn begin_deletion_of_last(&self, inode: &Inode) -> bool {
        // Under it a count of one stays: the caller makes no second reference.
        let _state = self.shard(inode.ino).state.lock();
        let has_data = inode.file_state.get().is_some();
        inode.is_counted_once() && !has_data && inode.begin_deletion()
    }

    /// Takes `inode` out of the cache: its number is about to be freed.
    pub(crate) fn forget(&self, inode: &Arc<Inode>) {
        let mut state = self.shard(inode.ino).state.lock();
        if let Some(CacheSlot::Ready(there)) = state.slots.get(&inode.ino)
            && Arc::ptr_eq(there, inode)
        {
            state.slots.remove(&inode.ino);
        }
        if inode.life.queued.load(Ordering::Acquire) {
            let mut unused = state.unused.iter();
            if let Some(at) = unused.position(|unused| Arc::ptr_eq(unused, inode)) {
                state.unused.remove(at);
            }
        }
    }

    /// Every inode in memory, shard by shard.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let state = shard.state.lock();
            all.extend(state.slots.values().filter_map(|slot| match slot {
                CacheSlot::Ready(inode) => Some(Arc::clone(inode)),
                CacheSlot::Busy => None,
            }));
        }
        all
    }

    /// Returns whether some inode in memory has lost its last link, or is losing it.
    pub(crate) fn has_unlinked(&self) -> bool {
        self.shards.iter().any(|shard| {
            let state = shard.state.lock();
            state.slots.values().any(|slot| match slot {
                CacheSlot::Ready(inode) => inode.is_unlinked(),
                CacheSlot::Busy => true,
            })
        })
    }

    /// Drops all inodes: unmount's last step. Remaining references keep their inode, but no lookup
    /// finds it.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let old = std::mem::take(&mut *shard.state.lock());
            for slot in old.slots.values() {
                if let CacheSlot::Ready(inode) = slot {
                    inode.life.dead.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Evicts every unused inode that `is_wanted` knows and that may go. Returns them, for the
    /// caller to drop: their pages go with them.
    pub(crate) fn evict_unused(&self, is_wanted: impl Fn(&Inode) -> bool) -> Vec<Arc<Inode>> {
        let mut evicted = Vec::new();
        for shard in &self.shards {
            let mut state = shard.state.lock();
            for inode in std::mem::take(&mut state.unused) {
                if !is_wanted(&inode) {
                    state.unused.push_back(inode);
                    continue;
                }
                inode.life.touched.store(false, Ordering::Relaxed);
                if matches!(fate(&inode), Fate::Go) {
                    state.let_go(&inode);
                    evicted.push(inode);
                } else {
                    state.unused.push_back(inode);
                }
            }
        }
        evicted
    }

    /// Inodes in memory, used or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.state.lock().slots.len())
            .sum()
    }
}

#[cfg(test)]
impl InodeCache {
    /// Returns whether `inode` would leave memory now. Takes away its second chance.
    pub(crate) fn would_evict(inode: &Inode) -> bool {
        matches!(fate(inode), Fate::Go)
    }
}

impl InodeHome for Shard {
    fn unused(&self, inode: &Arc<Inode>) {
        let life = &inode.life;
        let mut let_go = [const { None }; STEPS];
        let mut state = self.state.lock();
        if life.refs.load(Ordering::Acquire) != 0 || life.dead.load(Ordering::Acquire) {
            return;
        }
        if inode.is_unlinked() {
            life.dead.store(true, Ordering::Release);
            drop(state);
            self.evictions.push(Arc::clone(inode));
            return;
        }
        if life.queued.load(Ordering::Acquire) {
            return;
        }
        if state.unused.len() >= self.most_unused && leaves_at_once(inode) {
            state.passing += 1;
            if !state.passing.is_multiple_of(ADMITTED) {
                state.let_go(inode);
                drop(state);
                self.stats.inode_evictions.bump();
                return;
            }
        }
        life.queued.store(true, Ordering::Release);
        life.touched.store(false, Ordering::Relaxed);
        state.unused.push_back(Arc::clone(inode));
        for gone in &mut let_go {
            if state.unused.len() <= self.most_unused {
                break;
            }
            let Some(oldest) = state.unused.pop_front() else {
                break;
            };
            match fate(&oldest) {
                Fate::Used => {
                    oldest.life.queued.store(false, Ordering::SeqCst);
                    // The last reference may have gone meanwhile, and have seen it in the queue.
                    if oldest.life.refs.load(Ordering::SeqCst) == 0 {
                        oldest.life.queued.store(true, Ordering::SeqCst);
                        state.unused.push_back(oldest);
                    }
                }
                Fate::Stay => state.unused.push_back(oldest),
                Fate::Go => {
                    state.let_go(&oldest);
                    *gone = Some(oldest);
                }
            }
        }
        drop(state);
        let evicted = let_go.iter().flatten().count();
        self.stats.inode_evictions.add(evicted as u64);
        // Dropped here, without the lock: its pages go with it.
    }
}

/// Outcome for the oldest inode in the queue.
enum Fate {
    /// It is referenced: it leaves the queue.
    Used,
    /// It was used since, has data or times that are not written, lost data of which no opener
    /// knows, has a data path that only memory knows, or is on the orphan list: back to the end.
    Stay,
    Go,
}

/// Returns whether an inode that became unused has nothing in memory but its record, and was asked
/// for once. A directory keeps what is known of its blocks, a file its data.
fn leaves_at_once(inode: &Inode) -> bool {
    inode.kind != FileKind::Directory
        && inode.file_state.get().is_none()
        && matches!(fate(inode), Fate::Go)
}

/// Decides about the oldest inode in the queue.
fn fate(inode: &Inode) -> Fate {
    if inode.life.refs.load(Ordering::Acquire) != 0 {
        return Fate::Used;
    }
    if inode.life.touched.swap(false, Ordering::Relaxed)
        || inode.has_deferred()
        || inode.has_dirty_data()
        || inode.has_unseen_fault()
        || inode.is_on_orphan_list()
    {
        return Fate::Stay;
    }
    Fate::Go
}

impl ShardState {
    /// Returns the entry of `ino`.
    #[inline]
    pub(crate) fn slot(&self, ino: Ino) -> Option<&CacheSlot> {
        self.slots.get(&ino)
    }

    /// Fills the slot of `ino`.
    pub(crate) fn fill(&mut self, ino: Ino, slot: CacheSlot) {
        self.arrivals += 1;
        let before = self.slots.insert(ino, slot);
        debug_assert!(
            !matches!(before, Some(CacheSlot::Ready(_))),
            "a second inode {ino}"
        );
    }

    /// Empties the slot of `ino`, whose inode could not be read.
    pub(crate) fn empty(&mut self, ino: Ino) {
        let before = self.slots.remove(&ino);
        debug_assert!(
            !matches!(before, Some(CacheSlot::Ready(_))),
            "inode {ino} was read"
        );
    }

    /// Slots that were filled so far.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Evicts `inode`, and remembers its newest change.
    fn let_go(&mut self, inode: &Inode) {
        inode.life.dead.store(true, Ordering::Release);
        self.slots.remove(&inode.ino);
        if let Some(tid) = inode.last_change(false) {
            self.left.note(tid);
        }
    }

    /// The transaction that an inode which was just read may have been changed in.
    pub(crate) fn newest_left(&self) -> Option<Tid> {
        self.left.get()
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;
    use extant_testkit::{Image, wait_until};

    use super::*;
    use crate::config::{MountOptions, Tuning};
    use crate::file::{self, ReadMode, WriteAt, fsync, write};
    use crate::inode::{flush_all_times, flush_times, now, touch_atime};
    use crate::mount;
    use crate::state::inode::OrphanRecord;
    use crate::test_support::test_mount::TestFs;
    use crate::types::Cred;

    /// An inode that was read again would not know that the list has it.
    #[test]
    fn an_inode_on_the_orphan_list_stays() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let file = fs.create("file");
        let inode = Arc::clone(file.shared());
        let goes = || InodeCache::would_evict(&inode);
        assert!(!goes(), "it is referenced");
        drop(file);
        assert!(goes(), "although its newest change is not durable");
        *inode.orphan.lock() = OrphanRecord::Listed;
        assert!(!goes());
        *inode.orphan.lock() = OrphanRecord::None;
        assert!(goes());
        let changes = inode.orphan.lock();
        assert!(!goes(), "a thread changes the record");
        drop(changes);
    }

    /// Unused inodes in memory with the default budget of metadata.
    const ROOM: usize = 16384;

    #[test]
    fn fewer_inodes_stay_where_metadata_has_less_memory() {
        let kept = |block_cache_bytes| {
            let image = Image::of_mib(32).args("-N 4000").make().unwrap();
            let bytes = std::fs::read(image.path()).unwrap();
            let tuning = Tuning {
                page_cache_bytes: Some(16 << 20),
                block_cache_bytes,
                ..Tuning::default()
            };
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let fs = mount::mount(device, MountOptions::default(), tuning).unwrap();
            let fs = TestFs { fs };
            (0..2000).for_each(|i| drop(fs.create(&format!("f{i}"))));
            fs.inodes.len()
        };
        // One for each 4 KiB, and what the mount itself uses.
        let few = kept(4 << 20);
        assert!((1024..1100).contains(&few), "{few} inodes");
        let all = kept(Tuning::default().block_cache_bytes);
        assert!(all >= 2000, "{all} inodes");
    }

    /// Twice over more inodes than there is room for, each asked for once a time.
    #[test]
    fn a_walk_leaves_inodes_in_memory_that_are_in_use() {
        let image = Image::of_mib(256).args("-N 40000 -J size=64");
        let image = image.make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let all = 0..ROOM + 2000;
        let all: Vec<Ino> = all.map(|i| fs.create(&format!("f{i}")).ino).collect();
        let (used, walked) = all.split_at(100);
        let loads = |inodes: &[Ino]| {
            let before = fs.stats.inode_loads.get();
            inodes.iter().for_each(|ino| drop(fs.iget(*ino).unwrap()));
            fs.stats.inode_loads.get() - before
        };
        loads(walked);
        // What is used again and again gets its places.
        for _ in 0..4 * ADMITTED {
            loads(used);
        }
        assert_eq!(loads(used), 0);
        let read = loads(walked) + loads(walked);
        assert!(read > 2000, "{read} inodes were not in memory");
        assert_eq!(loads(used), 0);
    }

    /// Data that is not written is there when the file is asked for again.
    #[test]
    fn data_that_waits_outlives_an_eviction_of_unused_inodes() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let file = fs.create("file");
        let at = WriteAt::Pos(0);
        write(&fs, &file, None, at, &[1; 100], &Cred::root()).unwrap();
        // It is the data alone that keeps the inode.
        flush_times(&fs, &file).unwrap();
        drop(file);
        drop(fs.inodes.evict_unused(|_| true));
        let (file, mut bytes) = (fs.find("file"), [9; 200]);
        let mode = ReadMode::Buffered;
        let len = file::read(&fs, &file, None, mode, 0, &mut bytes).unwrap();
        assert_eq!((len, bytes[99]), (100, 1));
    }

    /// An inode that is read again has the times of its record.
    #[test]
    fn times_that_wait_outlive_an_eviction_of_unused_inodes() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "lazytime,strictatime");
        let file = fs.create("file");
        let ino = file.ino;
        let created = file.core.read().atime;
        // An access in the same tick of the clock changes nothing.
        wait_until("the clock to advance", || now() > created);
        touch_atime(&fs, file.shared());
        let read = file.core.read().atime;
        assert!(read > created);
        drop(file);
        let atime = || fs.iget(ino).unwrap().core.read().atime;
        drop(fs.inodes.evict_unused(|_| true));
        assert_eq!(atime(), read, "not stored yet");
        // No caller has it: a round stores the time, and then it may leave.
        flush_all_times(&fs, false).unwrap();
        drop(fs.inodes.evict_unused(|_| true));
        assert!(fs.inodes.in_memory(ino).is_none());
        assert_eq!(atime(), read, "stored");
    }

    /// An inode without a name goes with all that it holds, though it was unused before.
    #[test]
    fn a_deleted_inode_leaves_memory() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let gone = ["a", "b"].map(|name| Arc::downgrade(fs.create(name).shared()));
        // Both wait for another use.
        assert!(gone.iter().all(|inode| inode.upgrade().is_some()));
        let ino = gone[0].upgrade().unwrap().ino;
        fs.unlink("a");
        fs.reap_all();
        assert!(gone[0].upgrade().is_none());
        assert!(gone[1].upgrade().is_some());
        // The next inode with its number is another one.
        let next = fs.create("a");
        assert_eq!(next.ino, ino);
        assert!(fs.inodes.grab(next.shared()).is_some());
    }

    /// With the inode its openers to come would lose the report.
    #[test]
    fn an_inode_with_a_loss_that_no_opener_knows_of_stays() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let file = fs.create("file");
        let at = WriteAt::Pos(0);
        write(&fs, &file, None, at, &[1; 100], &Cred::root()).unwrap();
        fsync(&fs, &file, None, false).unwrap();
        let inode = Arc::clone(file.shared());
        drop(file);
        let goes = || InodeCache::would_evict(&inode);
        // Writeback may have used it.
        goes();
        assert!(goes());
        inode.file_state.get().unwrap().note_lost_writes();
        assert!(!goes());
    }
}
