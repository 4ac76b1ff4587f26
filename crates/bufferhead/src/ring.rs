//! The ring of a folio's records.
//!
//! # Invariants
//! * As many records as the folio has blocks, linked in block order; the last leads back to the head.
//! * A record is reached from the head, one link after the other: each step depends on the load before it.
//! * A folio that is uptodate as a whole has no record that is not.

use std::ops::Range;

use extant_pagecache::{FolioGuard, FolioPrivate};

use crate::record::{BufferHead, BufferState};
use crate::stats::BufferCounters;

/// A place in a ring.
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
    /// A ring of `blocks` records, at least one, that know nothing.
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
        stats: &BufferCounters,
    ) -> Box<Self> {
        guard.take_private::<Self>().unwrap_or_else(|| {
            stats.rings.bump();
            Box::new(Self::of(guard, block_shift))
        })
    }

    #[cold]
    fn of(guard: &FolioGuard<'_>, block_shift: u32) -> Self {
        let blocks = guard.folio().len() >> block_shift;
        let mut ring = Self::new(u32::try_from(blocks).unwrap_or(u32::MAX), block_shift);
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

    /// The first record's place.
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

    /// Calls `each` for every record, from the head on; returns how many that were.
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

    /// Calls `each` for the records of the blocks that `bytes` touches, with each block's first byte; the records before
    /// are visited on the way. Returns how many were visited.
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

    fn dirtied(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.set(BufferState::DIRTY));
    }

    fn cleaned(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.clear(BufferState::DIRTY));
    }

    fn unmapped(&mut self, bytes: Range<usize>) {
        self.each_in(bytes, |_, head| head.forget_place());
    }
}
