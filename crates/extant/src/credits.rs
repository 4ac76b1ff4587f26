//! Journal credits: how many metadata blocks each operation may change at most.
//!
//! A credit is one block that a handle may attach to its transaction; using more than declared is a bug
//! (J22). The figures follow ext4's, with the terms that its large-folio work added (SPEC D). An operation that
//! does several of these adds them up; blocks that two parts share are counted twice, which only costs log
//! space for a moment.
//!
//! Pure arithmetic over the file system's shape: no locks, no state.

use extant_disk::extent::{MAX_DEPTH, block_capacity};
use extant_units::BlockSize;

use crate::fs::Fs;
use crate::layout::Layout;

/// An inode's update: its table block, and the block of the superblock or orphan file that rides along.
pub(crate) const INODE_UPDATE: u32 = 2;
/// [`crate::alloc::inode`]: inode bitmap, block bitmap (of a group that was uninitialised), descriptor block, block of the inode
/// table.
pub(crate) const INODE_ALLOC: u32 = 4;
/// Blocks of the inode, the superblock and the group descriptor that go with any change of the map.
const MAP_EXTRA: u32 = 6;
/// One extended attribute block: the old and the new one, bitmap and descriptor of each, the inode.
pub(crate) const XATTR: u32 = 8;
/// Adding to or removing from the list of orphans: the superblock or the orphan file's block, the
/// neighbour in the list, the inode itself.
pub(crate) const ORPHAN: u32 = 3;
/// Metadata blocks of one inode that are freed under one handle at most, each with a revoke record.
pub(crate) const REVOKES: u32 = 1024;

/// Tree nodes that inserting `extents` extents may change: every level may split and the root grow; more
/// than one also fills leaves.
fn index_blocks(block_size: BlockSize, extents: u32) -> u32 {
    let levels = u32::from(MAX_DEPTH);
    if extents <= 1 {
        levels * 2 + extents
    } else {
        levels * 3 + extents.div_ceil(u32::from(block_capacity(block_size)))
    }
}

/// Credits for entering `extents` separately placed extents into one file's map: tree nodes, and for each
/// node and extent a bitmap and a descriptor, as far as there are so many.
fn map_blocks(layout: &Layout, extents: u32) -> u32 {
    let nodes = index_blocks(layout.block_size, extents);
    let places = nodes.saturating_add(extents);
    let descriptors = layout.groups.div_ceil(descriptors_per_block(layout)).max(1);
    nodes
        .saturating_add(places.min(layout.groups))
        .saturating_add(places.min(descriptors))
        .saturating_add(MAP_EXTRA)
}

/// Group descriptors in a block, for the smaller of their two sizes' sake: fewer per block means more blocks.
fn descriptors_per_block(layout: &Layout) -> u32 {
    u32::try_from(layout.block_size.bytes() / 64).unwrap_or(u32::MAX)
}

/// [`crate::map::allocate`]: one run of blocks.
pub(crate) fn allocate(fs: &Fs) -> u32 {
    map_blocks(&fs.layout, 1)
}

/// [`crate::map::convert_to_written`] of one extent, and the size that moves with it.
pub(crate) fn convert(fs: &Fs) -> u32 {
    map_blocks(&fs.layout, 1).saturating_add(1)
}

/// [`crate::map::exchange`] of one extent each.
pub(crate) fn exchange(fs: &Fs) -> u32 {
    convert(fs).saturating_add(INODE_UPDATE).saturating_mul(2)
}

/// [`crate::map::remove`]: enough to free one extent, which may lie in several groups, and room in the log for
/// [`REVOKES`] revoke records; more is extended or restarted for.
pub(crate) fn remove(fs: &Fs) -> u32 {
    let per_block = revokes_per_block(&fs.layout);
    map_blocks(&fs.layout, 1)
        .saturating_add(remove_extent(&fs.layout))
        .saturating_add(REVOKES.div_ceil(per_block))
}

/// [`crate::map::shift()`]: one leaf, the nodes above it, a node that is freed where the tree becomes lower, and the inode.
pub(crate) fn shift(_fs: &Fs) -> u32 {
    1 + u32::from(MAX_DEPTH) + 2 + INODE_UPDATE
}

/// A revoke block has a header and a tail of 20 bytes, and 8 bytes per record.
fn revokes_per_block(layout: &Layout) -> u32 {
    u32::try_from(layout.block_size.bytes() / 8).unwrap_or(u32::MAX) - 3
}

/// Bitmaps and descriptors of the groups that the longest extent touches.
pub(crate) fn remove_extent(layout: &Layout) -> u32 {
    let groups = extant_disk::extent::MAX_WRITTEN
        .div_ceil(layout.blocks_per_group.max(1))
        .saturating_add(1);
    groups.min(layout.groups).saturating_mul(2)
}

/// Making an extent tree of `nodes` nodes where there were `freed` other blocks: the nodes, a bitmap and a descriptor for each block that
/// comes and goes as far as there are so many, room for the revoke records, and the inode.
pub(crate) fn rebuild(fs: &Fs, nodes: u32, freed: u32) -> u32 {
    let layout = &fs.layout;
    let places = nodes.saturating_add(freed);
    let descriptors = layout.groups.div_ceil(descriptors_per_block(layout)).max(1);
    let records = freed.div_ceil(revokes_per_block(layout).max(1));
    nodes
        .saturating_add(places.min(layout.groups))
        .saturating_add(places.min(descriptors))
        .saturating_add(records)
        .saturating_add(INODE_UPDATE)
        .saturating_add(MAP_EXTRA)
}

/// Inserting a directory entry: every level of an indexed directory may split, each split takes a new
/// block, and a linear directory may become an indexed one (two new blocks).
pub(crate) fn dir_insert(fs: &Fs) -> u32 {
    let levels = 3u32;
    let new_blocks = levels + 1;
    // The changed nodes and leaf, the new blocks, their places in the map, the directory's inode. The new
    // blocks are all at the end of the directory, so at most one node per level of its map splits.
    (levels + 1)
        .saturating_add(new_blocks)
        .saturating_add(map_blocks(&fs.layout, new_blocks))
        .saturating_add(INODE_UPDATE)
}

/// Removing or changing a directory entry: its block and the directory's inode.
pub(crate) const DIR_REMOVE: u32 = 1 + INODE_UPDATE;

/// Allocating and filling in an inode, its attribute block for inherited ACLs included.
pub(crate) fn inode_create(_fs: &Fs) -> u32 {
    INODE_ALLOC + INODE_UPDATE + XATTR
}

/// Deleting an inode whose blocks are gone: bitmap, descriptor, attribute block, list of orphans.
pub(crate) fn inode_delete(_fs: &Fs) -> u32 {
    INODE_ALLOC + INODE_UPDATE + XATTR + ORPHAN
}
