//! Journal credits: how many metadata blocks each operation may change at most.
//!
//! A credit is one block that a handle may attach to its transaction; a handle that uses more than
//! it declared is a bug (J22). The figures follow ext4's, with the terms that its large-folio work
//! added. An operation that does several of these adds them up. A block that two parts share is
//! then counted twice, which costs log space for a moment only.
//!
//! Sums saturate ([`sum`]): a request too large for 32 bits is larger than any transaction, which
//! the journal refuses.
//!
//! Pure arithmetic over the volume's geometry: no locks, no state.

use extant_disk::extent::{MAX_DEPTH, block_capacity};
use extant_disk::features::Incompat;
use extant_units::{BlockSize, exact_u32};

use crate::state::volume::Layout;
use crate::volume::Fs;

/// An inode's update: its table block, and the block of the superblock or of the orphan file that
/// changes with it.
pub(crate) const INODE_UPDATE: u32 = 2;
/// [`crate::alloc::allocate_inode`]: inode bitmap, block bitmap (of a group that was
/// uninitialised), descriptor block, block of the inode table.
pub(crate) const INODE_ALLOC: u32 = 4;
/// Blocks of the inode, the superblock and the group descriptor that go with any change of the map.
const MAP_EXTRA: u32 = 6;
/// One extended attribute block: the old and the new one, bitmap and descriptor of each, the inode.
pub(crate) const XATTR: u32 = 8;
/// One reference to a value in an inode of its own more or less ([`ORPHAN`] for the last one): the
/// block of that inode in the table.
pub(crate) const VALUE_REFERENCE: u32 = 1 + ORPHAN;
/// References to such values that an eviction drops under one handle.
pub(crate) const VALUES_AT_ONCE: u32 = 8;
/// Adding to or removing from the list of orphans: the superblock or the orphan file's block, the
/// neighbour in the list, the inode itself.
pub(crate) const ORPHAN: u32 = 3;
/// Metadata blocks of one inode that are freed under one handle at most, each with a revoke record.
pub(crate) const REVOKES: u32 = 1024;

/// A block holds revoke records: [`revokes_per_block`] divides by their number.
const _: () = assert!(BlockSize::KIB1.bytes_u64() / 8 > 3);

/// The sum of what several steps need.
pub(crate) fn sum<const N: usize>(steps: [u32; N]) -> u32 {
    steps.into_iter().fold(0, u32::saturating_add)
}

/// Files of quotas: each has one block that changes with the usage of an inode.
pub(crate) fn quota_blocks(layout: &Layout) -> u32 {
    exact_u32(layout.quota_inodes.iter().flatten().count() as u64)
}

/// Credits that each handle has beside those that it asks for: the usage of two directories, and of
/// an inode in each. A new owner is another inode.
pub(crate) fn spare(layout: &Layout) -> u32 {
    4 * quota_blocks(layout)
}

/// Tree nodes that inserting `extents` extents may change. Every level may split and the root grow;
/// more than one extent also fills leaves.
pub(crate) fn index_blocks(block_size: BlockSize, extents: u32) -> u32 {
    let levels = u32::from(MAX_DEPTH);
    if extents <= 1 {
        levels * 2 + extents
    } else {
        levels * 3 + extents.div_ceil(u32::from(block_capacity(block_size)))
    }
}

/// Credits for adding `extents` discontiguous extents to one file's map: the tree nodes, and a
/// bitmap and a descriptor for each node and extent, up to the number of those on the volume.
fn map_blocks(layout: &Layout, extents: u32) -> u32 {
    let nodes = index_blocks(layout.block_size, extents);
    sum([nodes, regions(layout, sum([nodes, extents])), MAP_EXTRA])
}

/// Bitmaps and descriptors of `blocks` blocks, up to the number of those on the volume.
fn regions(layout: &Layout, blocks: u32) -> u32 {
    let descriptors = layout
        .groups()
        .div_ceil(descriptors_per_block(layout))
        .max(1);
    sum([blocks.min(layout.groups()), blocks.min(descriptors)])
}

/// Group descriptors in a block, at the larger of their two sizes: fewer per block means more
/// blocks.
fn descriptors_per_block(layout: &Layout) -> u32 {
    exact_u32(layout.block_size.bytes_u64() / 64)
}

/// [`crate::map::allocate`]: one run of blocks.
pub(crate) fn allocate(fs: &Fs) -> u32 {
    map_blocks(&fs.layout, 1)
}

/// Making an inode for the value of an attribute, of `len` bytes: the inode, its blocks, their map,
/// and the orphan that it becomes if space runs out in the middle.
pub(crate) fn value(fs: &Fs, len: usize) -> u32 {
    let blocks = exact_u32(fs.layout.block_size.blocks_for(len as u64).get());
    let map = map_blocks(&fs.layout, blocks);
    sum([INODE_ALLOC, INODE_UPDATE, ORPHAN, blocks, map])
}

/// [`crate::map::convert_to_written`] of one extent, and the size that moves with it.
pub(crate) fn convert(fs: &Fs) -> u32 {
    sum([map_blocks(&fs.layout, 1), 1])
}

/// [`crate::map::exchange`] of one extent each.
pub(crate) fn exchange(fs: &Fs) -> u32 {
    sum([convert(fs), INODE_UPDATE, convert(fs), INODE_UPDATE])
}

/// [`crate::map::remove`]: enough to free one extent, which may lie in several groups, and room in
/// the log for [`REVOKES`] revoke records; more is extended or restarted for.
pub(crate) fn remove(fs: &Fs) -> u32 {
    let per_block = revokes_per_block(&fs.layout);
    let records = REVOKES.div_ceil(per_block);
    sum([
        map_blocks(&fs.layout, 1),
        remove_extent(&fs.layout),
        records,
    ])
}

/// [`crate::map::shift()`]: one leaf, the nodes above it, a node that is freed where the tree
/// becomes lower, and the inode.
pub(crate) fn shift(_fs: &Fs) -> u32 {
    1 + u32::from(MAX_DEPTH) + 2 + INODE_UPDATE
}

/// Revoke records in a block, which has a header and a tail of 20 bytes together, and 8 bytes per
/// record.
fn revokes_per_block(layout: &Layout) -> u32 {
    exact_u32(layout.block_size.bytes_u64() / 8) - 3
}

/// Bitmaps and descriptors of the groups that the longest extent touches.
pub(crate) fn remove_extent(layout: &Layout) -> u32 {
    let groups = extant_disk::extent::MAX_WRITTEN.div_ceil(layout.blocks_per_group) + 1;
    let groups = groups.min(layout.groups());
    // They follow each other, and so do their descriptors.
    let descriptors = groups.div_ceil(descriptors_per_block(layout)) + 1;
    sum([groups, groups.min(descriptors)])
}

/// Making an extent tree of `nodes` nodes in the place of `freed` other blocks: the nodes, a bitmap
/// and a descriptor for each block that comes or goes (up to the number of those on the volume),
/// the revoke records, and the inode.
pub(crate) fn rebuild(fs: &Fs, nodes: u32, freed: u32) -> u32 {
    let layout = &fs.layout;
    let regions = regions(layout, sum([nodes, freed]));
    let records = freed.div_ceil(revokes_per_block(layout));
    sum([nodes, regions, records, INODE_UPDATE, MAP_EXTRA])
}

/// Inserting a directory entry. Every level of an indexed directory may split, each split takes a
/// new block, and a linear directory may become an indexed one (two new blocks).
pub(crate) fn dir_insert(fs: &Fs) -> u32 {
    let levels = 3u32;
    let new_blocks = levels + 1;
    // The changed nodes and leaf, the new blocks, their extents in the map, the directory's inode.
    // The new blocks are all at the directory's end, so at most one node per level of its map
    // splits.
    let map = map_blocks(&fs.layout, new_blocks);
    // Entries inside of the inode move to a block first: it, its bitmap and its descriptor.
    let inside = fs.layout.features.has_incompat(Incompat::INLINE_DATA);
    let leaves = if inside { 3 } else { 0 };
    sum([levels + 1, new_blocks, map, INODE_UPDATE, leaves])
}

/// Removing or changing a directory entry: its block and the directory's inode.
pub(crate) const DIR_REMOVE: u32 = 1 + INODE_UPDATE;

/// Allocating and filling in an inode, its attribute block for inherited ACLs included.
pub(crate) fn inode_create(fs: &Fs) -> u32 {
    let encrypts = fs.layout.features.has_incompat(Incompat::ENCRYPT);
    let policy = if encrypts { XATTR } else { 0 };
    INODE_ALLOC + INODE_UPDATE + XATTR + policy
}

/// Deleting an inode whose blocks are freed already: bitmap, descriptor, attribute block, orphan
/// record.
pub(crate) fn inode_delete(_fs: &Fs) -> u32 {
    INODE_ALLOC + INODE_UPDATE + XATTR + ORPHAN
}

/// Dropping [`VALUES_AT_ONCE`] references of an inode's attributes to their values: the inode, its
/// attribute block, and the inodes of the values.
pub(crate) const DROP_VALUES: u32 = INODE_UPDATE + 1 + VALUES_AT_ONCE * VALUE_REFERENCE;
