//! A range of a file that is locked against direct writes.

use std::ops::Range;

use extant_units::Pos;

/// Whatever keeps a range locked until it is dropped.
trait Keeper {}

impl<T> Keeper for T {}

/// A range that no thread writes directly until this is dropped.
pub struct FillGuard<'a> {
    range: Range<Pos>,
    _keeper: Option<Box<dyn Keeper + 'a>>,
}

impl<'a> FillGuard<'a> {
    /// `range`, for as long as `keeper` lives.
    pub fn new(range: Range<Pos>, keeper: impl Sized + 'a) -> Self {
        Self {
            range,
            _keeper: Some(Box::new(keeper)),
        }
    }

    /// `range` of a file that is never written directly.
    pub(crate) fn without_lock(range: Range<Pos>) -> Self {
        Self {
            range,
            _keeper: None,
        }
    }

    /// The locked range.
    pub(crate) fn range(&self) -> &Range<Pos> {
        &self.range
    }
}
