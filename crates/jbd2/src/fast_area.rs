//! The blocks at the end of the journal that fast commits take, one after the other.
//!
//! # Invariants
//! The fast commits of one transaction follow each other from the first block on, and none is
//! overwritten. The first one of a later transaction takes the first block again: by then the
//! earlier transaction is in the log, so what is left of its fast commits counts for nothing. That
//! block is cleared before: e2fsck takes a first fast commit with another number than the next for
//! damage of the whole log.

use std::ops::Range;

use extant_units::Tid;

/// The area, and how much of it the running transaction has taken.
pub(crate) struct FastArea {
    blocks: Range<u32>,
    tid: Option<Tid>,
    used: u32,
}

impl FastArea {
    /// The area of these blocks of the journal, but for the last: behind a fast commit there, Linux
    /// and e2fsck look for a next one past the journal, and refuse the log. One block or none have
    /// no room for any fast commit.
    pub(crate) fn new(blocks: Range<u32>) -> Self {
        let end = blocks.end.saturating_sub(1).max(blocks.start);
        Self {
            blocks: blocks.start..end,
            tid: None,
            used: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns whether the next fast commit of `tid` is its first one.
    pub(crate) fn is_first_of(&self, tid: Tid) -> bool {
        !self.has_blocks_of(tid)
    }

    /// The first block of the journal that it has.
    pub(crate) fn first_block(&self) -> Option<u32> {
        (!self.blocks.is_empty()).then_some(self.blocks.start)
    }

    /// The block that stays unused.
    pub(crate) fn unused_block(&self) -> Option<u32> {
        (!self.blocks.is_empty()).then_some(self.blocks.end)
    }

    /// Returns whether `tid` has taken blocks.
    pub(crate) fn has_blocks_of(&self, tid: Tid) -> bool {
        self.tid == Some(tid) && self.used > 0
    }

    /// Failpoint `fast_area_wraps`: forgets what was taken.
    pub(crate) fn rewind(&mut self) {
        self.used = 0;
    }

    /// Takes the next `count` blocks for a fast commit of `tid`. Returns the first of them; `None`
    /// if so many are not left.
    pub(crate) fn take(&mut self, tid: Tid, count: usize) -> Option<u32> {
        if self.tid != Some(tid) {
            (self.tid, self.used) = (Some(tid), 0);
        }
        let at = self.blocks.start.checked_add(self.used)?;
        let end = at.checked_add(u32::try_from(count).ok()?)?;
        let fits = end <= self.blocks.end;
        fits.then(|| {
            self.used = end - self.blocks.start;
            at
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_transaction_begins_at_the_first_block_and_ends_at_the_last() {
        let mut area = FastArea::new(10..15);
        let (one, two) = (Tid::new(1), Tid::new(2));
        assert!(!area.is_empty() && area.is_first_of(one));
        assert_eq!(area.take(one, 1), Some(10));
        assert!(!area.is_first_of(one) && area.is_first_of(two));
        assert_eq!(area.take(one, 4), None);
        assert_eq!(area.take(one, 3), Some(11));
        assert_eq!(area.take(one, 1), None);
        assert_eq!(area.take(two, 5), None);
        assert!(area.is_first_of(two), "none was written");
        assert_eq!(area.take(two, 4), Some(10));
        assert_eq!(area.take(two, usize::MAX), None);
        assert_eq!(
            (area.first_block(), area.unused_block()),
            (Some(10), Some(14))
        );
        for none in [0..0, 3..4] {
            let mut none = FastArea::new(none);
            assert!(none.is_empty());
            assert_eq!((none.take(one, 1), none.first_block()), (None, None));
        }
    }
}
