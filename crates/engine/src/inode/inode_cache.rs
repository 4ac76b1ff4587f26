//! The inodes in memory, by number.
//!
//! # Invariants
//! - At most one [`Inode`] per number. Concurrent requests for a number that is not in memory share
//!   one read.
//! - An [`InodeRef`] counts. The count grows from zero only under the shard's lock, so an inode
//!   that is found unused there may be evicted.
//! - An unused inode stays for a while: each shard keeps a bounded queue of them with second
//!   chances. An inode that is evicted needs no write (see the module's header). One whose newest
//!   change is not durable yet, or that has deferred times, stays until that is done.
//! - The last reference to an unlinked inode hands it to the reaper ([`super::reaper`]). From then
//!   on no reference to it is given out.
//!
//! # Locks
//! A shard's lock is a leaf, except that the journal is asked under it whether a transaction is
//! durable. It is never held over a read, nor while an inode is dropped.
//!
//! # Concurrency
//! Shards are chosen by number: requests for numbers in different shards never meet.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extant_units::Ino;
use parking_lot::{Condvar, Mutex};

use super::reaper::Reaper;
use super::{Inode, InodeCore, record};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

const SHARDS: usize = 64;
/// Unused inodes that a shard keeps before it evicts one.
const UNUSED_PER_SHARD: usize = 256;
/// Steps of the queue per inode that becomes unused: more than one, so that a queue that grew
/// shrinks again.
const STEPS: usize = 4;

/// The inodes in memory.
pub(crate) struct InodeCache {
    shards: Box<[Shard]>,
    /// Unlinked inodes that wait for their eviction.
    pub(crate) reaper: Reaper,
    /// Inodes with deferred times.
    pub(crate) late: Mutex<Vec<Arc<Inode>>>,
}

#[derive(Default)]
struct Shard {
    state: Mutex<ShardState>,
    /// A busy slot got its inode, or became empty.
    loaded: Condvar,
}

#[derive(Default)]
struct ShardState {
    slots: HashMap<Ino, CacheSlot>,
    unused: VecDeque<Arc<Inode>>,
}

enum CacheSlot {
    /// A thread reads the inode.
    Busy,
    Ready(Arc<Inode>),
}

impl Default for InodeCache {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            reaper: Reaper::default(),
            late: Mutex::default(),
        }
    }
}

/// A counted reference to an inode. Dropping the last one of an unlinked inode hands it to the
/// reaper. The drop itself neither waits nor starts a handle.
pub(crate) struct InodeRef(Arc<Inode>);

impl InodeRef {
    /// The shared inode, for holders of a pointer without a reference (a mapping's way back to its
    /// inode).
    pub(crate) fn shared(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl Deref for InodeRef {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl fmt::Debug for InodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InodeRef({})", self.0.ino)
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        self.0.life.refs.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        if self.0.life.refs.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(fs) = self.0.fs.upgrade()
        {
            fs.inodes.unused(&fs, &self.0);
        }
    }
}

/// The purpose of a request for an inode. Decides which numbers and which inodes are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A directory entry or a user: the root, or an inode that is not reserved, with a link.
    User,
    /// The engine, for one of its own inodes.
    Internal,
    /// Orphan processing: an inode that may have no link.
    Orphans,
}

impl Fs {
    /// The inode of a number that comes from a directory entry or from a user.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a number that no entry may lead to (reserved, past the last) and for
    /// a damaged inode; [`Error::Stale`] for one that is free or has no link.
    pub(crate) fn iget(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::User)
    }

    /// One of the engine's own inodes: journal, orphan file.
    ///
    /// # Errors
    /// As [`Fs::iget`], but reserved numbers are valid.
    pub(crate) fn iget_internal(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Internal)
    }

    /// An inode that may have lost its last link, to finish what a crash interrupted.
    ///
    /// # Errors
    /// As [`Fs::iget`], but an inode without a link is valid.
    pub(crate) fn iget_orphan(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Orphans)
    }

    /// A reference to an inode in memory, for work that starts at the inode itself. `None` once it
    /// was evicted or its eviction has begun.
    pub(crate) fn grab(&self, inode: &Arc<Inode>) -> Option<InodeRef> {
        let state = self.inodes.shard(inode.ino).state.lock();
        match state.slots.get(&inode.ino) {
            Some(CacheSlot::Ready(there)) if Arc::ptr_eq(there, inode) => reference(there),
            _ => None,
        }
    }
}

/// Counts a reference, under the shard's lock. `None` if the inode's eviction has begun.
fn reference(inode: &Arc<Inode>) -> Option<InodeRef> {
    if inode.life.dead.load(Ordering::Acquire) {
        return None;
    }
    inode.life.refs.fetch_add(1, Ordering::AcqRel);
    inode.life.touched.store(true, Ordering::Relaxed);
    Some(InodeRef(Arc::clone(inode)))
}

impl InodeCache {
    fn shard(&self, ino: Ino) -> &Shard {
        let at = ino.get() as usize % self.shards.len();
        &self.shards[at]
    }

    fn get(&self, fs: &Arc<Fs>, ino: Ino, asker: Asker) -> Result<InodeRef> {
        record::check_number(fs, ino, asker)?;
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        loop {
            match state.slots.get(&ino) {
                Some(CacheSlot::Ready(inode)) => {
                    if asker == Asker::User && inode.is_unlinked() {
                        return Err(Error::Stale);
                    }
                    return reference(inode).ok_or(Error::Stale);
                }
                Some(CacheSlot::Busy) => shard.loaded.wait(&mut state),
                None => break,
            }
        }
        state.slots.insert(ino, CacheSlot::Busy);
        drop(state);

        let loaded = record::load(fs, ino, asker);
        let mut state = shard.state.lock();
        shard.loaded.notify_all();
        match loaded {
            Ok(inode) => {
                fs.stats.inode_loads.bump();
                let inode = Arc::new(inode);
                inode.life.refs.store(1, Ordering::Relaxed);
                state
                    .slots
                    .insert(ino, CacheSlot::Ready(Arc::clone(&inode)));
                Ok(InodeRef(inode))
            }
            Err(error) => {
                state.slots.remove(&ino);
                drop(state);
                fs.fault.report(fs, &error);
                Err(error)
            }
        }
    }

    /// Adds an inode that was just allocated.
    pub(crate) fn insert_new(
        &self,
        fs: &Arc<Fs>,
        ino: Ino,
        kind: FileKind,
        core: InodeCore,
    ) -> Result<InodeRef> {
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        loop {
            match state.slots.get(&ino) {
                // Another thread reads the free inode's number; that ends with an error.
                Some(CacheSlot::Busy) => shard.loaded.wait(&mut state),
                Some(CacheSlot::Ready(_)) => {
                    drop(state);
                    let error = Error::corrupt(
                        Location::Inode(ino),
                        "marked free in the bitmap, but in use",
                    );
                    fs.fault.report(fs, &error);
                    return Err(error);
                }
                None => break,
            }
        }
        let inode = Arc::new(Inode::new(Arc::downgrade(fs), ino, kind, core));
        inode.life.refs.store(1, Ordering::Relaxed);
        state
            .slots
            .insert(ino, CacheSlot::Ready(Arc::clone(&inode)));
        Ok(InodeRef(inode))
    }

    /// Handles the drop of `inode`'s last reference.
    fn unused(&self, fs: &Arc<Fs>, inode: &Arc<Inode>) {
        let life = &inode.life;
        let mut let_go = Vec::new();
        let mut state = self.shard(inode.ino).state.lock();
        if life.refs.load(Ordering::Acquire) != 0 || life.dead.load(Ordering::Acquire) {
            return;
        }
        if inode.is_unlinked() {
            life.dead.store(true, Ordering::Release);
            drop(state);
            self.reaper.push(Arc::clone(inode));
            return;
        }
        if life.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        life.touched.store(false, Ordering::Relaxed);
        state.unused.push_back(Arc::clone(inode));
        for _ in 0..STEPS {
            if state.unused.len() <= UNUSED_PER_SHARD {
                break;
            }
            let Some(oldest) = state.unused.pop_front() else {
                break;
            };
            match may_go(fs, &oldest) {
                Fate::Used => oldest.life.queued.store(false, Ordering::Release),
                Fate::Stay => state.unused.push_back(oldest),
                Fate::Go => {
                    oldest.life.dead.store(true, Ordering::Release);
                    state.slots.remove(&oldest.ino);
                    let_go.push(oldest);
                }
            }
        }
        drop(state);
        fs.stats.inode_evictions.add(let_go.len() as u64);
        // Dropped here, without the lock: its pages go with it.
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
            state.unused.retain(|unused| !Arc::ptr_eq(unused, inode));
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

    /// Whether some inode in memory has lost its last link, or is losing it.
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

    /// Inodes in memory, used or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.state.lock().slots.len())
            .sum()
    }
}

/// What happens to the oldest inode in the queue.
enum Fate {
    /// It is referenced: it leaves the queue.
    Used,
    /// It was used since, has changes that are not durable, or has a data path that only memory
    /// knows: back to the end.
    Stay,
    Go,
}

fn may_go(fs: &Fs, inode: &Inode) -> Fate {
    if inode.life.refs.load(Ordering::Acquire) != 0 {
        return Fate::Used;
    }
    let durable = inode
        .last_change(false)
        .is_none_or(|tid| fs.journal.is_durable(tid));
    if inode.life.touched.swap(false, Ordering::Relaxed)
        || inode.has_deferred()
        || !durable
        || inode.has_dirty_data()
        || inode.life.kept.load(Ordering::Acquire)
    {
        return Fate::Stay;
    }
    Fate::Go
}
