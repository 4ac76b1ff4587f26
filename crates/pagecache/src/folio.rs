//! Folios: contiguous cached pages with one lock and per-block state.
//!
//! # Invariants
//! * A folio of order *k* begins at a page number that is a multiple of 2^k.
//! * A dirty block is uptodate. Bytes of an uptodate block past the end of the file are zero, unless
//!   a write is about to raise the size, under the folio's lock.
//! * `backed`: every block of the folio has space (allocated or promised). Whatever takes space away removes the folio
//!   or clears the flag, under the folio's lock.
//! * A detached folio is never attached again, and has no memory any more: that goes back to the arena at once, whoever still
//!   holds the folio.
//!
//! # Concurrency
//! Bytes and state are under one reader-writer lock. `referenced` and the writeback count are atomics
//! beside it: writeback begins only under the exclusive lock, but ends under none.

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::ops::Range;
use std::sync::Weak;

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use extant_lock_order::{Held, Rank, taking, took};
use extant_units::{PAGE_SHIFT, PAGE_SIZE, PageIdx, Pos};

use crate::block_bits::BlockBits;
use crate::mapping::AddressSpace;
use crate::memory::FolioMemory;
use crate::pin::Memory;
use crate::private::FolioPrivate;
use crate::tree::Entry;

/// A folio of the page cache. Get one from a [`AddressSpace`], lock it through the mapping.
pub struct Folio {
    index: PageIdx,
    order: u32,
    /// log2 of the block size.
    block_shift: u32,
    referenced: AtomicBool,
    /// References that only remember the folio ([`crate::RecentFolios`]) and do not want it kept.
    pub(crate) remembered: AtomicUsize,
    /// The folio has left its mapping: a copy of `attached`, for a look without the lock.
    detached: AtomicBool,
    /// Bytes on their way to the device; not zero = under writeback.
    writeback: AtomicU32,
    mapping: Weak<AddressSpace>,
    state: RwLock<State>,
}

struct State {
    /// Gone when the folio is detached.
    memory: Memory,
    uptodate: BlockBits,
    dirty: BlockBits,
    attached: bool,
    backed: bool,
    private: Option<Box<dyn FolioPrivate>>,
}

impl Entry for std::sync::Arc<Folio> {
    fn index(&self) -> u64 {
        self.index.get()
    }
    fn order(&self) -> u32 {
        self.order
    }
}

impl Folio {
    pub(crate) fn new(
        index: PageIdx,
        memory: FolioMemory,
        block_shift: u32,
        mapping: Weak<AddressSpace>,
    ) -> Self {
        let order = memory.order();
        let blocks = 1u32 << (order + PAGE_SHIFT).saturating_sub(block_shift);
        Self {
            index,
            order,
            block_shift,
            referenced: AtomicBool::new(false),
            remembered: AtomicUsize::new(0),
            detached: AtomicBool::new(false),
            writeback: AtomicU32::new(0),
            mapping,
            state: RwLock::new(State {
                memory: Memory::new(memory),
                uptodate: BlockBits::new(blocks),
                dirty: BlockBits::new(blocks),
                attached: true,
                backed: false,
                private: None,
            }),
        }
    }

    /// The first page.
    #[inline]
    pub fn index(&self) -> PageIdx {
        self.index
    }

    /// log2 of the number of pages.
    #[inline]
    pub fn order(&self) -> u32 {
        self.order
    }

    /// The size in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a folio is never empty")]
    pub fn len(&self) -> usize {
        PAGE_SIZE << self.order
    }

    /// The file position of the first byte.
    #[inline]
    pub fn start(&self) -> Pos {
        Pos::new(self.index.get() << PAGE_SHIFT)
    }

    /// The file position after the last byte.
    #[inline]
    pub fn end(&self) -> Pos {
        self.start().saturating_add(self.len() as u64)
    }

    /// Whether the folio covers `page` and, at a glance, is still part of its mapping.
    #[inline]
    pub(crate) fn serves(&self, page: PageIdx) -> bool {
        page.get() >> self.order == self.index.get() >> self.order
            && !self.detached.load(Ordering::Relaxed)
    }

    /// `pos` as an offset into the folio; positions outside give its nearer end.
    #[inline]
    pub fn offset_of(&self, pos: Pos) -> usize {
        let offset = pos.get().saturating_sub(self.start().get());
        crate::index(offset.min(self.len() as u64))
    }

    /// The file position of the byte at `offset`.
    #[inline]
    pub fn pos_of(&self, offset: usize) -> Pos {
        self.start().saturating_add(offset as u64)
    }

    /// The page after the last.
    pub(crate) fn next_index(&self) -> PageIdx {
        PageIdx::new(self.index.get() + (1 << self.order))
    }

    /// Whether the folio's bytes are on their way to the device.
    #[inline]
    pub fn is_under_writeback(&self) -> bool {
        self.writeback.load(Ordering::Acquire) != 0
    }

    /// Remembers that somebody used the folio, for reclaim.
    #[inline]
    pub fn mark_referenced(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn mapping(&self) -> &Weak<AddressSpace> {
        &self.mapping
    }

    /// Ends writeback; returns the bytes that were on their way.
    pub(crate) fn take_writeback(&self) -> u32 {
        self.writeback.swap(0, Ordering::AcqRel)
    }

    /// The folio's mapping is gone: gives the memory up that those who remember the folio would keep.
    pub(crate) fn forsake(&self) {
        if self.remembered.load(Ordering::Relaxed) > 0 {
            let mut state = self.state.write();
            state.attached = false;
            state.memory.release();
        }
    }

    pub(crate) fn read(&self) -> FolioRef<'_> {
        let held = taking(Rank::FolioOrHandle);
        FolioRef {
            folio: self,
            state: self.state.read(),
            held,
        }
    }

    pub(crate) fn write<'a>(&'a self, mapping: &'a AddressSpace) -> FolioGuard<'a> {
        let held = taking(Rank::FolioOrHandle);
        FolioGuard {
            folio: self,
            mapping,
            state: self.state.write(),
            held,
        }
    }

    pub(crate) fn try_write<'a>(&'a self, mapping: &'a AddressSpace) -> Option<FolioGuard<'a>> {
        Some(FolioGuard {
            folio: self,
            mapping,
            state: self.state.try_write()?,
            held: took(Rank::FolioOrHandle),
        })
    }

    /// The blocks that `bytes` touches.
    #[inline]
    fn blocks(&self, bytes: &Range<usize>) -> Range<u32> {
        debug_assert!(bytes.start <= bytes.end && bytes.end <= self.len());
        let last = (1usize << self.block_shift) - 1;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a folio has 2048 blocks at most"
        )]
        {
            (bytes.start >> self.block_shift) as u32
                ..((bytes.end + last) >> self.block_shift) as u32
        }
    }

    fn bytes_of(&self, blocks: &Range<u32>) -> Range<usize> {
        (blocks.start as usize) << self.block_shift
            ..((blocks.end as usize) << self.block_shift).min(self.len())
    }
}

/// A folio held shared: its bytes and state do not change.
pub struct FolioRef<'a> {
    folio: &'a Folio,
    state: RwLockReadGuard<'a, State>,
    #[allow(dead_code, reason = "held")]
    held: Held,
}

impl<'a> FolioRef<'a> {
    /// The folio.
    #[inline]
    pub fn folio(&self) -> &'a Folio {
        self.folio
    }

    /// Whether the folio is still part of its mapping.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.state.attached
    }

    /// The whole folio's bytes. Only uptodate blocks mean anything.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.state.memory.bytes()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.state.memory
    }

    /// Whether every block that `bytes` touches is uptodate.
    #[inline]
    pub fn is_uptodate(&self, bytes: Range<usize>) -> bool {
        self.state.uptodate.contains(self.folio.blocks(&bytes))
    }

    /// Whether every block of the folio is known to have space.
    pub(crate) fn is_backed(&self) -> bool {
        self.state.backed
    }

    /// Checks that the bitmaps agree with themselves and each other.
    pub(crate) fn verify_bits(&self) -> Result<(), String> {
        self.state.uptodate.verify()?;
        self.state.dirty.verify()
    }

    /// The first byte, at or after `from`, of a block whose uptodate state is `wanted`.
    pub fn next_uptodate(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.uptodate, self.folio, from, wanted)
    }

    /// The first byte, at or after `from`, of a block whose dirty state is `wanted`.
    pub fn next_dirty(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.dirty, self.folio, from, wanted)
    }
}

fn next_in(bits: &BlockBits, folio: &Folio, from: usize, wanted: bool) -> Option<usize> {
    if from >= folio.len() {
        return None;
    }
    let first = folio.blocks(&(from..from + 1)).start;
    let block = if wanted {
        bits.next_set(first)?
    } else {
        bits.next_clear(first)?
    };
    Some(((block as usize) << folio.block_shift).max(from))
}

/// A folio held exclusively: the folio lock.
pub struct FolioGuard<'a> {
    folio: &'a Folio,
    mapping: &'a AddressSpace,
    state: RwLockWriteGuard<'a, State>,
    held: Held,
}

impl<'a> FolioGuard<'a> {
    /// The folio.
    #[inline]
    pub fn folio(&self) -> &'a Folio {
        self.folio
    }

    /// Gives up exclusiveness without letting a writer in between.
    pub fn downgrade(self) -> FolioRef<'a> {
        FolioRef {
            folio: self.folio,
            state: RwLockWriteGuard::downgrade(self.state),
            held: self.held,
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.state.attached
    }

    /// The whole folio's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.state.memory.bytes()
    }

    pub(crate) fn memory_mut(&mut self) -> &mut Memory {
        &mut self.state.memory
    }

    /// The whole folio's bytes, to be changed. Whoever changes uptodate bytes marks them dirty.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let shared = self.mapping.shared();
        let copy = |order| shared.allocate(order, order, false);
        self.state.memory.bytes_mut(copy)
    }

    /// Whether every block that `bytes` touches is uptodate.
    #[inline]
    pub fn is_uptodate(&self, bytes: Range<usize>) -> bool {
        self.state.uptodate.contains(self.folio.blocks(&bytes))
    }

    /// The first byte, at or after `from`, of a block whose uptodate state is `wanted`.
    pub fn next_uptodate(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.uptodate, self.folio, from, wanted)
    }

    /// Marks every block that `bytes` touches uptodate: the caller has filled all of them.
    pub fn mark_uptodate(&mut self, bytes: Range<usize>) {
        let blocks = self.folio.blocks(&bytes);
        self.state.uptodate.insert(blocks);
        if let Some(private) = &mut self.state.private {
            private.uptodate(bytes);
        }
    }

    /// Whether every block that `bytes` touches is dirty.
    #[inline]
    pub fn is_dirty(&self, bytes: Range<usize>) -> bool {
        self.state.dirty.contains(self.folio.blocks(&bytes))
    }

    /// Whether no block that `bytes` touches is dirty.
    pub(crate) fn is_clean(&self, bytes: Range<usize>) -> bool {
        let blocks = self.folio.blocks(&bytes);
        let next = self.state.dirty.next_run(blocks.start);
        next.is_none_or(|run| run.start >= blocks.end)
    }

    /// Whether any block is dirty.
    #[inline]
    pub fn has_dirty(&self) -> bool {
        !self.state.dirty.is_empty()
    }

    /// Marks every block that `bytes` touches dirty; returns whether any was clean. They are uptodate and have space, allocated or
    /// promised.
    #[inline]
    pub fn mark_dirty(&mut self, bytes: Range<usize>) -> bool {
        let blocks = self.folio.blocks(&bytes);
        debug_assert!(self.state.attached, "a detached folio is not dirtied");
        debug_assert!(
            self.state.uptodate.contains(blocks.clone()),
            "dirty blocks are uptodate"
        );
        let added = self.state.dirty.insert(blocks);
        if added > 0 {
            self.dirtied(bytes, added);
        }
        added > 0
    }

    fn dirtied(&mut self, bytes: Range<usize>, added: u32) {
        let first = self.state.dirty.count() == added;
        if let Some(private) = &mut self.state.private {
            private.dirtied(bytes);
        }
        let bytes = u64::from(added) << self.folio.block_shift;
        self.mapping.account_dirtied(self.folio, bytes, first);
    }

    /// Cleans every block that lies wholly within `bytes`, without writing: their content is no longer wanted.
    pub fn cancel_dirty(&mut self, bytes: Range<usize>) {
        let start = bytes.start.next_multiple_of(1 << self.folio.block_shift);
        let mut blocks = self.folio.blocks(&(start.min(bytes.end)..bytes.end));
        if bytes.end < self.folio.len() && bytes.end & ((1 << self.folio.block_shift) - 1) != 0 {
            blocks.end -= 1;
        }
        if blocks.start >= blocks.end {
            return;
        }
        if let Some(private) = &mut self.state.private {
            private.cleaned(self.folio.bytes_of(&blocks));
        }
        let removed = self.state.dirty.remove(blocks);
        self.after_clean(removed, 0);
    }

    /// Gives up the content of `bytes`: whole blocks are not uptodate any more, which costs nothing however many there are;
    /// parts of blocks are zeroed. None of the whole ones is dirty.
    pub(crate) fn discard(&mut self, bytes: Range<usize>) {
        let block = 1 << self.folio.block_shift;
        let whole = bytes.start.next_multiple_of(block)..bytes.end & !(block - 1);
        if self.state.private.is_some() || whole.is_empty() {
            // Records of a path's own are told of blocks that become uptodate only.
            self.bytes_mut()[bytes].fill(0);
            return;
        }
        let blocks = self.folio.blocks(&whole);
        self.state.uptodate.remove(blocks);
        self.bytes_mut()[bytes.start..whole.start].fill(0);
        self.bytes_mut()[whole.end..bytes.end].fill(0);
    }

    /// Whether every block of the folio is known to have space.
    #[inline]
    pub fn is_backed(&self) -> bool {
        self.state.backed
    }

    /// Says that every block of the folio has space, or that this is not known any more.
    #[inline]
    pub fn set_backed(&mut self, backed: bool) {
        self.state.backed = backed;
    }

    /// The blocks that `bytes` touches may have lost their place.
    pub(crate) fn forget_place(&mut self, bytes: Range<usize>) {
        self.state.backed = false;
        if let Some(private) = &mut self.state.private {
            private.unmapped(bytes);
        }
    }

    pub(crate) fn private_slot(&mut self) -> &mut Option<Box<dyn FolioPrivate>> {
        &mut self.state.private
    }

    /// Whether a write to `bytes` needs no block map: all of its blocks are uptodate and have space.
    #[inline]
    pub fn can_overwrite(&self, bytes: Range<usize>) -> bool {
        self.is_uptodate(bytes.clone()) && (self.state.backed || self.is_dirty(bytes))
    }

    /// Takes the dirty blocks below byte `end` for writing: calls `each` with every run of bytes, cleans
    /// them, and puts the folio under writeback if there were any. The caller ends that with
    /// [`AddressSpace::end_writeback`]. Blocks at or past `end` are cleaned as well, without being written.
    pub fn start_writeback(&mut self, end: usize, mut each: impl FnMut(Range<usize>)) {
        debug_assert!(
            !self.folio.is_under_writeback(),
            "one writer of a folio at a time"
        );
        let limit = self.folio.blocks(&(0..end.min(self.folio.len()))).end;
        let mut from = 0;
        let mut taken = 0;
        while let Some(run) = self.state.dirty.next_run(from) {
            if run.start >= limit {
                break;
            }
            let run = run.start..run.end.min(limit);
            from = run.end;
            taken += run.end - run.start;
            each(self.folio.bytes_of(&run));
        }
        let all = self.state.dirty.count();
        let whole = self.folio.blocks(&(0..self.folio.len()));
        self.state.dirty.remove(whole);
        if let Some(private) = &mut self.state.private {
            private.cleaned(0..self.folio.len());
        }
        self.begin_writeback(all, taken);
    }

    /// The same for the dirty blocks of `runs` alone, all of which are written; others stay dirty.
    pub fn start_writeback_of(&mut self, runs: impl IntoIterator<Item = Range<usize>>) {
        debug_assert!(
            !self.folio.is_under_writeback(),
            "one writer of a folio at a time"
        );
        let mut taken = 0;
        for run in runs {
            let blocks = self.folio.blocks(&run);
            taken += self.state.dirty.remove(blocks);
        }
        self.begin_writeback(taken, taken);
    }

    fn begin_writeback(&mut self, removed: u32, written: u32) {
        self.folio
            .writeback
            .store(written << self.folio.block_shift, Ordering::Release);
        self.after_clean(removed, written);
    }

    /// Settles the accounts after `removed` blocks ceased to be dirty, `written` of which go to the device.
    fn after_clean(&mut self, removed: u32, written: u32) {
        if removed == 0 {
            return;
        }
        let shift = self.folio.block_shift;
        let clean = self.state.dirty.is_empty();
        self.mapping.account_cleaned(
            self.folio,
            u64::from(removed) << shift,
            u64::from(written) << shift,
            clean,
        );
    }

    /// Takes the folio out of its mapping, with everything in it. Not under writeback.
    pub(crate) fn detach(mut self) {
        debug_assert!(!self.folio.is_under_writeback());
        self.cancel_dirty(0..self.folio.len());
        self.state.attached = false;
        self.state.backed = false;
        self.state.private = None;
        self.folio.detached.store(true, Ordering::Relaxed);
        self.mapping.remove_detached(self.folio);
        self.state.memory.release();
    }
}
