//! The geometry that a volume has with another number of blocks.

use extant_units::{at_most_u32, exact_u32};

use super::Geometry;
use crate::features::{Compat, Incompat};

/// Blocks for data that a last group must have, or it is left out: mke2fs's and resize2fs's rule.
const LEAST_DATA: u64 = 50;

/// Why there is no geometry with so many blocks.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// Less than one group.
    #[error("too small: no block is left for a group")]
    NoGroup,
    /// More blocks than the volume's format has room for.
    #[error("too large, {blocks} blocks: {why}")]
    TooLarge {
        /// The blocks.
        blocks: u64,
        /// Why.
        why: &'static str,
    },
}

impl Geometry {
    /// The geometry of the same volume with at most `blocks` blocks: whole clusters. A last group
    /// that is too small for its own metadata and some data is left out.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn resized(&self, blocks: u64) -> Result<Self, GeometryError> {
        let mut blocks = blocks - self.offset_in_cluster(blocks);
        loop {
            let new = self.with_blocks(blocks)?;
            let rest = (blocks - new.first_block()) % u64::from(new.blocks_per_group);
            if rest == 0 || rest >= new.least_last_group() {
                return Ok(new);
            }
            // Of a single group nothing would be left.
            blocks -= rest;
        }
    }

    /// Blocks that the last group has to have, or it is left out. For one with a copy of the
    /// superblock, mke2fs and resize2fs count all descriptors, with `meta_bg` as well.
    pub fn least_last_group(&self) -> u64 {
        let last = self.groups - 1;
        let copies = match self.has_backup(last) {
            true => 1 + u64::from(self.desc_blocks) + u64::from(self.reserved_gdt),
            false => self.head_blocks(last),
        };
        2 + u64::from(self.itable_blocks) + copies + LEAST_DATA
    }

    /// The geometry of the same volume with exactly `blocks` blocks.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn with_blocks(&self, blocks: u64) -> Result<Self, GeometryError> {
        let too_large = |why| GeometryError::TooLarge { blocks, why };
        let data = blocks.checked_sub(self.first_block());
        let Some(data) = data.filter(|data| *data > 0) else {
            return Err(GeometryError::NoGroup);
        };
        if blocks >> 48 != 0 {
            return Err(too_large("block numbers have 48 bits"));
        }
        let narrow = u64::from(u32::MAX);
        if blocks > narrow && !self.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            return Err(too_large(
                "without the feature 64bit at most 2^32 - 1 are possible",
            ));
        }
        let has_reserve = self.features.has_compat(Compat::RESIZE_INODE);
        if blocks > narrow && has_reserve {
            return Err(too_large(
                "the resize inode has numbers of 32 bits: tune2fs -O ^resize_inode first",
            ));
        }
        let groups = data.div_ceil(self.blocks_per_group.into());
        let inodes = groups.saturating_mul(self.inodes_per_group.into());
        let Some(groups) = u32::try_from(groups).ok().filter(|_| inodes <= narrow) else {
            return Err(too_large(
                "its groups would have more inodes than can be numbered",
            ));
        };
        let per_block = self.block_size.bytes_u64() / self.desc_size as u64;
        let desc_blocks = exact_u32(u64::from(groups).div_ceil(per_block));
        let table = self.desc_blocks + self.reserved_gdt;
        let most = at_most_u32(self.addresses_per_block());
        let reserved_gdt = match has_reserve {
            // The descriptors may outgrow what was reserved for them.
            true => table.saturating_sub(desc_blocks).min(most),
            false => 0,
        };
        // The share that only root may take stays.
        let reserved = u128::from(self.reserved_blocks) * u128::from(blocks);
        let reserved = u64::try_from(reserved / u128::from(self.blocks)).unwrap_or(blocks);
        // As resize2fs: without a meta group for it, the feature goes.
        let first_meta_bg = self.first_meta_bg.filter(|first| *first <= desc_blocks);
        let mut features = self.features;
        features
            .incompat
            .set(Incompat::META_BG, first_meta_bg.is_some());
        let new = Self {
            features,
            blocks,
            reserved_blocks: reserved.min(blocks),
            groups,
            desc_blocks,
            first_meta_bg,
            reserved_gdt,
            backups: self
                .backups
                .map(|group| if group < groups { group } else { 0 }),
            ..self.clone()
        };
        if new.overhead(0) > u64::from(self.blocks_per_group) {
            return Err(too_large(
                "its descriptors would fill a group; with meta_bg they would not",
            ));
        }
        Ok(new)
    }
}
