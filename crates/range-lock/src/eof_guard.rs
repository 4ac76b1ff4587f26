//! The guard of the EOF lock in both its forms. The guards of records are the I/O tree's.

use extant_extent_io_tree::RangeGuard;

use crate::eof::EofWordGuard;

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
