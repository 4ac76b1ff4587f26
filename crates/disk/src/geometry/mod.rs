//! The geometry of a volume: what follows from its number of blocks, and what it follows from.
//!
//! # Responsibility
//! Planning without I/O, for everything that makes a volume or gives it another size: mkfs, a
//! resize of an image, a grow of a mount. [`Geometry`] has the sizes and counts, [`NewGroups`] the
//! bitmaps and inode tables of groups that are added. What the resize inode leads to follows from
//! the geometry as well ([`Geometry::resize_inode_map`]). Each executor brings the plan to its
//! device in its own way and order.
//!
//! ```text
//! superblock -> Geometry --resized(blocks)--> Geometry -> NewGroups, resize inode, superblock
//! ```
//!
//! # Invariants
//! - A geometry has one group at least. After [`Geometry::with_blocks`], superblock, descriptors,
//!   bitmaps and inode table of a group fit into it.
//! - The metadata of new groups lies in them, and no two parts of it share a block.

#[cfg(test)]
mod cluster_tests;
mod clusters;
mod descriptors;
mod new_groups;
mod reserve;
mod resized;
#[cfg(test)]
mod tests;

use core::ops::Range;

use extant_units::{BlockSize, Blocks, at_most_u32, exact_u16, exact_u32};
use zerocopy::little_endian::U32;

pub use self::new_groups::{GroupTables, NewGroups};
pub use self::resized::GeometryError;
use crate::features::{FeatureSets, Incompat};
use crate::superblock::{RawSuperblock, Superblock, is_backup_group};

/// The sizes and counts of a volume.
#[derive(Clone, PartialEq, Debug)]
pub struct Geometry {
    /// The features.
    pub features: FeatureSets,
    /// The block size.
    pub block_size: BlockSize,
    /// Blocks of the volume, the boot block included.
    pub blocks: u64,
    /// Blocks that only root may take.
    pub reserved_blocks: u64,
    /// log2 of the blocks of a cluster: 0 without `bigalloc`.
    pub cluster_bits: u32,
    /// Blocks of every group but the last: whole clusters.
    pub blocks_per_group: u32,
    /// Groups.
    pub groups: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Inodes of each group.
    pub inodes_per_group: u32,
    /// Blocks of a group's inode table.
    pub itable_blocks: u32,
    /// Bytes of a group descriptor.
    pub desc_size: usize,
    /// Blocks of descriptors.
    pub desc_blocks: u32,
    /// With `meta_bg`: the first meta group whose descriptors lie in its own groups.
    pub first_meta_bg: Option<u32>,
    /// Blocks behind it that it may grow into.
    pub reserved_gdt: u32,
    /// Groups whose bitmaps and inode tables lie together, as a power of two.
    pub log_groups_per_flex: u8,
    /// With `sparse_super2`: the groups with backups, zero for none.
    pub backups: [u32; 2],
}

impl Geometry {
    /// The geometry of the volume with superblock `sb`.
    pub fn of(sb: &Superblock) -> Self {
        let block_size = sb.block_size();
        let table = u64::from(sb.inodes_per_group()) * sb.inode_size() as u64;
        Self {
            features: sb.features(),
            block_size,
            blocks: sb.blocks_count().get(),
            reserved_blocks: sb.reserved_blocks().get(),
            cluster_bits: sb.cluster_bits(),
            blocks_per_group: sb.blocks_per_group(),
            groups: sb.group_count(),
            inode_size: exact_u16(sb.inode_size() as u64),
            inodes_per_group: sb.inodes_per_group(),
            itable_blocks: exact_u32(block_size.blocks_for(table).get()),
            desc_size: sb.desc_size(),
            desc_blocks: sb.desc_blocks(),
            first_meta_bg: sb.first_meta_bg(),
            reserved_gdt: sb.reserved_gdt_blocks(),
            // At most 31.
            log_groups_per_flex: sb.log_groups_per_flex().to_le_bytes()[0],
            backups: sb.raw().backup_bgs.map(|group| group.get()),
        }
    }

    /// The first block of group 0.
    pub fn first_block(&self) -> u64 {
        self.superblock_block() * u64::from(self.cluster_bits == 0)
    }

    /// The block of the primary superblock. With blocks of 1 KiB it is the one behind the boot
    /// block, which with `bigalloc` is group 0's.
    pub fn superblock_block(&self) -> u64 {
        u64::from(self.block_size == BlockSize::KIB1)
    }

    /// Blocks before the superblock at the start of `group`: the boot block, or none.
    pub(super) fn boot_blocks(&self, group: u32) -> u64 {
        match group {
            0 => self.superblock_block() - self.first_block(),
            _ => 0,
        }
    }

    /// The first block of `group`, which may lie behind the end.
    pub fn group_start(&self, group: u32) -> u64 {
        self.first_block() + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// The blocks of `group`; empty past the last one.
    pub fn group_blocks(&self, group: u32) -> Range<u64> {
        let start = self.group_start(group).min(self.blocks);
        let full = start + u64::from(self.blocks_per_group);
        start..full.min(self.blocks)
    }

    /// The group that `block` lies in; for one past the end, as an extent may name, one past the
    /// last.
    pub fn group_of(&self, block: u64) -> u32 {
        // Block 0 of a volume that begins at block 1 counts to group 0.
        let at = block.saturating_sub(self.first_block());
        at_most_u32(at / u64::from(self.blocks_per_group))
    }

    /// Inodes of the volume.
    pub fn inodes(&self) -> u32 {
        self.inodes_per_group * self.groups
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_size.log2()
    }

    /// Returns whether `group` begins with a superblock and descriptors.
    pub fn has_backup(&self, group: u32) -> bool {
        is_backup_group(self.features, self.backups, group)
    }

    /// The groups with a backup, in order.
    pub fn backup_groups(&self) -> impl Iterator<Item = u32> {
        (1..self.groups).filter(|&group| self.has_backup(group))
    }

    /// Blocks that superblock, table of descriptors and their reserve take in a group that has
    /// them.
    pub fn super_blocks(&self) -> u64 {
        1 + u64::from(self.tabled_desc_blocks()) + u64::from(self.reserved_gdt)
    }

    /// Blocks of superblock, descriptors and their reserve at the start of `group`, with the boot
    /// block before them where that is the group's.
    pub fn head_blocks(&self, group: u32) -> u64 {
        let has_backup = self.has_backup(group);
        let blocks = match self.spread_desc_blocks(group) {
            Some(descriptors) => u64::from(has_backup) + descriptors,
            None if has_backup => self.super_blocks(),
            None => 0,
        };
        self.boot_blocks(group) + blocks
    }

    /// The blocks of [`Geometry::head_blocks`].
    pub fn head(&self, group: u32) -> Range<u64> {
        let start = self.group_start(group);
        start..start + self.head_blocks(group)
    }

    /// Returns whether the last group is shorter than the copies that it would begin with.
    pub fn last_is_short(&self) -> bool {
        let last = self.group_blocks(self.groups - 1);
        last.end - last.start < self.head_blocks(self.groups - 1)
    }

    /// Blocks of metadata that `group` needs.
    pub fn overhead(&self, group: u32) -> u64 {
        2 + u64::from(self.itable_blocks) + self.head_blocks(group)
    }

    /// Blocks of metadata of all groups.
    pub fn metadata(&self) -> u64 {
        let heads: u64 = (0..self.groups).map(|group| self.head_blocks(group)).sum();
        let tables = 2 + u64::from(self.itable_blocks);
        heads + u64::from(self.groups) * tables
    }

    /// The first group of the flex group of `group`, which is itself without `flex_bg`.
    pub fn flex_start(&self, group: u32) -> u32 {
        group >> self.log_groups_per_flex << self.log_groups_per_flex
    }

    /// The last group, one past it, of the flex group that `group` belongs to.
    pub fn flex_end(&self, group: u32) -> u32 {
        let size = 1_u32 << self.log_groups_per_flex;
        (group | (size - 1)).min(self.groups - 1) + 1
    }

    /// Numbers of blocks in an indirect block.
    pub fn addresses_per_block(&self) -> u64 {
        self.block_size.bytes_u64() / 4
    }

    /// Stores what a superblock says of the number of blocks, and what follows from it.
    pub fn store_size(&self, raw: &mut RawSuperblock) {
        raw.set_blocks_count(Blocks::new(self.blocks));
        raw.set_reserved_blocks(Blocks::new(self.reserved_blocks));
        raw.inodes_count.set(self.inodes());
        raw.reserved_gdt_blocks
            .set(exact_u16(self.reserved_gdt.into()));
        raw.backup_bgs = self.backups.map(U32::new);
        raw.first_meta_bg.set(self.first_meta_bg.unwrap_or(0));
        let mut features = raw.features();
        features
            .incompat
            .set(Incompat::META_BG, self.first_meta_bg.is_some());
        raw.set_features(features);
    }
}
