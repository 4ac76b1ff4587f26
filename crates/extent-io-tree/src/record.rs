//! One record, and the name it has within its tree.

use std::fmt;

use crate::bits::Bits;
use crate::range::ByteRange;
use crate::waiters::Queue;

/// A record's slot. A slot is a record's for as long as that is in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(u32);

impl Id {
    /// No record.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The slot with this number. Far fewer than four thousand million fit into memory.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    pub(crate) fn new(slot: usize) -> Self {
        Self(slot as u32)
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Bytes with the same state bits: a slot of the tree, in use or free.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub(crate) start: u64,
    /// Inclusive.
    pub(crate) last: u64,
    /// State bits. Empty: the slot is free.
    pub(crate) bits: Bits,
    /// Its rank in the heap that the tree is, too.
    pub(crate) rank: u32,
    pub(crate) left: Id,
    pub(crate) right: Id,
    pub(crate) parent: Id,
    /// Neighbours by position. A free slot: `next` is the next free one.
    pub(crate) prev: Id,
    pub(crate) next: Id,
    /// Waiters for a lock bit of it to go.
    pub(crate) waiters: Queue,
}

impl Record {
    pub(crate) fn new(range: ByteRange, bits: Bits) -> Self {
        Self {
            start: range.start(),
            last: range.last(),
            bits,
            rank: 0,
            left: Id::NONE,
            right: Id::NONE,
            parent: Id::NONE,
            prev: Id::NONE,
            next: Id::NONE,
            waiters: Queue::EMPTY,
        }
    }

    /// The record's bytes.
    #[inline]
    pub(crate) fn range(&self) -> ByteRange {
        match ByteRange::new(self.start, self.last) {
            Some(range) => range,
            None => crate::report::io_tree_panic!("a record ends before it starts", self),
        }
    }

    /// Returns whether neighbours with the same bits may become one with it.
    #[inline]
    pub(crate) fn may_merge(bits: Bits) -> bool {
        !bits.intersects(Bits::LOCKS)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}] {:?}", self.start, self.last, self.bits)
    }
}
