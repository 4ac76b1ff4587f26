//! The sizes of a volume that a grow changes while it is mounted.
//!
//! All copies of one mount's [`crate::state::volume::Layout`] share one [`GrowingSize`].
//!
//! # Invariants
//! - The three numbers only grow.
//! - The last block is raised before the number of inodes, and that before the number of groups,
//!   each with release; reads acquire. So a thread that sees a group sees its blocks, its inodes,
//!   its cell in the group table and its system zones. A thread that sees an inode finds its cell
//!   and a record of zeros.

use extant_sync::atomic::Ordering::{Acquire, Release};
use extant_sync::atomic::{AtomicU32, AtomicU64};

use extant_units::Pblk;

/// One past the last block, groups, inodes.
#[derive(Debug)]
pub(crate) struct GrowingSize {
    end: AtomicU64,
    groups: AtomicU32,
    inodes: AtomicU32,
}

impl GrowingSize {
    pub(crate) fn new(end: Pblk, groups: u32, inodes: u32) -> Self {
        Self {
            end: AtomicU64::new(end.get()),
            groups: AtomicU32::new(groups),
            inodes: AtomicU32::new(inodes),
        }
    }

    #[inline]
    pub(crate) fn end(&self) -> Pblk {
        Pblk::new(self.end.load(Acquire))
    }

    #[inline]
    pub(crate) fn groups(&self) -> u32 {
        self.groups.load(Acquire)
    }

    #[inline]
    pub(crate) fn inodes(&self) -> u32 {
        self.inodes.load(Acquire)
    }

    /// Moves the end of the last group.
    pub(crate) fn raise_end(&self, end: Pblk) {
        debug_assert!(end >= self.end(), "volumes only grow");
        self.end.store(end.get(), Release);
    }

    /// Publishes groups whose cells and zones are there.
    pub(crate) fn raise_groups(&self, groups: u32, inodes: u32) {
        debug_assert!(groups >= self.groups(), "volumes only grow");
        self.inodes.store(inodes, Release);
        self.groups.store(groups, Release);
    }
}
