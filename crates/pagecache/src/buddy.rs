//! A buddy allocator over page numbers: pure bookkeeping, no memory.
//!
//! Pages come in chunks of `2^chunk_order`. Blocks of any order up to that are split off and merged
//! again, so that a block is always aligned to its size within its chunk. Each operation takes time
//! in the number of orders. Free blocks of one order form a doubly linked list through `pages`.
//!
//! # Invariants
//! * A page is in one allocated block, in one free block, or in a chunk that was taken out.
//! * Two free buddies are merged: no list has both.

/// The end of a list.
const NIL: u32 = u32::MAX;
/// A page that heads no free block.
const USED: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Page {
    next: u32,
    prev: u32,
    /// The order of the free block that begins here, or [`USED`].
    free_order: u8,
}

pub(crate) struct Buddy {
    chunk_order: u32,
    pages: Vec<Page>,
    heads: Vec<u32>,
    free_pages: u64,
}

impl Buddy {
    pub(crate) fn new(chunk_order: u32) -> Self {
        Self {
            chunk_order,
            pages: Vec::new(),
            heads: vec![NIL; chunk_order as usize + 1],
            free_pages: 0,
        }
    }

    /// Pages that are in no allocated block.
    pub(crate) fn free_pages(&self) -> u64 {
        self.free_pages
    }

    /// Makes the pages of chunk number `chunk` available. Chunks are numbered from zero without
    /// gaps; one that was taken out with [`Buddy::take_chunk`] may come back.
    pub(crate) fn add_chunk(&mut self, chunk: u32) {
        let first = chunk << self.chunk_order;
        let end = (first as usize) + (1 << self.chunk_order);
        if self.pages.len() < end {
            let used = Page {
                next: NIL,
                prev: NIL,
                free_order: USED,
            };
            self.pages.resize(end, used);
        }
        self.free_pages += 1 << self.chunk_order;
        self.push(first, self.chunk_order);
    }

    /// Takes a whole free chunk out; returns its number.
    pub(crate) fn take_chunk(&mut self) -> Option<u32> {
        self.allocate(self.chunk_order)
            .map(|page| page >> self.chunk_order)
    }

    /// Takes a block of `2^order` pages; returns its first page.
    pub(crate) fn allocate(&mut self, order: u32) -> Option<u32> {
        let mut from = (order..=self.chunk_order).find(|&o| self.heads[o as usize] != NIL)?;
        let page = self.heads[from as usize];
        self.unlink(page, from);
        while from > order {
            from -= 1;
            self.push(page + (1 << from), from);
        }
        debug_assert_eq!(page % (1 << order), 0, "a block is aligned to its size");
        self.free_pages -= 1 << order;
        Some(page)
    }

    /// Gives back a block that [`Buddy::allocate`] returned.
    pub(crate) fn free(&mut self, mut page: u32, mut order: u32) {
        debug_assert!(
            order <= self.chunk_order && page.is_multiple_of(1 << order),
            "{page}+{order} came from `allocate`"
        );
        debug_assert_eq!(
            self.pages[page as usize].free_order, USED,
            "page {page} is freed once"
        );
        self.free_pages += 1 << order;
        while order < self.chunk_order {
            let buddy = page ^ (1 << order);
            if u32::from(self.pages[buddy as usize].free_order) != order {
                break;
            }
            self.unlink(buddy, order);
            page &= !(1 << order);
            order += 1;
        }
        self.push(page, order);
    }

    fn push(&mut self, page: u32, order: u32) {
        let next = self.heads[order as usize];
        #[allow(clippy::cast_possible_truncation, reason = "orders are small")]
        let free_order = order as u8;
        self.pages[page as usize] = Page {
            next,
            prev: NIL,
            free_order,
        };
        if next != NIL {
            self.pages[next as usize].prev = page;
        }
        self.heads[order as usize] = page;
    }

    fn unlink(&mut self, page: u32, order: u32) {
        let Page { next, prev, .. } = self.pages[page as usize];
        self.pages[page as usize].free_order = USED;
        if prev == NIL {
            self.heads[order as usize] = next;
        } else {
            self.pages[prev as usize].next = next;
        }
        if next != NIL {
            self.pages[next as usize].prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_disjoint_and_merge_again() {
        let mut buddy = Buddy::new(9);
        for chunk in 0..4 {
            buddy.add_chunk(chunk);
        }
        let mut owned: Vec<(u32, u32)> = Vec::new();
        let mut map = vec![false; 4 << 9];
        let mut state = 88_172_645_463_325_252u64;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let order = u32::try_from((state >> 8) % 10).unwrap();
            if !state.is_multiple_of(3) {
                if let Some(page) = buddy.allocate(order) {
                    assert_eq!(page % (1 << order), 0);
                    for used in &mut map[page as usize..][..1 << order] {
                        assert!(!*used, "handed out twice");
                        *used = true;
                    }
                    owned.push((page, order));
                }
            } else if !owned.is_empty() {
                let at = usize::try_from(state >> 20).unwrap() % owned.len();
                let (page, order) = owned.swap_remove(at);
                map[page as usize..][..1 << order].fill(false);
                buddy.free(page, order);
            }
            let free = map.iter().filter(|used| !**used).count();
            assert_eq!(buddy.free_pages(), free as u64);
        }
        for (page, order) in owned {
            buddy.free(page, order);
        }
        let whole = std::iter::from_fn(|| buddy.take_chunk()).count();
        assert_eq!(whole, 4, "everything merged");
    }
}
