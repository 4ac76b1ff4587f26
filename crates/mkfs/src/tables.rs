//! The blocks of each group's bitmaps and inode table.
//!
//! With `flex_bg` those of sixteen groups lie together at the start of the first: all block
//! bitmaps, then all inode bitmaps, then all tables. Each search begins where the last group's
//! ended, so that a backup in the way is stepped over. Without it each group has its own.

use std::ops::Range;

use extant_disk::features::Incompat;
use extant_disk::geometry::{Geometry, GroupTables};
use extant_disk::group_desc::DESC_SIZE_32;
use extant_units::exact_u32;

use crate::error::{Error, Result};
use crate::space::Space;

/// Blocks as they are taken, and which groups that concerns.
pub(crate) struct Ground<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) space: Space,
    /// By group: whether more lies in it than superblock, descriptors and its own tables.
    pub(crate) touched: Vec<bool>,
    /// By group: free clusters as mke2fs counts them on the way. A group begins with its blocks,
    /// and of each part of a table only whole clusters are taken away. The journal goes by this.
    counted: Vec<u32>,
}

impl<'a> Ground<'a> {
    /// With superblocks and descriptors taken.
    pub(crate) fn new(geometry: &'a Geometry) -> Self {
        let mut space = Space::of(geometry.first_block()..geometry.blocks);
        for group in 0..geometry.groups {
            let head = geometry.head(group);
            assert!(
                head.end <= geometry.group_blocks(group).end,
                "group {group} has room for its copies"
            );
            space.take(head);
        }
        let mut touched = vec![false; geometry.groups as usize];
        // The bitmap of a last group that is not whole has padding.
        if let Some(last) = touched.last_mut() {
            *last = true;
        }
        let tables = 2 + u64::from(geometry.itable_blocks);
        let own = match geometry.features.has_incompat(Incompat::FLEX_BG) {
            true => 0,
            false => tables,
        };
        let counted = |group| {
            let blocks = geometry.group_blocks(group);
            let head = geometry.head_blocks(group) - u64::from(group == 0) * boot_blocks(geometry);
            // A volume that is too small is refused later.
            exact_u32((blocks.end - blocks.start).saturating_sub(head + own))
        };
        Self {
            geometry,
            space,
            touched,
            counted: (0..geometry.groups).map(counted).collect(),
        }
    }

    /// Blocks that a journal may take half of, before there are tables.
    pub(crate) fn free_for_a_journal(&self) -> u64 {
        let free: u64 = self.counted.iter().map(|free| u64::from(*free)).sum();
        free - free % self.geometry.cluster_blocks()
    }

    /// Free clusters of `group`, as mke2fs counts them and a descriptor stores them.
    pub(crate) fn free_as_counted(&self, group: u32) -> u32 {
        let free = self.counted[group as usize];
        match self.geometry.desc_size {
            DESC_SIZE_32 => free & u32::from(u16::MAX),
            _ => free,
        }
    }

    fn count(&mut self, block: u64, clusters: u64) {
        let free = &mut self.counted[self.geometry.group_of(block) as usize];
        *free = free.wrapping_sub(exact_u32(clusters));
    }

    /// Counts a run by whole clusters in each group.
    fn count_run(&mut self, start: u64, len: u64) {
        let (mut at, end) = (start, start + len);
        while at < end {
            let group = self.geometry.group_blocks(self.geometry.group_of(at));
            let next = group.end.min(end);
            self.count(at, (next - at) >> self.geometry.cluster_bits);
            at = next;
        }
    }

    /// Takes the rest of each cluster of which a part is taken: files do not share clusters with
    /// metadata of groups.
    pub(crate) fn fill_clusters(&mut self) {
        if self.geometry.cluster_bits == 0 {
            return;
        }
        let all = self.geometry.first_block()..self.geometry.blocks;
        let taken: Vec<_> = self.space.taken_in(all).collect();
        for run in taken {
            self.space.take(self.geometry.whole_clusters(&run));
        }
    }

    /// The first free run from the cluster of `goal` on, or else from the beginning.
    pub(crate) fn free_run(&self, goal: u64) -> Option<Range<u64>> {
        self.space.free_run(self.geometry.cluster_start(goal))
    }

    /// Takes the clusters of `len` blocks from `start` on, which begins one.
    pub(crate) fn take_clusters(&mut self, start: u64, len: u64) {
        let run = self.geometry.whole_clusters(&(start..start + len));
        debug_assert_eq!(run.start, start, "from the beginning of a cluster");
        self.take(run.start, run.end - run.start);
        self.count_run(run.start, run.end - run.start);
    }

    /// Takes `len` blocks from `start` on; at least one. They are free.
    pub(crate) fn take(&mut self, start: u64, len: u64) {
        debug_assert_eq!(self.space.free_in(start..start + len), len, "all are free");
        self.space.take(start..start + len);
        let first = self.geometry.group_of(start);
        let last = self.geometry.group_of(start + len - 1);
        for group in first..=last {
            self.touched[group as usize] = true;
        }
    }

    /// Takes the first free cluster at or behind that of `goal`, or else from the beginning.
    /// Returns its first block.
    pub(crate) fn take_one(&mut self, goal: u64) -> Option<u64> {
        let block = self.free_run(goal)?.start;
        self.take_clusters(block, 1);
        Some(block)
    }

    /// Allocates the tables of all groups.
    pub(crate) fn allocate_tables(&mut self, stride: u32, bytes: u64) -> Result<Vec<GroupTables>> {
        let mut tables: Vec<GroupTables> = Vec::with_capacity(self.touched.len());
        let what = "the bitmaps and inode tables";
        for group in 0..self.geometry.groups {
            let allocated = if self.geometry.features.has_incompat(Incompat::FLEX_BG) {
                self.allocate_in_flex(group, tables.last().copied())
            } else {
                self.allocate_in_group(group, u64::from(stride))
            };
            tables.push(allocated.ok_or(Error::TooSmall { bytes, what })?);
        }
        // A run that is taken twice counts once. No option leads here, nothing is written yet.
        let volume = self.geometry.first_block()..self.geometry.blocks;
        assert_eq!(
            (volume.end - volume.start) - self.space.free_in(volume),
            self.geometry.metadata(),
            "the metadata of no two groups shares a block"
        );
        Ok(tables)
    }

    /// Allocates the tables of `group` in itself; on a RAID each group's bitmaps on another disk.
    fn allocate_in_group(&mut self, group: u32, stride: u64) -> Option<GroupTables> {
        let table_len = u64::from(self.geometry.itable_blocks);
        let blocks = self.geometry.group_blocks(group);
        let (first, last) = (blocks.start, blocks.end - 1);
        let mut bitmaps = first;
        if stride > 0 {
            bitmaps = self.space.first_fit(first, last, 1)? + table_len;
            // The table's length may lead past the group's end: then from the group's start.
            bitmaps += stride * u64::from(group) % (last + 1).saturating_sub(bitmaps).max(1);
            if bitmaps >= last {
                bitmaps = first;
            }
        }
        let mut one = || {
            let ahead = self.space.first_fit(bitmaps, last, 1);
            let block = ahead.or_else(|| self.space.first_fit(first, last, 1))?;
            self.space.take(block..block + 1);
            Some(block)
        };
        let (block_bitmap, inode_bitmap) = (one()?, one()?);
        let inode_table = self.space.first_fit(first, last, table_len)?;
        debug_assert!(block_bitmap <= last && inode_bitmap <= last && inode_table >= first);
        self.space.take(inode_table..inode_table + table_len);
        Some(GroupTables {
            block_bitmap,
            inode_bitmap,
            inode_table,
        })
    }

    /// Allocates the tables of `group` behind `before`, those of the group before it.
    fn allocate_in_flex(&mut self, group: u32, before: Option<GroupTables>) -> Option<GroupTables> {
        let flex = Flex::of(self.geometry, group);
        let table_len = u64::from(self.geometry.itable_blocks);
        let before = before.filter(|_| group != flex.first);
        let goal = before.map(|before| before.block_bitmap + 1);
        let block_bitmap = self.take_in_flex(&flex, goal, 1)?;
        let goal = match before {
            Some(before) => before.inode_bitmap + 1,
            None => block_bitmap + flex.gap,
        };
        let inode_bitmap = self.take_in_flex(&flex, Some(goal), 1)?;
        let goal = match before {
            Some(before) => before.inode_table + table_len,
            None => inode_bitmap + flex.gap,
        };
        let inode_table = self.take_in_flex(&flex, Some(goal), table_len)?;
        self.count(block_bitmap, 1);
        self.count(inode_bitmap, 1);
        self.count_run(inode_table, table_len);
        Some(GroupTables {
            block_bitmap,
            inode_bitmap,
            inode_table,
        })
    }

    /// Takes `len` blocks near `goal`, with room behind them for those of the groups that follow;
    /// or anywhere in the flex group.
    fn take_in_flex(&mut self, flex: &Flex, goal: Option<u64>, len: u64) -> Option<u64> {
        let most = u64::from(self.geometry.blocks_per_group) / 4;
        let all = (flex.left * len).min(most);
        let goal = goal.filter(|&goal| goal < self.geometry.blocks);
        let near = goal.and_then(|goal| self.space.first_fit(goal, goal + all, len));
        let start = near
            .or_else(|| self.space.first_fit(flex.start, flex.last, all))
            .or_else(|| self.space.first_fit(flex.start, flex.last, len))
            // A full flex group: the search begins at the volume's first block.
            .unwrap_or(self.geometry.first_block());
        let until = flex.last.max(start + 1);
        let block = self.space.first_fit(start, until, len);
        let block = block.or_else(|| self.space.first_fit(flex.own, until, len))?;
        self.take(block, len);
        Some(block)
    }
}

/// Blocks of group 0 before the superblock.
fn boot_blocks(geometry: &Geometry) -> u64 {
    geometry.superblock_block() - geometry.first_block()
}

/// A flex group, as one of its groups sees it.
struct Flex {
    /// Its first group.
    first: u32,
    /// Its first block and its last.
    start: u64,
    last: u64,
    /// The first block of the group itself.
    own: u64,
    /// How many groups are left, the group itself included.
    left: u64,
    /// From the first block bitmap to the first inode bitmap, and from there to the first table.
    gap: u64,
}

impl Flex {
    fn of(geometry: &Geometry, group: u32) -> Self {
        let size = 1_u32 << geometry.log_groups_per_flex;
        let first = geometry.flex_start(group);
        let last_group = geometry.flex_end(group) - 1;
        // The last flex group is packed, unless it is of one group.
        let gap = match last_group - first {
            0 => size,
            others => others + 1,
        };
        Self {
            first,
            start: geometry.group_blocks(first).start,
            last: geometry.group_blocks(last_group).end - 1,
            own: geometry.group_blocks(group).start,
            left: u64::from(last_group - group + 1),
            gap: u64::from(gap),
        }
    }
}
