//! A range of a file that is locked against direct writes.

use std::ops::Range;

use extant_units::Pos;

/// A lock of any type, held until it is dropped.
trait Lock {}

impl<T> Lock for T {}

/// A range that no thread writes directly until this is dropped.
pub struct FillGuard<'a> {
    range: Range<Pos>,
    _lock: Option<Box<dyn Lock + 'a>>,
}

impl<'a> FillGuard<'a> {
    /// `range`, for as long as `lock` lives.
    pub fn new(range: Range<Pos>, lock: impl Sized + 'a) -> Self {
        Self {
            range,
            _lock: Some(Box::new(lock)),
        }
    }

    /// `range` of a file that is never written directly.
    pub(crate) fn without_lock(range: Range<Pos>) -> Self {
        Self { range, _lock: None }
    }

    /// The locked range.
    pub(crate) fn range(&self) -> &Range<Pos> {
        &self.range
    }
}
