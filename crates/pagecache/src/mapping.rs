//! Mappings: one file's part of the page cache.
//!
//! # Locks
//! See the crate. `index` is held only for lookups, insertions and removals; the folio lock may be held when it is taken,
//! never the other way round. `invalidate` is the caller's: shared to add folios for reading, exclusive
//! around a removal of blocks together with their folios.
//!
//! # Concurrency
//! A folio found in the index may be detached by the time it is locked: the locking functions here
//! return `None` then, and the caller looks again.

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::sync::{Condvar, Mutex, MutexGuard, RwLock};
use extant_lock_order::Locked;
use extant_units::{BlockSize, PAGE_SHIFT, PageIdx, Pos};

use crate::cache::{PageCache, Shared};
use crate::dirty_list::Writeback;
use crate::errseq::WritebackErrors;
use crate::folio::{Folio, FolioGuard, FolioRef};
use crate::order::{InvalidateLock, PassLock};
use crate::tree::{FolioTree, Tag};

/// What a mapping is made with.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpaceParams {
    /// The block size that uptodate and dirty state is kept in.
    pub block_size: BlockSize,
    /// The largest folio order; the cache's own limit applies as well.
    pub max_order: u32,
}

/// One file's cached folios.
pub struct AddressSpace {
    shared: Arc<Shared>,
    this: Weak<AddressSpace>,
    owner: Weak<dyn Writeback>,
    block_size: BlockSize,
    min_order: u32,
    max_order: u32,
    index: RwLock<FolioTree<Arc<Folio>>>,
    /// Folios in the index; changes under its lock.
    folios: AtomicUsize,
    invalidate: InvalidateLock,
    pass: PassLock,
    dirty_bytes: AtomicU64,
    /// Key in the list of dirty mappings; zero: not listed.
    pub(crate) dirty_key: AtomicU64,
    errors: WritebackErrors,
    stable_waiters: AtomicUsize,
    stable_lock: Mutex<()>,
    stable: Condvar,
}

impl AddressSpace {
    /// An empty mapping. `owner` writes it back; it is held strongly while anything in the mapping is dirty.
    pub fn new(
        cache: &PageCache,
        owner: Weak<dyn Writeback>,
        params: AddressSpaceParams,
    ) -> Arc<Self> {
        let shared = cache.shared().clone();
        let min_order = params.block_size.log2().saturating_sub(PAGE_SHIFT);
        let max_order = params.max_order.min(shared.max_order()).max(min_order);
        Arc::new_cyclic(|this| Self {
            shared,
            this: this.clone(),
            owner,
            block_size: params.block_size,
            min_order,
            max_order,
            index: RwLock::default(),
            folios: AtomicUsize::new(0),
            invalidate: InvalidateLock::default(),
            pass: PassLock::default(),
            dirty_bytes: AtomicU64::new(0),
            dirty_key: AtomicU64::new(0),
            errors: WritebackErrors::default(),
            stable_waiters: AtomicUsize::new(0),
            stable_lock: Mutex::new(()),
            stable: Condvar::new(),
        })
    }

    /// The block size of the folios' state.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The largest order of this mapping's folios.
    pub fn max_order(&self) -> u32 {
        self.max_order
    }

    /// The lock between the cache and the block map: shared while clean folios are being added or
    /// filled, exclusive while folios and their blocks are being taken away.
    pub fn invalidate_lock(&self) -> &InvalidateLock {
        &self.invalidate
    }

    /// Waits until no other writeback pass runs on this mapping, and begins one.
    pub fn writeback_pass(&self) -> Locked<MutexGuard<'_, ()>> {
        self.pass.lock()
    }

    /// Whether a pass runs: for tests.
    #[cfg(not(extant_shuttle))]
    #[doc(hidden)]
    pub fn is_in_pass(&self) -> bool {
        self.pass.is_held()
    }

    /// Writeback errors, for fsync.
    pub fn errors(&self) -> &WritebackErrors {
        &self.errors
    }

    /// Dirty bytes, not counting what is under writeback.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::SeqCst)
    }

    /// The number of folios.
    pub fn folio_count(&self) -> usize {
        self.index.read().len()
    }

    /// Whether there are no folios. Takes no lock: whoever has put one in and then done what the caller looks at has been seen.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.folios.load(Ordering::SeqCst) == 0
    }

    /// Waits, at a dirty limit, until enough has been written. No folio may be locked, no handle open.
    #[inline]
    pub fn throttle(&self) {
        self.shared.throttle(self);
    }

    /// The folio that covers `page`.
    #[inline]
    pub fn get(&self, page: PageIdx) -> Option<Arc<Folio>> {
        self.index.read().get(page.get()).cloned()
    }

    /// The first folio that ends after the page of `pos`.
    pub fn next(&self, pos: Pos) -> Option<Arc<Folio>> {
        self.index.read().next(pos.page().get()).cloned()
    }

    /// The folio that covers the byte at `pos`, or a new one, as large as `len` bytes from there, alignment and
    /// neighbours allow. A new folio begins at `pos`'s page. Waits for memory if there is none: no folio may be locked, no handle open.
    pub fn get_or_create(&self, pos: Pos, len: u64) -> Arc<Folio> {
        let page = pos.page();
        loop {
            if let Some(folio) = self.get(page) {
                return folio;
            }
            if let Some(folio) = self.create(page, self.order_for(pos, len), true) {
                return folio;
            }
        }
    }

    /// The order for a write of `len` bytes at `pos`: the largest that the bytes fill within one largest folio.
    fn order_for(&self, pos: Pos, len: u64) -> u32 {
        let largest = 1u64 << (self.max_order + PAGE_SHIFT);
        let bytes = len.min(largest - (pos.get() & (largest - 1)));
        bytes.max(1).ilog2().saturating_sub(PAGE_SHIFT)
    }

    /// A new folio of at most `order` that begins at `page` (rounded down to the mapping's smallest folio), without content. `None` if
    /// the place is taken or, unless `wait`, if there is no memory.
    pub fn create(&self, page: PageIdx, order: u32, wait: bool) -> Option<Arc<Folio>> {
        let page = PageIdx::new(page.get() >> self.min_order << self.min_order);
        let room = {
            let index = self.index.read();
            match index.next(page.get()).map(|next| next.index().get()) {
                Some(next) if next <= page.get() => return None,
                Some(next) => next - page.get(),
                None => u64::MAX,
            }
        };
        let aligned = page.get().trailing_zeros();
        let order = order
            .min(self.max_order)
            .min(aligned)
            .min(room.ilog2())
            .max(self.min_order);
        let memory = self.shared.allocate(order, self.min_order, wait)?;
        let order = memory.order();
        let shift = self.block_size.log2();
        let folio = Arc::new(Folio::new(page, memory, shift, self.this.clone()));
        let mut index = self.index.write();
        index.insert(folio.clone()).ok()?;
        self.folios.store(index.len(), Ordering::SeqCst);
        drop(index);
        self.shared.added(&folio, order);
        Some(folio)
    }

    /// Locks `folio` shared; `None` if it is no longer part of the mapping.
    #[inline]
    pub fn read<'a>(&self, folio: &'a Folio) -> Option<FolioRef<'a>> {
        let guard = folio.read();
        guard.is_attached().then_some(guard)
    }

    /// Locks `folio` exclusively; `None` if it is no longer part of the mapping.
    #[inline]
    pub fn lock<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        let guard = folio.write(self);
        guard.is_attached().then_some(guard)
    }

    /// As [`AddressSpace::lock_stable`], but without waiting: `None` also if somebody has the folio, or it is under writeback.
    #[inline]
    pub fn try_lock_stable<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        let guard = folio.try_write(self)?;
        (guard.is_attached() && !folio.is_under_writeback()).then_some(guard)
    }

    /// Locks `folio` exclusively while it is not under writeback; `None` if it is no longer part of the
    /// mapping. To be used before its bytes are changed.
    #[inline]
    pub fn lock_stable<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        loop {
            // Before the lock is asked for: writeback holds it shared as long as the device takes, and a writer that waits for
            // the lock keeps new readers out.
            if !folio.is_under_writeback() {
                let guard = self.lock(folio)?;
                if !folio.is_under_writeback() {
                    return Some(guard);
                }
            }
            self.wait_stable(folio);
        }
    }

    /// Waits until `folio` is not under writeback.
    pub fn wait_stable(&self, folio: &Folio) {
        if !folio.is_under_writeback() {
            return;
        }
        self.shared
            .counters
            .stable_waits
            .fetch_add(1, Ordering::Relaxed);
        let mut held = self.stable_lock.lock();
        self.stable_waiters.fetch_add(1, Ordering::SeqCst);
        while folio.is_under_writeback() {
            self.stable.wait(&mut held);
        }
        self.stable_waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends the writeback of `folios`: their data, and the metadata that makes it reachable, is where it belongs.
    pub fn end_writeback<'a>(&self, folios: impl IntoIterator<Item = &'a Arc<Folio>>) {
        let bytes = folios
            .into_iter()
            .map(|folio| u64::from(folio.take_writeback()))
            .sum();
        if bytes == 0 {
            return;
        }
        crate::sync::atomic::fence(Ordering::SeqCst);
        if self.stable_waiters.load(Ordering::SeqCst) > 0 {
            drop(self.stable_lock.lock());
            self.stable.notify_all();
        }
        self.shared.written(bytes);
    }

    /// Tags every dirty folio that touches `[start, end)` for an integrity sync.
    pub fn tag_for_sync(&self, start: Pos, end: Pos) {
        let index = self.index.read();
        let mut from = start.page();
        while let Some(folio) = index.next_tagged(from.get(), Tag::Dirty)
            && folio.start() < end
        {
            index.set_tag(folio.index().get(), Tag::ToWrite);
            from = folio.next_index();
        }
    }

    /// Up to `max` folios with `tag` that touch `[start, end)`, ascending.
    pub fn tagged(&self, start: Pos, end: Pos, tag: Tag, max: usize) -> Vec<Arc<Folio>> {
        let mut found = Vec::new();
        let index = self.index.read();
        let mut from = start.page();
        while found.len() < max
            && let Some(folio) = index.next_tagged(from.get(), tag)
            && folio.start() < end
        {
            from = folio.next_index();
            found.push(folio.clone());
        }
        found
    }

    pub(crate) fn owner(&self) -> &Weak<dyn Writeback> {
        &self.owner
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn weak(&self) -> Weak<AddressSpace> {
        self.this.clone()
    }

    pub(crate) fn account_dirtied(&self, folio: &Folio, bytes: u64, first: bool) {
        if first {
            self.index.read().set_tag(folio.index().get(), Tag::Dirty);
        }
        self.dirty_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.shared.dirtied(self, bytes);
    }

    pub(crate) fn account_cleaned(&self, folio: &Folio, bytes: u64, written: u64, clean: bool) {
        if clean {
            let mut index = self.index.write();
            index.clear_tag(folio.index().get(), Tag::Dirty);
            index.clear_tag(folio.index().get(), Tag::ToWrite);
        }
        self.dirty_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.shared.cleaned(bytes, written);
    }

    pub(crate) fn remove_detached(&self, folio: &Folio) {
        let mut index = self.index.write();
        let removed = index.remove(folio.index().get());
        self.folios.store(index.len(), Ordering::SeqCst);
        drop(index);
        debug_assert!(removed.is_some(), "an attached folio is in the index");
        self.shared.removed(1);
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // Nobody can reach the folios any more; only the cache-wide accounts remain to be settled.
        let dirty = *self.dirty_bytes.get_mut();
        self.shared.cleaned(dirty, 0);
        let index = std::mem::take(self.index.get_mut());
        self.shared.removed(index.len());
        let mut next = index.next(0);
        while let Some(folio) = next {
            folio.forsake();
            next = index.next(folio.next_index().get());
        }
    }
}
