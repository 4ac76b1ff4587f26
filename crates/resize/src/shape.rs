//! Sizes and counts of a volume, as it is and as it becomes.

use std::ops::Range;

use extant_disk::features::{Compat, FeatureSets, Incompat};
use extant_disk::superblock::Superblock;
use extant_units::{BlockSize, Group, at_most_u32};

use crate::error::{Error, Result};

/// Blocks for data that a last group must have, or it is left out: mke2fs's and resize2fs's rule.
const LEAST_DATA: u64 = 50;

/// What follows from the number of blocks, and what it follows from.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    sb: Superblock,
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    pub(crate) groups: u32,
    /// Blocks of the descriptor table.
    pub(crate) desc_blocks: u64,
    /// Blocks behind it that it may grow into.
    pub(crate) reserved_gdt: u64,
    /// Blocks of a group's inode table.
    pub(crate) table_blocks: u64,
}

impl Shape {
    /// The shape of the volume with superblock `sb`.
    pub(crate) fn of(sb: &Superblock) -> Self {
        let bytes = u64::from(sb.inodes_per_group()) * sb.inode_size() as u64;
        Self {
            blocks: sb.blocks_count().get(),
            groups: sb.group_count(),
            desc_blocks: sb.desc_blocks().into(),
            reserved_gdt: sb.reserved_gdt_blocks().into(),
            table_blocks: sb.block_size().blocks_for(bytes).get(),
            sb: sb.clone(),
        }
    }

    /// The shape of the volume with at most `blocks` blocks. A last group that is too small for its
    /// own metadata and some data is left out.
    ///
    /// # Errors
    /// [`Error::TooSmall`] and [`Error::TooLarge`].
    pub(crate) fn resized(&self, blocks: u64) -> Result<Self> {
        let mut blocks = blocks;
        loop {
            let new = self.with_blocks(blocks)?;
            let last = new.groups - 1;
            let rest = (blocks - new.first()) % new.per_group();
            if rest == 0 || rest >= new.overhead(last) + LEAST_DATA {
                return Ok(new);
            }
            // Of a single group nothing would be left.
            blocks -= rest;
        }
    }

    /// The shape with exactly `blocks` blocks.
    fn with_blocks(&self, blocks: u64) -> Result<Self> {
        let too_large = |why| Error::TooLarge { blocks, why };
        let Some(data) = blocks.checked_sub(self.first()).filter(|data| *data > 0) else {
            return Err(Error::NoGroup);
        };
        if blocks >> 48 != 0 {
            return Err(too_large("block numbers have 48 bits"));
        }
        let narrow = u64::from(u32::MAX);
        if blocks > narrow && !self.features().has_incompat(Incompat::SIXTY_FOUR_BIT) {
            return Err(too_large(
                "without the feature 64bit at most 2^32 - 1 are possible",
            ));
        }
        let keeps_reserve = self.features().has_compat(Compat::RESIZE_INODE);
        if blocks > narrow && keeps_reserve {
            return Err(too_large(
                "the resize inode has numbers of 32 bits: tune2fs -O ^resize_inode first",
            ));
        }
        let groups = data.div_ceil(self.per_group());
        let inodes = groups.saturating_mul(self.inodes_per_group().into());
        let Some(groups) = u32::try_from(groups).ok().filter(|_| inodes <= narrow) else {
            return Err(too_large(
                "its groups would have more inodes than can be numbered",
            ));
        };
        let per_block = self.block_size().bytes_u64() / self.sb.desc_size() as u64;
        let desc_blocks = u64::from(groups).div_ceil(per_block);
        let table = self.desc_blocks + self.reserved_gdt;
        let most = self.block_size().bytes_u64() / 4;
        let reserved_gdt = match keeps_reserve {
            // The descriptors may outgrow what was kept for them.
            true => table.saturating_sub(desc_blocks).min(most),
            false => 0,
        };
        let new = Self {
            blocks,
            groups,
            desc_blocks,
            reserved_gdt,
            ..self.clone()
        };
        if new.overhead(0) > self.per_group() {
            return Err(too_large(
                "its descriptors would fill a group, and meta_bg is not supported",
            ));
        }
        Ok(new)
    }

    pub(crate) fn features(&self) -> FeatureSets {
        self.sb.features()
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.sb.block_size()
    }

    /// The first block of group 0.
    pub(crate) fn first(&self) -> u64 {
        self.sb.first_data_block().get()
    }

    /// Blocks of every group but the last.
    pub(crate) fn per_group(&self) -> u64 {
        self.sb.blocks_per_group().into()
    }

    pub(crate) fn inodes_per_group(&self) -> u32 {
        self.sb.inodes_per_group()
    }

    /// Inodes of the volume.
    pub(crate) fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group()
    }

    /// The first block of `group`.
    pub(crate) fn start(&self, group: u32) -> u64 {
        self.first() + u64::from(group) * self.per_group()
    }

    /// The blocks of `group`; empty past the last one.
    pub(crate) fn range(&self, group: u32) -> Range<u64> {
        let start = self.start(group).min(self.blocks);
        start..(start + self.per_group()).min(self.blocks)
    }

    /// The group that `block` lies in; for one past the end, as an extent may name, one past the
    /// last.
    pub(crate) fn group_of(&self, block: u64) -> u32 {
        // Block 0 of a volume that begins at block 1 counts to group 0.
        at_most_u32(block.saturating_sub(self.first()) / self.per_group())
    }

    /// Whether `group` begins with superblock and descriptors.
    pub(crate) fn has_super(&self, group: u32) -> bool {
        self.sb.has_backup(Group::new(group))
    }

    /// Blocks of superblock, descriptors and their reserve in `group`.
    pub(crate) fn super_blocks(&self, group: u32) -> u64 {
        match self.has_super(group) {
            true => {
                self.sb.descriptor_start().get() - self.first()
                    + self.desc_blocks
                    + self.reserved_gdt
            }
            false => 0,
        }
    }

    /// Whether the last group is shorter than the copies that it would begin with.
    pub(crate) fn last_is_short(&self) -> bool {
        let last = self.range(self.groups - 1);
        last.end - last.start < self.super_blocks(self.groups - 1)
    }

    /// The groups with a copy of the superblock, in order.
    pub(crate) fn backups(&self) -> impl Iterator<Item = u32> {
        (1..self.groups).filter(|group| self.has_super(*group))
    }

    /// Blocks of metadata that `group` needs.
    fn overhead(&self, group: u32) -> u64 {
        2 + self.table_blocks + self.super_blocks(group)
    }

    /// Blocks of metadata of all groups.
    pub(crate) fn metadata(&self) -> u64 {
        let supers = (1 + self.backups().count() as u64) * self.super_blocks(0);
        supers + u64::from(self.groups) * (2 + self.table_blocks)
    }

    /// The last group, one past it, of the flex group that `group` belongs to.
    pub(crate) fn flex_end(&self, group: u32) -> u32 {
        let size = 1_u32 << self.sb.log_groups_per_flex();
        (group | (size - 1)).min(self.groups - 1) + 1
    }

    /// Bytes of the volume.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks << self.block_size().log2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_disk::features::RoCompat;
    use extant_disk::superblock::{RawSuperblock, State};
    use zerocopy::IntoBytes;

    /// A volume of `groups` groups of 2048 blocks of 1 KiB, with tables of 16 blocks and 10 blocks
    /// reserved behind one of descriptors.
    fn shape_of(groups: u32) -> Shape {
        let mut raw = RawSuperblock::zeroed();
        raw.magic = 0xef53.into();
        raw.rev_level = 1.into();
        raw.set_state(State::VALID);
        raw.blocks_count_lo = (1 + 2048 * groups).into();
        raw.first_data_block = 1.into();
        raw.blocks_per_group = 2048.into();
        raw.clusters_per_group = 2048.into();
        raw.inodes_per_group = 128.into();
        raw.inodes_count = (128 * groups).into();
        raw.first_ino = 11.into();
        raw.inode_size = 128.into();
        raw.reserved_gdt_blocks = 10.into();
        let mut features = raw.features();
        features.compat.insert(Compat::RESIZE_INODE);
        features.incompat.insert(Incompat::FILETYPE);
        features.ro_compat.insert(RoCompat::SPARSE_SUPER);
        raw.set_features(features);
        Shape::of(&Superblock::parse(raw.as_bytes()).unwrap())
    }

    #[test]
    fn metadata_is_that_of_all_groups() {
        let shape = shape_of(8);
        assert_eq!((shape.super_blocks(0), shape.table_blocks), (12, 16));
        // Copies are in groups 1, 3, 5 and 7.
        assert_eq!(shape.metadata(), 5 * 12 + 8 * (2 + 16));
        let each: u64 = (0..8).map(|group| shape.overhead(group)).sum();
        assert_eq!(shape.metadata(), each);
        let grown = shape.resized(1 + 2048 * 10).unwrap();
        assert_eq!(grown.metadata(), 6 * 12 + 10 * (2 + 16));
    }
    #[test]
    fn a_last_group_without_room_for_its_copies_is_short() {
        let short = |groups: u32, len: u64| {
            let mut shape = shape_of(groups);
            shape.blocks = shape.start(groups - 1) + len;
            shape.last_is_short()
        };
        // Group 7 begins with copies, group 6 does not.
        assert_eq!(
            [11, 12, 2048].map(|len| short(8, len)),
            [true, false, false]
        );
        assert!(!short(7, 1));
    }
}
