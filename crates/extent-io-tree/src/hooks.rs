//! Calls by which the owner of a tree maintains accounts.

use crate::bits::Bits;
use crate::range::ByteRange;

/// Accounts beside a tree.
///
/// Called under the tree's lock, in the order of what happens, with the ranges of records as
/// they are *before* it happens. They must not block, allocate, or call the tree. Whether a
/// clear trims a record or cuts it in two and removes a part makes no difference to them: the
/// owner hears of the split, then of the clear of the part.
pub trait Hooks: Send {
    /// `range`, whose bits are `had`, gets those of `bits` it does not have. `control` are the
    /// call's control bits.
    #[inline]
    fn set(&mut self, range: ByteRange, had: Bits, bits: Bits, control: Bits) {
        let _ = (range, had, bits, control);
    }

    /// `range`, whose bits are `had`, loses those of `bits` it has.
    #[inline]
    fn clear(&mut self, range: ByteRange, had: Bits, bits: Bits, control: Bits) {
        let _ = (range, had, bits, control);
    }

    /// `range` becomes two, the second of which begins at `at`.
    #[inline]
    fn split(&mut self, range: ByteRange, bits: Bits, at: u64) {
        let _ = (range, bits, at);
    }

    /// `left` and `right`, which are neighbours, become one.
    #[inline]
    fn merge(&mut self, left: ByteRange, right: ByteRange, bits: Bits) {
        let _ = (left, right, bits);
    }
}

/// No accounts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
