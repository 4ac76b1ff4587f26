//! The blocks of group descriptors: the table behind the superblock and its copies, and with
//! `meta_bg` the block of each meta group.
//!
//! A meta group has as many groups as a block has descriptors. Those before `s_first_meta_bg` have
//! theirs in the table. Each other keeps its own block in its first group, with copies in the
//! second and the last:
//!
//! ```text
//! group         0      1      2   ...  last of the meta group
//!            | SB D | SB D |         | D                      |
//! ```

use core::ops::Range;

use extant_units::exact_u32;

use super::Geometry;

impl Geometry {
    /// Descriptors of a block, which are the groups of a meta group.
    pub fn descs_per_block(&self) -> u32 {
        exact_u32((self.block_size.bytes() / self.desc_size) as u64)
    }

    /// Blocks of descriptors behind the superblock and each copy of it: all, or with `meta_bg`
    /// those before the first meta group that has its own.
    pub fn tabled_desc_blocks(&self) -> u32 {
        let all = self.desc_blocks;
        self.first_meta_bg.map_or(all, |first| first.min(all))
    }

    /// Returns whether the descriptor of `group` lies in its meta group.
    fn is_spread(&self, group: u32) -> bool {
        let meta_group = group / self.descs_per_block();
        self.first_meta_bg.is_some_and(|first| meta_group >= first)
    }

    /// Blocks at the start of `group` up to the end of its superblock, if it has one.
    fn superblocks(&self, group: u32) -> u64 {
        self.boot_blocks(group) + u64::from(self.has_backup(group))
    }

    /// The block of the original descriptors `at`, counted in blocks.
    pub fn desc_block(&self, at: u32) -> u64 {
        // For one past the last block of descriptors, the group may not exist.
        let group = at.saturating_mul(self.descs_per_block());
        if self.is_spread(group) {
            self.group_start(group) + self.superblocks(group)
        } else {
            self.superblock_block() + 1 + u64::from(at)
        }
    }

    /// The original blocks of all descriptors, in order.
    pub fn desc_block_numbers(&self) -> impl Iterator<Item = u64> {
        (0..self.desc_blocks).map(|at| self.desc_block(at))
    }

    /// The copy of descriptors in `group`: its first block, and the blocks of descriptors that it
    /// is of. `None` for a group without one.
    pub fn desc_copy(&self, group: u32) -> Option<(u64, Range<u32>)> {
        let start = self.group_start(group) + self.superblocks(group);
        let (at, place) = (
            group / self.descs_per_block(),
            group % self.descs_per_block(),
        );
        if self.is_spread(group) {
            let has_copy = place == 1 || place == self.descs_per_block() - 1;
            return (place > 0 && has_copy).then_some((start, at..at + 1));
        }
        let has_copy = group > 0 && self.has_backup(group);
        has_copy.then_some((start, 0..self.tabled_desc_blocks()))
    }

    /// Blocks of descriptors at the start of `group`, without superblock and reserve.
    pub(super) fn spread_desc_blocks(&self, group: u32) -> Option<u64> {
        let place = group % self.descs_per_block();
        let has_block = [0, 1, self.descs_per_block() - 1].contains(&place);
        self.is_spread(group).then_some(u64::from(has_block))
    }
}
