//! Folio memory: contiguous, naturally aligned, recycled. The crate's only unsafe code.
//!
//! # Invariants
//! * A chunk is `PAGE_SIZE << chunk_order` bytes from the host, aligned to its size and zero when
//!   it is made; its bytes are initialised from then on. It goes back to the host by
//!   [`Arena::trim`], while no block of it is handed out, or when the arena is dropped. It is a
//!   mapping of its own, so that the host has the memory at once; an allocator in between might
//!   keep it.
//! * A chunk of 2 MiB asks for a huge page: one entry of the TLB for all folios in it, and one
//!   fault instead of 512.
//! * A [`FolioMemory`] owns its block: the buddy allocator hands a page to one block at a time. It
//!   keeps the arena alive. One beyond the budget has a chunk of its own instead.
//! * The bytes of a recycled block are what its last user left. They are not shown before they are
//!   overwritten; the uptodate state of folios takes care of that.
#![allow(unsafe_code, reason = "the memory of folios")]

use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use extant_sync::{Mutex, MutexGuard};
use extant_units::{PAGE_SHIFT, PAGE_SIZE};
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::buddy::Buddy;
use crate::config::MAX_ORDER;

/// The size of the huge pages that are asked for.
#[cfg(not(miri))]
const HUGE_PAGE: usize = 2 << 20;

/// The memory of all folios of a cache: never more than its budget.
pub(crate) struct Arena {
    chunk_order: u32,
    max_chunks: usize,
    state: Mutex<ArenaState>,
}

struct ArenaState {
    buddy: Buddy,
    /// By chunk number; `None` after a trim, until the number is used again.
    chunks: Vec<Option<Chunk>>,
    /// Chunks that exist, or are being made.
    live: usize,
    /// The most that ever existed at once.
    most: usize,
}

/// Memory from the host, aligned to its size: a power of two, a page at least.
struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a chunk is plain memory that it owns; nothing about it is tied to a thread.
unsafe impl Send for Chunk {}

#[cfg(not(miri))]
impl Chunk {
    fn new(bytes: usize) -> Option<Self> {
        let mut chunk = Self::map(bytes)?;
        if chunk.base.as_ptr().addr() % bytes != 0 {
            drop(chunk);
            chunk = Self::map(bytes.checked_mul(2)?)?.trimmed(bytes);
        }
        if bytes >= HUGE_PAGE {
            // A host without huge pages refuses, and nothing is lost.
            // SAFETY: the advice changes no byte of the chunk.
            let _ = unsafe { madvise(chunk.base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        Some(chunk)
    }

    fn map(bytes: usize) -> Option<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the host's choice touches no existing memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let base = NonNull::new(start.ok()?.cast())?;
        Some(Self { base, bytes })
    }

    /// The aligned `bytes` within a chunk of twice as many; the rest goes back to the host.
    fn trimmed(self, bytes: usize) -> Self {
        let skip = self.base.as_ptr().addr().wrapping_neg() % bytes;
        // SAFETY: `skip` is below `bytes`, so both cuts lie within the chunk.
        let (base, tail) = unsafe { (self.base.add(skip), self.base.add(skip + bytes)) };
        let head = Self {
            base: self.base,
            bytes: skip,
        };
        let tail = Self {
            base: tail,
            bytes: self.bytes - skip - bytes,
        };
        // Its parts own the memory now.
        std::mem::forget(self);
        drop((head, tail));
        Self { base, bytes }
    }
}

#[cfg(not(miri))]
impl Drop for Chunk {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: the range is mapped, this chunk is its only owner, and this is its last use.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a chunk is mapped");
    }
}

/// Under Miri, which supports no mappings.
#[cfg(miri)]
impl Chunk {
    fn new(bytes: usize) -> Option<Self> {
        let layout = std::alloc::Layout::from_size_align(bytes, bytes).ok()?;
        // SAFETY: the size is a page at least, so it is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Self { base, bytes })
    }
}

#[cfg(miri)]
impl Drop for Chunk {
    fn drop(&mut self) {
        if let Ok(layout) = std::alloc::Layout::from_size_align(self.bytes, self.bytes) {
            // SAFETY: `base` came from `alloc_zeroed` with this very layout and is freed once,
            // here.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) }
        }
    }
}

impl Arena {
    /// An arena of at most `budget` bytes, which serves blocks of `min_order` whatever the budget.
    /// Nothing is allocated yet.
    pub(crate) fn new(budget: u64, min_order: u32) -> Arc<Self> {
        let pages = (budget >> PAGE_SHIFT).max(64).max(8 << min_order);
        // At least eight chunks, so that one pinned block never blocks the whole budget.
        let chunk_order = (pages / 8).ilog2().min(MAX_ORDER);
        // Page numbers of the buddy allocator have 32 bits. A budget beyond that, or beyond the
        // address space, counts as that much.
        let max_chunks = usize::try_from(pages >> chunk_order)
            .unwrap_or(usize::MAX)
            .min(1 << (31 - MAX_ORDER));
        Arc::new(Self {
            chunk_order,
            max_chunks,
            state: Mutex::new(ArenaState {
                buddy: Buddy::new(chunk_order),
                chunks: Vec::new(),
                live: 0,
                most: 0,
            }),
        })
    }

    /// The largest order that [`Arena::allocate`] can serve.
    pub(crate) fn max_order(&self) -> u32 {
        self.chunk_order
    }

    /// Bytes handed out.
    pub(crate) fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        (((state.live as u64) << self.chunk_order) - state.buddy.free_pages()) << PAGE_SHIFT
    }

    /// Bytes taken from the host, handed out or free to be used again.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.state.lock().live as u64) << (self.chunk_order + PAGE_SHIFT)
    }

    /// The most bytes that were ever held.
    pub(crate) fn peak_bytes(&self) -> u64 {
        (self.state.lock().most as u64) << (self.chunk_order + PAGE_SHIFT)
    }

    /// The budget in bytes, rounded down to chunks.
    pub(crate) fn budget_bytes(&self) -> u64 {
        (self.max_chunks as u64) << (self.chunk_order + PAGE_SHIFT)
    }

    /// A block of `2^order` pages, or `None` when the budget or the host has none.
    pub(crate) fn allocate(self: &Arc<Self>, order: u32) -> Option<FolioMemory> {
        if order > self.chunk_order {
            return None;
        }
        let mut state = self.state.lock();
        let page = match state.buddy.allocate(order) {
            Some(page) => page,
            None => {
                state = self.grow(state)?;
                state.buddy.allocate(order)?
            }
        };
        let chunk = state.chunks[(page >> self.chunk_order) as usize].as_ref()?;
        let offset = (page as usize & ((1 << self.chunk_order) - 1)) << PAGE_SHIFT;
        debug_assert!(
            offset + (PAGE_SIZE << order) <= chunk.bytes,
            "inside of its chunk"
        );
        // SAFETY: the block lies within the chunk, so the offset stays inside of the allocation.
        let ptr = unsafe { chunk.base.add(offset) };
        Some(FolioMemory {
            ptr,
            page,
            order,
            owner: Owner::Arena(self.clone()),
        })
    }

    /// Adds a chunk, if the budget allows one more. Asks the host with the lock released, as a
    /// fault of a huge page takes long.
    fn grow<'a>(
        &'a self,
        mut state: MutexGuard<'a, ArenaState>,
    ) -> Option<MutexGuard<'a, ArenaState>> {
        if state.live >= self.max_chunks {
            return None;
        }
        state.live += 1;
        state.most = state.most.max(state.live);
        drop(state);
        let bytes = PAGE_SIZE << self.chunk_order;
        let chunk = Chunk::new(bytes);
        let mut state = self.state.lock();
        let Some(chunk) = chunk else {
            state.live -= 1;
            return None;
        };
        debug_assert!(state.live <= self.max_chunks, "within the budget");
        // A number that a trim left free, or the next.
        let free = state.chunks.iter().position(Option::is_none);
        let number = free.unwrap_or(state.chunks.len());
        // Bounded by `max_chunks`, which is below 2^22.
        let id = u32::try_from(number).ok()?;
        if free.is_none() {
            state.chunks.push(None);
        }
        state.chunks[number] = Some(chunk);
        state.buddy.add_chunk(id);
        Some(state)
    }

    /// Gives unused chunks back to the host until at most `limit` bytes are held. Returns the bytes
    /// given back.
    pub(crate) fn trim(&self, limit: u64) -> u64 {
        let mut freed = 0;
        let mut state = self.state.lock();
        while ((state.live as u64) << (self.chunk_order + PAGE_SHIFT)) > limit {
            let Some(number) = state.buddy.take_chunk() else {
                break;
            };
            state.chunks[number as usize] = None;
            state.live -= 1;
            freed += 1u64 << (self.chunk_order + PAGE_SHIFT);
        }
        freed
    }
}

/// An owned block of folio memory: `PAGE_SIZE << order` bytes, aligned to its size.
pub(crate) struct FolioMemory {
    ptr: NonNull<u8>,
    page: u32,
    order: u32,
    owner: Owner,
}

/// The owner of a block's memory.
enum Owner {
    Arena(Arc<Arena>),
    /// A chunk of its own, held for its drop.
    Alone {
        _chunk: Chunk,
    },
}

// SAFETY: the block is owned exclusively and is plain bytes; `&FolioMemory` only gives out `&[u8]`.
unsafe impl Send for FolioMemory {}
// SAFETY: as above; shared access reads only (a chunk of its own is not accessed at all).
unsafe impl Sync for FolioMemory {}

impl FolioMemory {
    pub(crate) fn order(&self) -> u32 {
        self.order
    }

    /// Zeroed memory of the same size that counts against no budget. Aborts, as any allocation
    /// does, if the host has none.
    pub(crate) fn beyond_budget(&self) -> Self {
        let bytes = PAGE_SIZE << self.order;
        let Some(chunk) = Chunk::new(bytes) else {
            // The layout is for the message of the abort alone: any will do.
            let layout = Layout::from_size_align(bytes, bytes);
            std::alloc::handle_alloc_error(layout.unwrap_or(Layout::new::<u8>()));
        };
        Self {
            ptr: chunk.base,
            page: 0,
            order: self.order,
            owner: Owner::Alone { _chunk: chunk },
        }
    }
}

impl Deref for FolioMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block's bytes are initialised, in one allocation that `owner` keeps alive,
        // and owned by `self`, so that no thread writes them while `&self` lives.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), PAGE_SIZE << self.order) }
    }
}

impl DerefMut for FolioMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), PAGE_SIZE << self.order) }
    }
}

impl Drop for FolioMemory {
    fn drop(&mut self) {
        if let Owner::Arena(arena) = &self.owner {
            arena.state.lock().buddy.free(self.page, self.order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let arena = Arena::new(1 << 20, 0);
        assert_eq!(arena.max_order(), 5);
        let mut blocks = Vec::new();
        for order in [0, 3, 5, 0, 1, 2, 4, 4] {
            let mut block = arena.allocate(order).unwrap();
            assert_eq!(block.as_ptr() as usize % block.len(), 0);
            let fill = u8::try_from(blocks.len()).unwrap();
            block.fill(fill);
            blocks.push(block);
        }
        for (i, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|&b| usize::from(b) == i));
        }
    }

    #[test]
    fn the_smallest_folio_is_served_whatever_the_budget() {
        let arena = Arena::new(0, 4);
        let all: Vec<_> = std::iter::from_fn(|| arena.allocate(4)).collect();
        assert_eq!((all.len(), arena.budget_bytes()), (8, 512 << 10));
    }

    #[test]
    fn chunks_are_zero_and_go_back_to_the_host() {
        let arena = Arena::new(64 << 20, 0);
        let mut block = arena.allocate(9).unwrap();
        assert_eq!(block.as_ptr() as usize % (2 << 20), 0);
        assert!(block.iter().all(|&byte| byte == 0));
        block.fill(7);
        drop(block);
        assert_eq!(arena.trim(0), 2 << 20);
        let block = arena.allocate(9).unwrap();
        assert!(block.iter().all(|&byte| byte == 0), "new memory");
        assert_eq!(arena.peak_bytes(), 2 << 20);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_chunk_is_aligned_wherever_the_host_puts_it() {
        let mut held = Vec::new();
        for shift in [12, 13, 15, 17, 21, 16, 21, 14, 20] {
            let bytes = 1 << shift;
            let chunk = Chunk::map(2 * bytes).unwrap().trimmed(bytes);
            assert_eq!(chunk.base.as_ptr() as usize % bytes, 0);
            held.push(chunk);
            held.push(Chunk::new(bytes).unwrap());
        }
        for chunk in &held {
            // SAFETY: the chunk is mapped, owns its range, and no other reference to it exists.
            let all = unsafe { std::slice::from_raw_parts_mut(chunk.base.as_ptr(), chunk.bytes) };
            assert!(
                all.iter().all(|&byte| byte == 0),
                "no chunk overlaps another"
            );
            all.fill(1);
        }
    }

    #[test]
    fn the_budget_holds_and_memory_comes_back() {
        let arena = Arena::new(1 << 20, 0);
        let all: Vec<_> = std::iter::from_fn(|| arena.allocate(0)).collect();
        assert_eq!(all.len(), 256);
        assert_eq!(arena.used_bytes(), 1 << 20);
        drop(all);
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.held_bytes(), 1 << 20);
        let kept = arena.allocate(5).unwrap();
        assert_eq!(arena.trim(0), (1 << 20) - (128 << 10));
        assert_eq!(arena.held_bytes(), 128 << 10);
        drop(kept);
        let all: Vec<_> = std::iter::from_fn(|| arena.allocate(5)).collect();
        assert_eq!(all.len(), 8);
    }
}
