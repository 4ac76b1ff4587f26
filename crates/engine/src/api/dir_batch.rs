//! A part of a directory's listing.

use std::fmt;

use crate::dir::Batch;
use crate::types::Dirent;

/// The entries that one look at a directory gave: usually those of one block, in the order of their
/// positions. Borrows nothing from the directory.
pub struct DirBatch(Batch);

impl fmt::Debug for DirBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl DirBatch {
    pub(super) fn new(batch: Batch) -> DirBatch {
        DirBatch(batch)
    }

    /// The number of entries. None does not mean that nothing follows.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at `index`, `.` and `..` included.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Dirent<'_>> {
        self.0.get(index)
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Dirent<'_>> {
        self.0.iter()
    }

    /// The position at which the listing goes on; `None` if nothing follows.
    pub fn next_pos(&self) -> Option<u64> {
        self.0.next()
    }
}
