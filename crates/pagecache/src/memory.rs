//! Folio memory: contiguous, naturally aligned, recycled. The crate's only unsafe code.
//!
//! # Invariants
//! * A chunk is one heap allocation of `PAGE_SIZE << chunk_order` bytes, aligned to its size, zeroed once
//!   when it is made; its bytes are initialised from then on. It is freed only by
//!   [`Arena::trim`] while no block of it is handed out, or when the arena is dropped.
//! * A [`FolioMemory`] owns its block: the buddy allocator hands a page to one block at a time. It keeps the
//!   arena alive. One beyond the budget has a chunk of its own instead.
//! * The bytes of a recycled block are whatever its last user left. Nobody may show them before they
//!   are overwritten; the per-block uptodate state of folios takes care of that.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use extant_units::{PAGE_SHIFT, PAGE_SIZE};
use parking_lot::{Mutex, MutexGuard};

use crate::MAX_ORDER;
use crate::buddy::Buddy;

/// The memory of all folios of a cache: never more than its budget.
pub(crate) struct Arena {
    chunk_order: u32,
    max_chunks: usize,
    state: Mutex<State>,
}

struct State {
    buddy: Buddy,
    /// By chunk number; `None` after a trim, until the number is used again.
    chunks: Vec<Option<Chunk>>,
    /// Chunks that are there, or being made.
    live: usize,
}

struct Chunk {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a chunk is plain memory that it owns; nothing about it is tied to a thread.
unsafe impl Send for Chunk {}

impl Chunk {
    fn new(layout: Layout) -> Option<Self> {
        // SAFETY: the layout's size is a page at least, so it is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        NonNull::new(base).map(|base| Self { base, layout })
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this very layout and is freed once, here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl Arena {
    /// An arena of at most `budget` bytes. Nothing is allocated yet.
    pub(crate) fn new(budget: u64) -> Arc<Self> {
        let pages = (budget >> PAGE_SHIFT).max(64);
        // At least eight chunks, so that one pinned block never blocks the whole budget.
        let chunk_order = (pages / 8).ilog2().min(MAX_ORDER);
        let max_chunks = usize::try_from(pages >> chunk_order)
            .unwrap_or(usize::MAX)
            .min(1 << (31 - MAX_ORDER));
        Arc::new(Self {
            chunk_order,
            max_chunks,
            state: Mutex::new(State {
                buddy: Buddy::new(chunk_order),
                chunks: Vec::new(),
                live: 0,
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

    /// Bytes taken from the host, handed out or waiting to be used again.
    pub(crate) fn held_bytes(&self) -> u64 {
        (self.state.lock().live as u64) << (self.chunk_order + PAGE_SHIFT)
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
        // SAFETY: the block lies within the chunk, so the offset stays inside of the allocation.
        let ptr = unsafe { chunk.base.add(offset) };
        Some(FolioMemory {
            ptr,
            page,
            order,
            owner: Owner::Arena(self.clone()),
        })
    }

    /// Adds a chunk, if the budget allows one more. The host is asked with the lock released: it may take its time.
    fn grow<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        if state.live >= self.max_chunks {
            return None;
        }
        state.live += 1;
        drop(state);
        let bytes = PAGE_SIZE << self.chunk_order;
        let layout = Layout::from_size_align(bytes, bytes).ok();
        let chunk = layout.and_then(Chunk::new);
        let mut state = self.state.lock();
        let Some(chunk) = chunk else {
            state.live -= 1;
            return None;
        };
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

    /// Gives unused chunks back to the host until at most `keep` bytes are held; returns the bytes given back.
    pub(crate) fn trim(&self, keep: u64) -> u64 {
        let mut freed = 0;
        let mut state = self.state.lock();
        while ((state.live as u64) << (self.chunk_order + PAGE_SHIFT)) > keep {
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

/// What keeps a block's memory alive.
enum Owner {
    Arena(Arc<Arena>),
    /// Held for its drop.
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

    /// Zeroed memory of the same size that counts against no budget. Aborts, as any allocation does, if the host has none.
    pub(crate) fn beyond_budget(&self) -> Self {
        let bytes = PAGE_SIZE << self.order;
        let layout = Layout::from_size_align(bytes, bytes);
        let Some(chunk) = layout.as_ref().ok().copied().and_then(Chunk::new) else {
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
        // SAFETY: the block's bytes are initialised, in one allocation that `owner` keeps alive, and owned by
        // `self`, so that nobody writes them while `&self` lives.
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
        let arena = Arena::new(1 << 20);
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
    fn the_budget_holds_and_memory_comes_back() {
        let arena = Arena::new(1 << 20);
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
