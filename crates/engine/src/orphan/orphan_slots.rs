//! The slots of the orphan file in memory: its blocks, and how many slots of each are free.

use std::hash::RandomState;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_disk::csum::Crc32c;
use extant_units::{Ino, Pblk};

/// The orphan file's blocks.
pub(super) struct OrphanFile {
    pub(super) ino: Ino,
    pub(super) seed: Option<Crc32c>,
    pub(super) blocks: Vec<OrphanBlock>,
    /// Slots of a block.
    pub(super) slots: usize,
    pub(super) hasher: RandomState,
}

/// A block of the file.
pub(super) struct OrphanBlock {
    pub(super) pblk: Pblk,
    /// Slots that may be claimed.
    pub(super) free: AtomicUsize,
    /// Where the next search begins.
    pub(super) hint: AtomicUsize,
}

impl OrphanFile {
    /// Whether no slot is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks
            .iter()
            .all(|block| block.free.load(Ordering::Acquire) == self.slots)
    }

    /// Slots of all blocks.
    #[cfg(test)]
    pub(super) fn slots_in_all(&self) -> usize {
        self.slots * self.blocks.len()
    }

    /// The file's first block.
    #[cfg(test)]
    pub(super) fn first_block(&self) -> Pblk {
        self.blocks.first().map_or(Pblk::ZERO, |block| block.pblk)
    }
}
