//! Whole trees, taken down entry by entry and compared.
//!
//! Attributes are read before contents, so that reading (which may move access times) does not
//! change what is recorded. An entry of every kind carries all that `cp -a` promises to keep;
//! what only two views of *one* image share (inode numbers, change times, block counts) is
//! compared on request.

mod compare;
mod entry;
mod take;

pub use crate::content::hash_file;
pub use compare::Compare;
pub use entry::{Entry, EntryKind, Nanos};

use std::collections::BTreeMap;
use std::path::PathBuf;

/// All entries below a root, by path relative to it; the root itself is `""`.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// Number of entries, the root included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is nothing at all, not even a root.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries with their paths, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&PathBuf, &Entry)> {
        self.entries.iter()
    }

    /// Leaves out the entry at `path` and everything below it (`lost+found`, mostly).
    #[must_use]
    pub fn without(mut self, path: &str) -> Tree {
        self.entries.retain(|p, _| !p.starts_with(path));
        self
    }
}

#[cfg(test)]
mod tests;
