//! The facts of an inode that later passes need.

use std::sync::atomic::{AtomicU32, Ordering};

use extant_disk::file_kind::FileKind;
use extant_units::Ino;

/// The facts of an inode in use.
pub(crate) struct Facts {
    pub(crate) ino: Ino,
    /// `None` for reserved inodes without a mode.
    pub(crate) kind: Option<FileKind>,
    pub(crate) links: u16,
    /// A directory with an index and one link: it may have had more subdirectories than a link
    /// count can express.
    pub(crate) overflown: bool,
    /// It holds the value of an attribute, and has no name.
    pub(crate) is_value: bool,
    /// The record lies on a bad block: nothing is known but that the number is not free.
    pub(crate) unreadable: bool,
    /// Entries, "." and ".." included, that lead to it, once the directories are walked.
    references: AtomicU32,
}

impl Facts {
    pub(crate) fn new(ino: Ino, links: u16) -> Self {
        Self {
            ino,
            kind: None,
            links,
            overflown: false,
            is_value: false,
            unreadable: false,
            references: AtomicU32::new(0),
        }
    }

    /// An inode whose record lies on a bad block.
    pub(crate) fn unreadable(ino: Ino) -> Self {
        Self {
            unreadable: true,
            ..Self::new(ino, 0)
        }
    }

    /// Counts an entry that leads to the inode.
    pub(crate) fn refer(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of entries that lead to the inode.
    pub(crate) fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed)
    }
}
