//! The state of one group.

use extant_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use extant_disk::group_desc::GroupDesc;
use extant_units::Pblk;

use super::free_map::FreeMap;
use crate::state::volume::Layout;

/// Facts that searches read without the lock. Exact while the lock is free, except for `longest`.
#[derive(Default, Debug)]
pub(crate) struct Hints {
    /// Clusters that may be handed out now.
    pub(crate) usable: AtomicU32,
    /// At least the length of the longest usable run.
    pub(crate) longest: AtomicU32,
    /// The free map is in memory.
    pub(crate) loaded: AtomicBool,
    /// Free inodes.
    pub(crate) free_inodes: AtomicU32,
    /// Directories.
    pub(crate) used_dirs: AtomicU32,
}

/// Free space of groups that were taken out of use, until the allocators have counted it.
#[derive(Default, Debug)]
pub(crate) struct LostSpace {
    /// Clusters.
    pub(crate) clusters: AtomicU64,
    /// Inodes.
    pub(crate) inodes: AtomicU64,
}

/// One group's changing state.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// The descriptor.
    pub(crate) desc: GroupDesc,
    /// The free map: loaded when the first block is allocated or freed.
    pub(crate) map: Option<FreeMap>,
    /// The device was told of all free runs of at least this many clusters.
    pub(crate) trimmed: Option<u32>,
    /// No inode with a lower index is free.
    pub(crate) first_free: u32,
    /// Inodes of the group that this mount has allocated.
    pub(crate) made: u32,
    /// A bitmap of the group is damaged: nothing is allocated here any more.
    pub(crate) broken: bool,
}

/// The location of an inode on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeLocation {
    /// The block of the inode table.
    pub(crate) block: Pblk,
    /// The inode's first byte in that block.
    pub(crate) offset: usize,
}

/// The location of the inode at `index` of a table that starts at `table`.
pub(crate) fn locate(layout: &Layout, table: Pblk, index: u32) -> InodeLocation {
    let per_block = layout.inodes_per_block;
    let location = InodeLocation {
        // A descriptor that is not checked yet may name any block.
        block: table.saturating_add(u64::from(index / per_block)),
        offset: (index % per_block) as usize * usize::from(layout.inode_size),
    };
    debug_assert!(
        location.offset + usize::from(layout.inode_size) <= layout.block_size.bytes(),
        "{location:?} within its block"
    );
    location
}
