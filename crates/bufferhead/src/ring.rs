//! The ring of a folio's records.
//!
//! # Invariants
//! * As many records as the folio has blocks, linked in block order; the last leads back to the
//!   head.
//! * A record is reached from the head, one link after the other: each step depends on the load
//!   before it.
//! * If a folio is uptodate as a whole, so are all of its records.

use std::ops::Range;

use extant_pagecache::{FolioGuard, FolioPrivate};

use crate::counters::BufferCounters;
use crate::record::{BufferHead, BufferState};

/// The most blocks that are mapped at once: a folio has no more, and one unwritten extent can hold
/// them.
pub const MAX_RUN: u32 = 2048;

/// The position of a record in its ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link(u32);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    head: BufferHead,
    next: Link,
}

/// The records of one folio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    nodes: Box<[Node]>,
    block_shift: u32,
}

impl Ring {
    /// A ring of `blocks` records, at least one, without state.
    pub fn new(blocks: u32, block_shift: u32) -> Self {
        debug_assert!(blocks > 0);
        let node = |number: u32| Node {
            head: BufferHead::default(),
            next: Link(if number + 1 == blocks { 0 } else { number + 1 }),
        };
        Self {
            nodes: (0..blocks).map(node).collect(),
            block_shift,
        }
    }

    /// The folio's ring, taken out of it; made from the folio's own state if it has none yet.
    pub(crate) fn take(
        guard: &mut FolioGuard<'_>,
        block_shift: u32,
        counters: &BufferCounters,
    ) -> Box<Self> {
        guard.take_private::<Self>().unwrap_or_else(|| {
            counters.rings.bump();
            Box::new(Self::of(guard, block_shift))
        })
    }

    #[cold]
    fn of(guard: &FolioGuard<'_>, block_shift: u32) -> Self {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a folio has 2048 blocks at most"
        )]
        let blocks = (guard.folio().len() >> block_shift) as u32;
        debug_assert!(blocks <= MAX_RUN, "{blocks} blocks in a folio");
        let mut ring = Self::new(blocks, block_shift);
        let size = 1usize << block_shift;
        let mut at = 0;
        ring.each(|head| {
            if guard.is_uptodate(at..at + size) {
                head.set(BufferState::UPTODATE);
            }
            if guard.is_dirty(at..at + size) {
                head.set(BufferState::DIRTY);
            }
            at += size;
        });
        ring
    }

    /// The link to the first record.
    #[inline]
    pub(crate) fn head(&self) -> Link {
        Link(0)
    }

    /// The record at `link`, and the link to the next.
    #[inline]
    pub(crate) fn follow(&mut self, link: Link) -> (&mut BufferHead, Link) {
        let node = &mut self.nodes[link.0 as usize];
        (&mut node.head, node.next)
    }

    /// The block size in bytes.
    #[inline]
    pub(crate) fn block(&self) -> usize {
        1 << self.block_shift
    }

    /// Calls `each` for every record, from the head on; returns the number of records.
    pub(crate) fn each(&mut self, mut each: impl FnMut(&mut BufferHead)) -> u64 {
        let mut visits = 0;
        let mut link = self.head();
        loop {
            let (head, next) = self.follow(link);
            each(head);
            visits += 1;
            link = next;
            if link == self.head() {
                return visits;
            }
        }
    }

    /// Calls `each` for the records of the blocks that `bytes` touches, with each block's first
    /// byte. The records before them are visited on the way. Returns the number of records visited.
    pub(crate) fn each_in(
        &mut self,
        bytes: Range<usize>,
        mut each: impl FnMut(usize, &mut BufferHead),
    ) -> u64 {
        let mut visits = 0;
        let mut link = self.head();
        let mut at = 0;
        let size = self.block();
        while at < bytes.end {
            let (head, next) = self.follow(link);
            visits += 1;
            if at + size > bytes.start {
                each(at, head);
            }
            at += size;
            link = next;
            if link == self.head() {
                break;
            }
        }
        visits
    }

    /// Every record in order, for tests and reports.
    pub fn records(&self) -> impl Iterator<Item = &BufferHead> {
        self.nodes.iter().map(|node| &node.head)
    }
}

impl FolioPrivate for Ring {
    fn uptodate(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.set(BufferState::UPTODATE));
    }

    fn discarded(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.clear(BufferState::UPTODATE));
    }

    fn dirtied(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.set(BufferState::DIRTY));
    }

    fn cleaned(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.clear(BufferState::DIRTY));
    }

    fn unmapped(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.unmap());
    }
}
