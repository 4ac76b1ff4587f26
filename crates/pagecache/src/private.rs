//! State that a data path attaches to a folio.
//!
//! The folio's bitmaps say which blocks are uptodate and dirty, whichever path asks. A path that
//! needs more, such as a record per block, attaches it to the folio as [`FolioPrivate`], like
//! `folio->private` in Linux.
//!
//! # Concurrency
//! The private state lies under the folio lock. A path takes it out of the folio while it works,
//! and puts it back before it unlocks the folio. Changes by other paths at other times are reported
//! to the private state by the calls of this trait.

use std::any::Any;
use std::ops::Range;

/// A data path's own state of one folio. The folio guard makes all calls, so the folio is locked
/// exclusively; ranges are bytes of the folio.
pub trait FolioPrivate: Any + Send + Sync {
    /// The blocks that `bytes` touches became uptodate.
    fn uptodate(&mut self, bytes: Range<usize>);
    /// The content of the blocks of `bytes`, whole ones, is gone; none of them is dirty.
    fn discarded(&mut self, bytes: Range<usize>);
    /// The blocks that `bytes` touches became dirty.
    fn dirtied(&mut self, bytes: Range<usize>);
    /// The blocks of `bytes`, whole ones, became clean: written by another path, or unwanted.
    fn cleaned(&mut self, bytes: Range<usize>);
    /// The blocks that `bytes` touches may have lost their space on the device.
    fn unmapped(&mut self, bytes: Range<usize>);
}
