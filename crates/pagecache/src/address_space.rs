//! Address spaces: each is one file's part of the page cache.
//!
//! # Locks
//! The order is in the crate's documentation. `index` is held for lookups, insertions and removals
//! only; a thread may hold a folio lock when it takes `index`, never the other way round. Callers
//! take the invalidate lock: shared to add and fill folios, exclusively to remove blocks together
//! with their folios.
//!
//! # Concurrency
//! A folio that was found in the index may be detached before it is locked. The locking functions
//! here return `None` then, and the caller looks it up again.
//!
//! A thread that waits for the end of a folio's writeback is not missed:
//!
//! 1. The waiter holds `stable_lock`, adds itself to `stable_waiters`, then looks at the folio.
//! 2. The end of writeback clears the folio's count, then (after a fence) loads `stable_waiters`.
//! 3. Either the waiter sees the folio stable, or the other thread sees the waiter. That thread
//!    takes `stable_lock` before it notifies, and the waiter holds the lock until it sleeps.
//!
//! The model `writeback_beside_redirtying` of `iomap`'s interleavings runs through these steps.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use extant_lock_order::Rank;
use extant_sync::atomic::{AtomicUsize, Ordering, fence};
use extant_sync::{Condvar, Mutex, RwLock};
use extant_units::{BlockSize, PAGE_SHIFT, PageIdx, Pos};

use crate::arena::FolioMemory;
use crate::cache::PageCache;
use crate::cache_state::CacheState;
use crate::counters::bump;
use crate::dirty_list::{DirtyFile, DirtyState, Writeback};
use crate::errseq::WritebackErrors;
use crate::folio::{Folio, FolioOwner};
use crate::folio_guard::{FolioGuard, FolioRef};
use crate::folio_tree::{FolioTree, Tag};
use crate::locks::{InvalidateLock, PassLock, WritebackPass};

/// The order up to which folios grow behind each other: calls of that size cost little more than
/// the copy of their bytes. The files of a model checker are short.
const SEQUENTIAL_ORDER: u32 = if cfg!(extant_shuttle) { 1 } else { 4 };

/// The largest folio that grows so, in bytes.
pub const SEQUENTIAL_FOLIO_BYTES: u64 = 1 << (PAGE_SHIFT + SEQUENTIAL_ORDER);

/// Parameters of an address space.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpaceParams {
    /// The block size of the uptodate and dirty state.
    pub block_size: BlockSize,
    /// The largest folio order; the cache's own limit applies as well.
    pub max_order: u32,
}

/// One file's cached folios: Linux's `struct address_space`.
pub struct AddressSpace {
    state: Arc<CacheState>,
    this: Weak<AddressSpace>,
    block_size: BlockSize,
    min_order: u32,
    max_order: u32,
    index: RwLock<FolioTree<Arc<Folio>>>,
    /// Folios in the index; changes under its lock.
    folios: AtomicUsize,
    invalidate: InvalidateLock,
    pass: PassLock,
    /// Folios are locked inside of a handle. Only the check of the lock order reads it.
    folios_in_handle: AtomicBool,
    dirty: DirtyState,
    errors: WritebackErrors,
    stable_waiters: AtomicUsize,
    stable_lock: Mutex<()>,
    stable: Condvar,
}

impl AddressSpace {
    /// An empty address space. `owner` writes it back, and is held strongly while anything in the
    /// address space is dirty.
    pub fn new(
        cache: &PageCache,
        owner: Weak<dyn Writeback>,
        params: AddressSpaceParams,
    ) -> Arc<Self> {
        let state = cache.state().clone();
        // A block larger than a page needs a folio of its size; smaller ones share the smallest.
        let min_order = params.block_size.log2().saturating_sub(PAGE_SHIFT);
        let max_order = params.max_order.min(state.max_order()).max(min_order);
        Arc::new_cyclic(|this| Self {
            state,
            this: this.clone(),
            block_size: params.block_size,
            min_order,
            max_order,
            index: RwLock::default(),
            folios: AtomicUsize::new(0),
            invalidate: InvalidateLock::default(),
            pass: PassLock::default(),
            folios_in_handle: AtomicBool::new(false),
            dirty: DirtyState::new(owner),
            errors: WritebackErrors::default(),
            stable_waiters: AtomicUsize::new(0),
            stable_lock: Mutex::new(()),
            stable: Condvar::new(),
        })
    }

    /// Says whether this file's folios are locked inside of a handle of the journal (the per-block
    /// path) or before one. The caller has no folio of the file locked, and no other thread waits
    /// for one.
    pub fn set_folios_in_handle(&self, in_handle: bool) {
        self.folios_in_handle.store(in_handle, Ordering::Relaxed);
    }

    /// The rank of this file's folios in the lock order.
    #[inline]
    fn folio_rank(&self) -> Rank {
        if cfg!(debug_assertions) && self.folios_in_handle.load(Ordering::Relaxed) {
            Rank::FolioInHandle
        } else {
            Rank::Folio
        }
    }

    /// The block size of the folios' state.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The largest order of this address space's folios.
    pub fn max_order(&self) -> u32 {
        self.max_order
    }

    /// The lock between the cache and the block map: shared while clean folios are added or filled,
    /// exclusive while folios and their blocks are removed.
    pub fn invalidate_lock(&self) -> &InvalidateLock {
        &self.invalidate
    }

    /// Waits until no other writeback pass runs on this address space, and begins one.
    pub fn writeback_pass(&self) -> WritebackPass<'_> {
        self.pass.lock()
    }

    /// Begins a writeback pass, unless one runs.
    pub fn try_writeback_pass(&self) -> Option<WritebackPass<'_>> {
        self.pass.try_lock()
    }

    /// Returns whether a pass runs.
    #[doc(hidden)] // For the engine's tests, which look whether a pass waits or has ended.
    pub fn is_in_pass(&self) -> bool {
        self.pass.is_held()
    }

    /// Returns whether a thread waits for the end of a pass.
    #[doc(hidden)] // For the engine's tests, which wait until another thread has come this far.
    pub fn is_pass_awaited(&self) -> bool {
        self.pass.is_awaited()
    }

    /// Writeback errors, for fsync.
    pub fn errors(&self) -> &WritebackErrors {
        &self.errors
    }

    /// Dirty bytes, not counting what is under writeback.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// The number of folios.
    pub fn folio_count(&self) -> usize {
        self.index.read().len()
    }

    /// Returns whether there are no folios. Takes no lock; sequentially consistent with insertions:
    /// if the caller has seen what another thread did after an insertion, it sees the insertion
    /// here.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.folios.load(Ordering::SeqCst) == 0
    }

    /// Waits, at a dirty limit, until enough has been written. The caller holds no folio lock and
    /// has no journal handle open.
    #[inline]
    pub fn throttle(&self) {
        self.state.throttle(&self.dirty);
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

    /// The folio that covers the byte at `pos`, or a new one that begins at `pos`'s page and is as
    /// large as `len` bytes from there, alignment and neighbours allow. Waits for memory if there
    /// is none: the caller holds no folio lock and has no journal handle open.
    pub fn get_or_create(&self, pos: Pos, len: u64) -> Arc<Folio> {
        self.get_or_create_of(pos, || self.order_for(pos, len))
    }

    /// [`AddressSpace::get_or_create`] for a writer. Behind a folio that ends with dirty bytes a
    /// new one may be twice as large as that, up to [`SEQUENTIAL_FOLIO_BYTES`]: small pieces that
    /// are written in order find most of their folios made. Not during a writeback pass, whose end
    /// the next piece would wait for.
    pub fn get_or_create_in_order(&self, pos: Pos, len: u64) -> Arc<Folio> {
        let order = || self.order_for(pos, len).max(self.order_behind(pos.page()));
        self.get_or_create_of(pos, order)
    }

    /// The order that a folio at `page` may grow to behind the one before it.
    fn order_behind(&self, page: PageIdx) -> u32 {
        let before = page.get().checked_sub(1).map(PageIdx::new);
        let Some(folio) = before.and_then(|before| self.get(before)) else {
            return 0;
        };
        match folio.ends_dirty() && !self.pass.is_held() {
            true => (folio.order() + 1).min(SEQUENTIAL_ORDER),
            false => 0,
        }
    }

    /// The folio that covers the byte at `pos`, or a new one of at most the order that `order`
    /// chooses.
    fn get_or_create_of(&self, pos: Pos, order: impl Fn() -> u32) -> Arc<Folio> {
        let page = pos.page();
        loop {
            if let Some(folio) = self.get(page) {
                return folio;
            }
            if let Some(folio) = self.create(page, order(), true) {
                return folio;
            }
        }
    }

    /// The order for a write of `len` bytes at `pos`: the largest that the bytes fill within one
    /// largest folio.
    fn order_for(&self, pos: Pos, len: u64) -> u32 {
        let largest = 1u64 << (self.max_order + PAGE_SHIFT);
        let bytes = len.min(largest - (pos.get() & (largest - 1)));
        // Less than a page still gets a page.
        bytes.max(1).ilog2().saturating_sub(PAGE_SHIFT)
    }

    /// A new folio of at most `order`, without content, that begins at `page` (rounded down to the
    /// address space's smallest folio). `None` if another folio covers the page or, unless `wait`,
    /// if there is no memory.
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
        let memory = self.state.allocate(order, self.min_order, wait)?;
        debug_assert!((self.min_order..=order).contains(&memory.order()));
        let shift = self.block_size.log2();
        let folio = Arc::new(Folio::new(page, memory, shift, self.this.clone()));
        let mut index = self.index.write();
        index.insert(folio.clone()).ok()?;
        self.folios.store(index.len(), Ordering::SeqCst);
        self.state.added(&mut index, &folio);
        drop(index);
        Some(folio)
    }

    /// Locks `folio` shared; `None` if it is no longer part of the address space.
    #[inline]
    pub fn read<'a>(&self, folio: &'a Folio) -> Option<FolioRef<'a>> {
        let guard = FolioRef::lock(folio, self.folio_rank());
        guard.is_attached().then_some(guard)
    }

    /// Locks `folio` exclusively; `None` if it is no longer part of the address space.
    #[inline]
    pub fn lock<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        let guard = FolioGuard::lock(folio, self, self.folio_rank());
        guard.is_attached().then_some(guard)
    }

    /// As [`AddressSpace::lock_stable`], but without waiting: `None` also if another thread holds
    /// the folio lock, or the folio is under writeback.
    #[inline]
    pub fn try_lock_stable<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        let guard = FolioGuard::try_lock(folio, self)?;
        (guard.is_attached() && !folio.is_under_writeback()).then_some(guard)
    }

    /// Locks `folio` exclusively while it is not under writeback, so that its bytes may be changed.
    /// `None` if it is no longer part of the address space.
    #[inline]
    pub fn lock_stable<'a>(&'a self, folio: &'a Folio) -> Option<FolioGuard<'a>> {
        loop {
            // Look before asking for the lock. Writeback holds it shared for as long as the device
            // takes, and a writer that waits for the lock keeps new readers out.
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
        bump(&self.state.counters.stable_waits);
        let mut held = self.stable_lock.lock();
        self.stable_waiters.fetch_add(1, Ordering::SeqCst);
        while folio.is_under_writeback() {
            self.stable.wait(&mut held);
        }
        self.stable_waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends the writeback of `folios`: their data, and the metadata that makes it reachable, has
    /// reached the device or joined a transaction.
    pub fn end_writeback<'a>(&self, folios: impl IntoIterator<Item = &'a Arc<Folio>>) {
        let bytes = folios
            .into_iter()
            .map(|folio| u64::from(folio.take_writeback()))
            .sum();
        if bytes == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        if self.stable_waiters.load(Ordering::SeqCst) > 0 {
            drop(self.stable_lock.lock());
            self.stable.notify_all();
        }
        self.state.written(bytes);
    }

    /// Tags every dirty folio that touches `[start, end)` for an integrity sync, which is `_pass`.
    pub fn tag_for_sync(&self, _pass: &WritebackPass<'_>, start: Pos, end: Pos) {
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

    pub(crate) fn state(&self) -> &Arc<CacheState> {
        &self.state
    }

    /// The file's entry in the list of dirty files.
    pub(crate) fn dirty_state(&self) -> &DirtyState {
        &self.dirty
    }
}

impl DirtyFile for AddressSpace {
    fn dirty(&self) -> &DirtyState {
        &self.dirty
    }

    fn weak(&self) -> Weak<dyn DirtyFile> {
        self.this.clone()
    }

    fn is_in_pass(&self) -> bool {
        self.pass.is_held()
    }
}

impl FolioOwner for AddressSpace {
    fn account_dirtied(&self, folio: &Folio, bytes: u64, first: bool) {
        if first {
            self.index.read().set_tag(folio.index().get(), Tag::Dirty);
        }
        self.dirty.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.state.dirtied(self, bytes);
    }

    fn account_cleaned(&self, folio: &Folio, bytes: u64, written: u64, clean: bool) {
        if clean {
            let mut index = self.index.write();
            index.clear_tag(folio.index().get(), Tag::Dirty);
            index.clear_tag(folio.index().get(), Tag::ToWrite);
        }
        let before = self.dirty.bytes.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "{bytes} of {before} dirty bytes (J4)");
        self.state.cleaned(bytes, written);
    }

    fn remove_detached(&self, folio: &Folio) {
        let mut index = self.index.write();
        let removed = index.remove(folio.index().get());
        self.folios.store(index.len(), Ordering::SeqCst);
        drop(index);
        debug_assert!(removed.is_some(), "an attached folio is in the index");
        self.state.removed(1);
    }

    fn allocate_copy(&self, order: u32) -> Option<FolioMemory> {
        self.state.allocate(order, order, false)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // No thread can reach the folios any more, so only the cache-wide accounts are corrected.
        self.state.cleaned(self.dirty.bytes(), 0);
        let index = std::mem::take(self.index.get_mut());
        self.state.removed(index.len());
        let mut next = index.next(0);
        while let Some(folio) = next {
            folio.release_memory();
            next = index.next(folio.next_index().get());
        }
    }
}
