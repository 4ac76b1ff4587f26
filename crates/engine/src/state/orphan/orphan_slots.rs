//! The slots of the orphan file in memory: its blocks, and how many slots of each are free.

use std::hash::RandomState;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_disk::csum::Crc32c;
use extant_units::{Ino, Pblk};

/// The orphan file's blocks.
pub(crate) struct OrphanFile {
    pub(crate) ino: Ino,
    pub(crate) seed: Option<Crc32c>,
    pub(crate) blocks: Vec<OrphanBlock>,
    /// Slots of a block.
    pub(crate) slots: usize,
    pub(crate) hasher: RandomState,
}

/// A block of the file.
pub(crate) struct OrphanBlock {
    pub(crate) pblk: Pblk,
    /// Slots that may be claimed.
    pub(crate) free: AtomicUsize,
    /// Where the next search begins.
    pub(crate) hint: AtomicUsize,
}

impl OrphanFile {
    /// Whether no slot is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks
            .iter()
            .all(|block| block.free.load(Ordering::Acquire) == self.slots)
    }

    /// Slots of all blocks.
    #[cfg(test)]
    pub(crate) fn slots_in_all(&self) -> usize {
        self.slots * self.blocks.len()
    }

    /// The file's first block.
    #[cfg(test)]
    pub(crate) fn first_block(&self) -> Pblk {
        self.blocks.first().map_or(Pblk::ZERO, |block| block.pblk)
    }
}
