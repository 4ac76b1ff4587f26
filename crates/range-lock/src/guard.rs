//! Guards of the EOF lock and of lock slots. The guards of records are the I/O tree's.

use std::fmt;
use std::sync::Arc;

use extant_extent_io_tree::RangeGuard;

use crate::range_lock::RangeLock;
use crate::slot_table::Slot;

/// Everything from a byte to infinity, locked until this is dropped.
#[must_use = "the end of the file is unlocked when this is dropped"]
#[derive(Debug)]
pub struct EofGuard<'a> {
    _held: HeldEof<'a>,
}

/// The two forms of the lock.
#[derive(Debug)]
enum HeldEof<'a> {
    Word(#[allow(dead_code, reason = "held")] EofWordGuard<'a>),
    Record(#[allow(dead_code, reason = "held")] RangeGuard<'a>),
}

impl<'a> EofGuard<'a> {
    #[inline]
    pub(crate) fn word(guard: EofWordGuard<'a>) -> Self {
        Self {
            _held: HeldEof::Word(guard),
        }
    }

    pub(crate) fn record(guard: RangeGuard<'a>) -> Self {
        Self {
            _held: HeldEof::Record(guard),
        }
    }
}

/// The published EOF word.
pub(crate) struct EofWordGuard<'a>(pub(crate) &'a RangeLock);

impl Drop for EofWordGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.withdraw_eof();
    }
}

impl fmt::Debug for EofWordGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the EOF word")
    }
}

/// An object that has a file's [`RangeLock`] and keeps it alive.
pub trait HasRangeLock {
    /// The lock; the same one for the life of the object.
    fn range_lock(&self) -> &RangeLock;
}

impl HasRangeLock for RangeLock {
    fn range_lock(&self) -> &RangeLock {
        self
    }
}

/// A lock slot, with a reference that keeps its table: for requests that end elsewhere than they
/// began. May be sent to another thread and dropped there.
#[must_use = "the range is unlocked when this is dropped"]
pub struct SlotGuard<O: HasRangeLock> {
    owner: Arc<O>,
    slot: Slot,
}

impl<O: HasRangeLock> SlotGuard<O> {
    #[inline]
    pub(crate) fn new(owner: Arc<O>, slot: Slot) -> Self {
        Self { owner, slot }
    }
}

impl<O: HasRangeLock> Drop for SlotGuard<O> {
    #[inline]
    fn drop(&mut self) {
        self.owner.range_lock().unlock_slot(self.slot);
    }
}

impl<O: HasRangeLock> fmt::Debug for SlotGuard<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.slot)
    }
}
