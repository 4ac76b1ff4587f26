//! From file blocks to disk blocks.
//!
//! Answers where a file's block lies ([`lookup()`]), gives it a place ([`allocate`]), takes places away
//! ([`remove`]), and moves what lies behind ([`shift()`]). The parts:
//!
//! * `extent_tree`: the map on disk, pure over a store of nodes;
//! * `extent_status`: what is known of the map in memory, delayed ranges included, and the sequence number
//!   by which a mapping that was handed out is recognised as stale;
//! * `indirect`: the older map of ext2 and ext3, without unwritten blocks;
//! * this module: the two together, with the allocator and the journal.
//!
//! Invariants: the status tree never contradicts the tree on disk (J14); a range is DELAYED only with
//! nothing below it on disk and one reserved block per block (J9); every change of a mapping grows the
//! sequence (J16).
//!
//! Locks: `map_lock` is taken here and nowhere else, read to walk the tree, write to change it together with
//! the status tree. Status hits take no `map_lock`: the status tree is truthful whenever its own lock is free.

mod change;
mod distinct;
mod exchange;
mod extent_status;
mod extent_tree;
mod indirect;
mod known;
mod lookup;
mod mapping;
mod migrate;
mod nodes;
mod order;
mod raw;
mod shift;
mod split;
#[cfg(test)]
pub(crate) mod test_rng;
#[cfg(test)]
mod tests;
mod walked;

use extant_disk::extent::{NodeMut, ROOT_BYTES, ROOT_CAPACITY};

pub(crate) use change::{
    allocate, allocate_at, convert_to_unwritten, convert_to_written, make_room, remove,
};
pub(crate) use distinct::DistinctRuns;
pub(crate) use exchange::exchange;
pub(crate) use extent_status::{ExtentStatus, Status, StatusCache};
pub(crate) use extent_tree::Shift;
pub(crate) use known::{KnownMap, known};
pub(crate) use lookup::{drop_delayed, lookup, range_at, reserve_delayed, still_holds};
#[cfg(test)]
pub(crate) use lookup::{evict, ranges};
pub(crate) use mapping::{How, MapState, Mapping};
pub(crate) use migrate::to_extents;
pub(crate) use order::MapLock;
pub(crate) use raw::{RawMap, RawRun, raw_runs};
pub(crate) use shift::{Plan, last_end, plan, shift};
pub(crate) use split::{is_within_extent, split, split_longest};
pub(crate) use walked::Walked;

use crate::fs::Fs;
use crate::inode::Inode;

/// The inode's sequence now; see [`Mapping::seq`].
pub(crate) fn sequence(inode: &Inode) -> u64 {
    inode.extents.sequence()
}

/// Blocks that are delayed: `st_blocks` counts them.
pub(crate) fn delayed_blocks(inode: &Inode) -> u64 {
    inode.extents.delayed_blocks()
}

/// Blocks that an inode can count.
fn countable(fs: &Fs) -> u64 {
    if fs.layout.huge_file() {
        u64::MAX >> 16
    } else {
        u64::from(u32::MAX) >> (fs.layout.block_size.log2() - 9)
    }
}

/// File blocks that any file can have at most.
pub(crate) fn most_blocks_of_any(fs: &Fs) -> u64 {
    countable(fs).min(u64::from(u32::MAX))
}

/// File blocks that `inode` can have at most.
pub(crate) fn most_blocks(fs: &Fs, inode: &Inode) -> u64 {
    let any = most_blocks_of_any(fs);
    if nodes::has_extents(inode) {
        return any;
    }
    indirect::reach(fs.layout.block_size.bytes_u64() / 4, countable(fs)).min(any)
}

/// The `i_block` of a new file: the root of an empty extent tree.
pub(crate) fn empty_root() -> [u8; ROOT_BYTES] {
    let mut root = [0; ROOT_BYTES];
    // The capacity is the root's own: nothing here can be refused.
    let made = NodeMut::init(&mut root, 0, ROOT_CAPACITY).map(drop);
    debug_assert_eq!(made, Ok(()));
    root
}
