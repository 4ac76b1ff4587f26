//! Folios: contiguous cached pages with one lock and a state per block.
//!
//! # Invariants
//! * A folio of order *k* begins at a page number that is a multiple of 2^k (J2).
//! * A dirty block is uptodate. Bytes of an uptodate block past the end of the file are zero (J31),
//!   unless a write that holds the folio lock is about to raise the size.
//! * `backed`: blocks that are known to have space, allocated or reserved (J7). An operation that
//!   takes space away removes the folio or the blocks from this set, under the folio lock.
//! * A detached folio is never attached again. It has no memory any more: that went back to the
//!   arena when the folio was detached, whatever references to the folio are left.
//!
//! # Concurrency
//! Bytes and state lie under one reader-writer lock, the folio lock; see the guards in
//! `folio_guard.rs`. `referenced` and the writeback count are atomics beside it: writeback begins
//! only under the exclusive lock, but ends under none.

use std::ops::Range;
use std::sync::Weak;

use extant_sync::RwLock;
use extant_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use extant_units::{PAGE_SHIFT, PAGE_SIZE, PageIdx, Pos};

use crate::arena::FolioMemory;
use crate::block_bits::BlockBits;
use crate::folio_tree::Entry;
use crate::pinnable::PinnableMemory;
use crate::private::FolioPrivate;

/// A folio of the page cache. Get one from an [`crate::AddressSpace`], and lock it through that.
pub struct Folio {
    index: PageIdx,
    order: u32,
    /// log2 of the block size.
    block_shift: u32,
    referenced: AtomicBool,
    /// References from threads' [`crate::RecentFolios`]: reclaim does not count them as use.
    pub(crate) recent_refs: AtomicUsize,
    /// The folio has left its address space: a copy of `attached` that is read without the lock.
    pub(crate) detached: AtomicBool,
    /// Bytes under writeback; zero: the folio is not under writeback (J6).
    pub(crate) writeback: AtomicU32,
    owner: Weak<dyn FolioOwner>,
    pub(crate) state: RwLock<FolioState>,
}

/// The state that the folio lock protects.
pub(crate) struct FolioState {
    pub(crate) memory: PinnableMemory,
    pub(crate) uptodate: BlockBits,
    pub(crate) dirty: BlockBits,
    pub(crate) attached: bool,
    pub(crate) backed: BlockBits,
    pub(crate) private: Option<Box<dyn FolioPrivate>>,
}

/// The address space of a folio, as the folio sees it. All calls come with the folio locked
/// exclusively.
pub(crate) trait FolioOwner: Send + Sync {
    /// `bytes` of `folio` became dirty; `first`: it had no dirty block before.
    fn account_dirtied(&self, folio: &Folio, bytes: u64, first: bool);

    /// `bytes` of `folio` ceased to be dirty, `written` of which are under writeback now; `clean`:
    /// it has no dirty block any more.
    fn account_cleaned(&self, folio: &Folio, bytes: u64, written: u64, clean: bool);

    /// `folio` has been detached, and leaves the index.
    fn remove_detached(&self, folio: &Folio);

    /// Memory of `order` for a copy of pinned bytes, without waiting.
    fn allocate_copy(&self, order: u32) -> Option<FolioMemory>;
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
        owner: Weak<dyn FolioOwner>,
    ) -> Self {
        let order = memory.order();
        debug_assert!(
            index.get().is_multiple_of(1 << order),
            "folio {}+{order} is aligned to its length (J2)",
            index.get()
        );
        debug_assert!(
            order + PAGE_SHIFT >= block_shift,
            "a folio holds a block at least"
        );
        let blocks = 1u32 << (order + PAGE_SHIFT - block_shift);
        Self {
            index,
            order,
            block_shift,
            referenced: AtomicBool::new(false),
            recent_refs: AtomicUsize::new(0),
            detached: AtomicBool::new(false),
            writeback: AtomicU32::new(0),
            owner,
            state: RwLock::new(FolioState {
                memory: PinnableMemory::Own(memory),
                uptodate: BlockBits::new(blocks),
                dirty: BlockBits::new(blocks),
                attached: true,
                backed: BlockBits::new(blocks),
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

    /// log2 of the block size.
    #[inline]
    pub(crate) fn block_shift(&self) -> u32 {
        self.block_shift
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

    /// The file position after the last byte. The folio of the last page there can be ends at
    /// [`Pos::MAX`], one byte early.
    #[inline]
    pub fn end(&self) -> Pos {
        self.start().saturating_add(self.len() as u64)
    }

    /// Returns whether the folio covers `page` and has not been detached as far as this thread can
    /// see.
    #[inline]
    pub(crate) fn covers(&self, page: PageIdx) -> bool {
        page.get() >> self.order == self.index.get() >> self.order
            && !self.detached.load(Ordering::Relaxed)
    }

    /// `pos` as an offset into the folio; a position outside gives the nearer end.
    #[inline]
    pub fn offset_of(&self, pos: Pos) -> usize {
        // Saturating is the meaning: a position before the folio gives its start.
        let offset = pos.get().saturating_sub(self.start().get());
        extant_units::index(offset.min(self.len() as u64))
    }

    /// The file position of the byte at `offset`, or of the folio's end, which stops at
    /// [`Pos::MAX`] as in [`Folio::end`].
    #[inline]
    pub fn pos_of(&self, offset: usize) -> Pos {
        debug_assert!(offset <= self.len(), "offset {offset} in a folio");
        self.start().saturating_add(offset as u64)
    }

    /// Returns whether the last block is dirty, as far as that is seen without waiting.
    pub(crate) fn ends_dirty(&self) -> bool {
        let bytes = self.len() - 1..self.len();
        let state = self.state.try_read();
        state.is_some_and(|state| state.dirty.contains(self.blocks(&bytes)))
    }

    /// The page after the last.
    pub(crate) fn next_index(&self) -> PageIdx {
        PageIdx::new(self.index.get() + (1 << self.order))
    }

    /// Returns whether bytes of the folio are under writeback.
    #[inline]
    pub fn is_under_writeback(&self) -> bool {
        self.writeback.load(Ordering::Acquire) != 0
    }

    /// Notes that the folio was used, for reclaim.
    #[inline]
    pub fn mark_referenced(&self) {
        // Most folios in use are marked already: a store only where it changes something keeps
        // their cache line shared.
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn owner(&self) -> &Weak<dyn FolioOwner> {
        &self.owner
    }

    /// Ends writeback; returns the bytes that were under it.
    pub(crate) fn take_writeback(&self) -> u32 {
        self.writeback.swap(0, Ordering::AcqRel)
    }

    /// Releases the memory of a folio whose address space is being dropped. References from
    /// [`crate::RecentFolios`] would keep it otherwise.
    pub(crate) fn release_memory(&self) {
        if self.recent_refs.load(Ordering::Relaxed) > 0 {
            let mut state = self.state.write();
            state.attached = false;
            state.memory.release();
        }
    }

    /// The numbers of the blocks that `bytes` touches.
    #[inline]
    pub(crate) fn blocks(&self, bytes: &Range<usize>) -> Range<u32> {
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

    /// The bytes of `blocks`.
    pub(crate) fn bytes_of(&self, blocks: &Range<u32>) -> Range<usize> {
        let bytes =
            (blocks.start as usize) << self.block_shift..(blocks.end as usize) << self.block_shift;
        debug_assert!(bytes.end <= self.len(), "blocks {blocks:?} of a folio");
        bytes
    }
}
