//! What a buffered path keeps beside a folio's own state.
//!
//! The folio's bitmaps say which blocks are uptodate and dirty, whoever asks. A path that needs more (a record per block, say)
//! attaches it to the folio as [`FolioPrivate`]. While it works it takes its part out of the folio; changes made by others
//! meanwhile are impossible, as the folio is locked. Changes made by others at other times are told to it here.

use std::any::Any;
use std::ops::Range;

use crate::folio::FolioGuard;

/// A path's own state of one folio. All calls come with the folio locked exclusively; ranges are bytes of the folio.
pub trait FolioPrivate: Any + Send + Sync {
    /// The blocks that `bytes` touches became uptodate.
    fn uptodate(&mut self, bytes: Range<usize>);
    /// The blocks that `bytes` touches became dirty.
    fn dirtied(&mut self, bytes: Range<usize>);
    /// The blocks of `bytes`, whole ones, are clean: written by another path, or not wanted any more.
    fn cleaned(&mut self, bytes: Range<usize>);
    /// The blocks that `bytes` touches may have lost their place on the device.
    fn unmapped(&mut self, bytes: Range<usize>);
}

impl FolioGuard<'_> {
    /// Takes the folio's private state out; `None` if there is none of this type.
    #[inline]
    pub fn take_private<T: FolioPrivate>(&mut self) -> Option<Box<T>> {
        let private: Box<dyn Any> = self.private_slot().take()?;
        private.downcast().ok()
    }

    /// Attaches private state, in the place of any other.
    #[inline]
    pub fn put_private<T: FolioPrivate>(&mut self, private: Box<T>) {
        *self.private_slot() = Some(private);
    }
}
