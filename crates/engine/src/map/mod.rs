//! Mapping file blocks to disk blocks.
//!
//! Looks up a file's blocks ([`lookup()`]), allocates them ([`allocate`]), frees them ([`remove`]),
//! and shifts them within the file ([`shift()`]). The parts:
//!
//! * `extent_tree`: the map on disk, pure over a store of nodes;
//! * `indirect`: the block map of ext2 and ext3, without unwritten blocks;
//! * [state](crate::state::map): what is known of the map on disk, and what is only in memory,
//!   delayed blocks and their reservation;
//! * this module: the parts together, with the allocator and the journal.
//!
//! # Invariants
//! - The status tree never contradicts the tree on disk (J14).
//! - A range is delayed only with a hole below it on disk and one reserved block per block (J9).
//! - Every change of a mapping grows the sequence (J16).
//!
//! # Locks
//! `map_lock` is taken here and nowhere else: shared to walk the tree, exclusively to change it
//! together with what is known of it. A hit in memory takes no `map_lock`: the view is right
//! whenever its own lock is free.

mod change;
mod clusters;
mod cut_extents;
mod disk_nodes;
mod distinct_runs;
mod exchange_blocks;
mod extent_tree;
mod first_extent;
mod indirect;
mod known_map;
mod locked_map;
mod logged_ranges;
mod lookup;
mod migrate;
mod raw_map;
mod removal;
mod reserve_delayed;
mod root_runs;
mod shift_map;
#[cfg(test)]
mod tests;
mod walk_bound;

use extant_disk::extent::{NodeMut, ROOT_BYTES, ROOT_CAPACITY};
use extant_disk::features::Incompat;
use extant_disk::inode::InodeFlags;
use extant_extent_io_tree::TreeStats;

#[cfg(test)]
use crate::state::map::MapState;
pub(crate) use change::{
    allocate, convert_to_unwritten, convert_to_written, reserve_indirect_blocks,
};
pub(crate) use clusters::ClusterPart;
pub(crate) use cut_extents::{is_within_extent, split, split_longest};
pub(crate) use distinct_runs::DistinctRuns;
pub(crate) use exchange_blocks::{exchange, part_in_clusters};
pub(crate) use extent_tree::Shift;
pub(crate) use first_extent::{has_no_extent, link_first_extent, note_first_block, root_with};
pub(crate) use known_map::{KnownMap, known};
#[cfg(test)]
pub(crate) use locked_map::{ExclusiveMap, SharedMap};
pub(crate) use logged_ranges::{PieceBudget, enter_logged, remove_unlike};
#[cfg(test)]
pub(crate) use lookup::{evict, ranges};
pub(crate) use lookup::{lookup, range_at, still_holds};
pub(crate) use migrate::to_extents;
pub(crate) use raw_map::{RawMap, RawRun, raw_ranges, raw_runs};
pub(crate) use removal::remove;
pub(crate) use reserve_delayed::{drop_delayed, reserve_delayed};
pub(crate) use root_runs::root_runs;
pub(crate) use shift_map::{ShiftPlan, last_end, plan, shift};
pub(crate) use walk_bound::Walked;

use crate::state::inode::Inode;
use crate::volume::Fs;

/// Grows with every change of the inode's map, on disk or in memory.
#[cfg(test)]
pub(crate) fn sequence(inode: &Inode) -> u64 {
    inode.known.cookie(MapState::Delayed)
}

/// Blocks that are reserved for delayed ones. `st_blocks` counts them.
pub(crate) fn reserved_blocks(inode: &Inode) -> u64 {
    inode.known.delayed().reserved()
}

/// Returns whether `inode` has blocks, or delayed ones: at one moment, as an allocation makes the
/// one of the other with the map locked.
pub(crate) fn takes_space(inode: &Inode) -> bool {
    let _map = locked_map::SharedMap::lock(inode);
    inode.core.read().sectors != 0 || inode.known.delayed().blocks() != 0
}

/// Counters of the I/O trees of all files' delayed blocks.
pub(crate) fn delayed_stats(fs: &Fs) -> TreeStats {
    let mut sum = fs.maps.delayed.past();
    for inode in fs.inodes.all() {
        sum += inode.known.delayed().stats();
    }
    sum
}

/// Blocks that an inode can count.
fn countable(fs: &Fs) -> u64 {
    if fs.layout.huge_file() {
        u64::MAX >> 16
    } else {
        u64::from(u32::MAX) >> (fs.layout.block_size.log2() - 9)
    }
}

/// Upper bound of the file blocks of any file.
pub(crate) fn most_blocks_of_any(fs: &Fs) -> u64 {
    countable(fs).min(u64::from(u32::MAX))
}

/// Upper bound of `inode`'s file blocks.
pub(crate) fn most_blocks(fs: &Fs, inode: &Inode) -> u64 {
    let any = most_blocks_of_any(fs);
    // Data inside of the inode moves to blocks before it is that long.
    let moves = inode.flags().contains(InodeFlags::INLINE_DATA);
    let to_extents = moves && fs.layout.features.has_incompat(Incompat::EXTENTS);
    if disk_nodes::has_extents(inode) || to_extents {
        return any;
    }
    indirect::reach(fs.layout.block_size.bytes_u64() / 4, countable(fs)).min(any)
}

/// The `i_block` of a new file: the root of an empty extent tree.
pub(crate) fn empty_root() -> [u8; ROOT_BYTES] {
    let mut root = [0; ROOT_BYTES];
    // The capacity is the root's own: this cannot be refused.
    let made = NodeMut::init(&mut root, 0, ROOT_CAPACITY).map(drop);
    debug_assert_eq!(made, Ok(()));
    root
}
