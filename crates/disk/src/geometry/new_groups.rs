//! Groups to be added: where their bitmaps and inode tables lie, and what these hold.
//!
//! As mke2fs does, the bitmaps and tables of a flex group lie together, behind what its first new
//! group begins with. A table may lie in two groups; what a group begins with is stepped over.

use core::ops::Range;

use extant_units::{Group, Pblk};

use super::Geometry;
use crate::bitmap;
use crate::group_desc::{GroupDesc, GroupFlags};

/// The blocks of one group's bitmaps and inode table.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GroupTables {
    /// The block of the block bitmap.
    pub block_bitmap: u64,
    /// The block of the inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
}

/// The plan of a volume's last groups, which are new. They are complete: no group of a flex group
/// comes later, and nothing but their own metadata lies in them.
pub struct NewGroups {
    geometry: Geometry,
    groups: Range<u32>,
    tables: Vec<GroupTables>,
    /// The runs of blocks of metadata, in order.
    parts: Vec<Range<u64>>,
}

impl NewGroups {
    /// The plan of the groups from `first` on to the last one of `geometry`. `None` if their
    /// metadata does not fit into them.
    pub fn plan(geometry: &Geometry, first: u32) -> Option<Self> {
        let groups = first..geometry.groups;
        // An image may have groups that are shorter than the copies that they begin with.
        let is_short = |group| geometry.head(group).end > geometry.group_blocks(group).end;
        if groups.clone().any(is_short) {
            return None;
        }
        let mut new = Self {
            geometry: geometry.clone(),
            tables: vec![GroupTables::default(); groups.len()],
            parts: Vec::with_capacity(4 * groups.len()),
            groups: groups.clone(),
        };
        let mut at = first;
        while at < groups.end {
            let end = geometry.flex_end(at);
            new.plan_flex_group(at..end)?;
            at = end;
        }
        new.parts.extend(groups.map(|group| geometry.head(group)));
        new.parts.retain(|part| !part.is_empty());
        new.parts.sort_unstable_by_key(|part| part.start);
        new.assert_apart();
        Some(new)
    }

    /// Chooses the blocks of a flex group, or of what is new of it.
    fn plan_flex_group(&mut self, groups: Range<u32>) -> Option<()> {
        let end = self.geometry.group_blocks(groups.end - 1).end;
        let mut at = self.geometry.group_start(groups.start);
        let first = (groups.start - self.groups.start) as usize;
        let table_len = u64::from(self.geometry.itable_blocks);
        let mut next = |len: u64| -> Option<u64> {
            let run = first_fit(&self.geometry, at, len)?;
            at = run.end;
            self.parts.push(run.clone());
            (run.end <= end).then_some(run.start)
        };
        let tables = self.tables.get_mut(first..first + groups.len())?;
        for one in tables.iter_mut() {
            one.block_bitmap = next(1)?;
        }
        for one in tables.iter_mut() {
            one.inode_bitmap = next(1)?;
        }
        for one in tables.iter_mut() {
            one.inode_table = next(table_len)?;
        }
        Some(())
    }

    /// Asserts what the executors rely on. A plan is computed before anything is written, so an
    /// assertion that fails harms no volume; no field of a superblock leads to one.
    fn assert_apart(&self) {
        let new = self.geometry.group_start(self.groups.start)..self.geometry.blocks;
        for pair in self.parts.windows(2) {
            assert!(pair[0].end <= pair[1].start, "no two parts share a block");
        }
        if let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) {
            assert!(
                new.start <= first.start && last.end <= new.end,
                "new groups have all of their metadata in themselves"
            );
        }
        assert_eq!(
            self.metadata(),
            self.groups.clone().map(|g| self.geometry.overhead(g)).sum(),
            "the metadata of each group has its blocks"
        );
    }

    /// The geometry of the volume with them.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The numbers of the groups.
    pub fn groups(&self) -> Range<u32> {
        self.groups.clone()
    }

    /// The runs of blocks of metadata, in order.
    pub fn parts(&self) -> &[Range<u64>] {
        &self.parts
    }

    /// Blocks of metadata.
    pub fn metadata(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// Blocks that are free for files: those of whole free clusters.
    pub fn free_blocks(&self) -> u64 {
        let geometry = &self.geometry;
        let clusters = self
            .groups
            .clone()
            .map(|group| u64::from(self.free_in(group)));
        let free = clusters.sum::<u64>() << geometry.cluster_bits;
        // The last cluster of the volume may be shorter, and is free unless metadata has it.
        let missing = geometry.in_whole_clusters(geometry.blocks) - geometry.blocks;
        let last = geometry.cluster_start(geometry.blocks - 1);
        match self.parts.last().is_some_and(|part| part.end > last) {
            true => free,
            false => free - missing,
        }
    }

    /// The groups and their descriptors, with counts of what is free and no flag but that of an
    /// inode bitmap that is not written. Checksums of bitmaps are the executor's.
    pub fn descriptors(&self) -> impl Iterator<Item = (Group, GroupDesc)> {
        let inodes = self.geometry.inodes_per_group;
        let has_flags = self.geometry.features.group_csum();
        self.groups
            .clone()
            .zip(&self.tables)
            .map(move |(group, tables)| {
                let mut desc = GroupDesc {
                    block_bitmap: Pblk::new(tables.block_bitmap),
                    inode_bitmap: Pblk::new(tables.inode_bitmap),
                    inode_table: Pblk::new(tables.inode_table),
                    free_blocks: self.free_in(group),
                    free_inodes: inodes,
                    ..GroupDesc::default()
                };
                if has_flags {
                    desc.flags.insert(GroupFlags::INODE_UNINIT);
                    desc.itable_unused = inodes;
                }
                (Group::new(group), desc)
            })
    }

    /// The parts of metadata in `group`, as bits of its bitmap, in order. Two parts may share one.
    fn bits_of(&self, group: u32) -> impl Iterator<Item = Range<u32>> {
        let blocks = self.geometry.group_blocks(group);
        let from = self.parts.partition_point(|part| part.end <= blocks.start);
        let mine = self.parts.iter().skip(from);
        let mine = mine.take_while(move |part| part.start < blocks.end);
        mine.map(move |part| self.geometry.cluster_bits_of(group, part))
    }

    /// Clusters of `group` that are free.
    fn free_in(&self, group: u32) -> u32 {
        let (mut used, mut end) = (0, 0);
        for bits in self.bits_of(group) {
            used += bits.end.saturating_sub(bits.start.max(end));
            end = end.max(bits.end);
        }
        self.geometry.group_clusters(group) - used
    }

    /// The block bitmap of `group`: its metadata, and what lies behind its end.
    pub fn block_bitmap(&self, group: Group) -> Vec<u8> {
        let len = self.geometry.group_clusters(group.get());
        let mut bits = bitmap::of_free(self.geometry.block_size, len);
        for part in self.bits_of(group.get()) {
            bitmap::set_range(&mut bits, part);
        }
        bits
    }
}

/// The first `len` blocks from `from` on that are not of a group's head; they may lie behind the
/// end of the volume.
fn first_fit(geometry: &Geometry, from: u64, len: u64) -> Option<Range<u64>> {
    let mut at = from;
    let mut group = geometry.group_of(from);
    while geometry.group_start(group) < at + len {
        let head = geometry.head(group);
        if !head.is_empty() && head.end > at {
            at = head.end;
        }
        group = group.checked_add(1)?;
    }
    Some(at..at + len)
}
