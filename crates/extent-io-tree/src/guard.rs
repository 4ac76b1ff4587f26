//! Locked ranges as values: a range is unlocked when its guard is dropped.

use std::fmt;
use std::sync::Arc;

use crate::bits::Bits;
use crate::hooks::{Hooks, NoHooks};
use crate::range::ByteRange;
use crate::record::Id;
use crate::tree::IoTree;

/// A guard's lock.
#[derive(Clone, Copy)]
struct Held {
    range: ByteRange,
    bits: Bits,
    /// The record of the first byte when it was locked: saves a search.
    first: Id,
}

/// A locked range of a tree that is borrowed. Belongs to no thread: may be sent, and dropped
/// elsewhere.
#[must_use = "the range is unlocked when this is dropped"]
pub struct RangeGuard<'a, H: Hooks = NoHooks> {
    tree: &'a IoTree<H>,
    held: Held,
}

/// A locked range, with a reference to its tree: for work that ends elsewhere than it began.
#[must_use = "the range is unlocked when this is dropped"]
pub struct OwnedRangeGuard<H: Hooks = NoHooks> {
    tree: Arc<IoTree<H>>,
    held: Held,
}

impl<H: Hooks> IoTree<H> {
    /// Sets the lock bits `bits` all over `range`; waits until no byte of it has one of them. Holds
    /// nothing while waiting.
    ///
    /// A thread that holds a range must not wait for another of the same tree with the same bits:
    /// two that do can wait for each other. To hold several, as with many requests in flight,
    /// [try](IoTree::try_lock), and release some if that fails.
    #[inline]
    pub fn lock(&self, range: ByteRange, bits: Bits) -> RangeGuard<'_, H> {
        let first = self.take(range, bits);
        RangeGuard {
            tree: self,
            held: Held { range, bits, first },
        }
    }

    /// [`IoTree::lock`], unless it would have to wait. Also refuses what a thread that has lost
    /// many times waits for, so that it gets its turn.
    #[inline]
    pub fn try_lock(&self, range: ByteRange, bits: Bits) -> Option<RangeGuard<'_, H>> {
        let first = self.try_take(range, bits)?;
        Some(RangeGuard {
            tree: self,
            held: Held { range, bits, first },
        })
    }

    /// [`IoTree::try_lock`], for a guard that owns a reference to the tree.
    pub fn try_lock_owned(
        self: &Arc<Self>,
        range: ByteRange,
        bits: Bits,
    ) -> Option<OwnedRangeGuard<H>> {
        let first = self.try_take(range, bits)?;
        Some(OwnedRangeGuard {
            tree: Arc::clone(self),
            held: Held { range, bits, first },
        })
    }
}

macro_rules! guard {
    ($guard:ty) => {
        impl<H: Hooks> Drop for $guard {
            #[inline]
            fn drop(&mut self) {
                let Held { range, bits, first } = self.held;
                self.tree.release(range, bits, first);
            }
        }

        impl<H: Hooks> $guard {
            /// Unlocks the bytes before `at`, and keeps the rest. Does nothing if `at` is not
            /// behind the first byte, or not in the range.
            pub fn release_before(&mut self, at: u64) {
                let Held { range, bits, first } = self.held;
                let front = at
                    .checked_sub(1)
                    .and_then(|last| ByteRange::new(range.start(), last));
                if let (Some(front), Some(rest)) = (front, ByteRange::new(at, range.last())) {
                    self.tree.release(front, bits, first);
                    self.held.range = rest;
                }
            }

            /// The locked range.
            pub fn range(&self) -> ByteRange {
                self.held.range
            }
        }

        impl<H: Hooks> fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?} of {}", self.held.bits, self.held.range)
            }
        }
    };
}

guard!(RangeGuard<'_, H>);
guard!(OwnedRangeGuard<H>);

impl<H: Hooks> RangeGuard<'_, H> {
    /// [`RangeGuard::release_before`] of this guard and of `other`. If both have locked the same
    /// bytes of one tree, with different bits, that is one clear: it trims their record.
    pub fn release_both_before(&mut self, other: &mut RangeGuard<'_, H>, at: u64) {
        if !std::ptr::eq(self.tree, other.tree) || self.held.range != other.held.range {
            other.release_before(at);
            self.release_before(at);
            return;
        }
        let own = self.held.bits;
        self.held.bits |= other.held.bits;
        self.release_before(at);
        self.held.bits = own;
        other.held.range = self.held.range;
    }
}
