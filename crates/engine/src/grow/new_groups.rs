//! Groups to be added: where their bitmaps and inode tables come, and what is written there.
//!
//! As mke2fs does, the bitmaps and tables of a flex group lie together, behind what its first new
//! group begins with. Everything here lies behind the volume's end: no file and no transaction has
//! any of it, so it is written to the device directly.

use std::ops::Range;

use extant_blockdev::BlockDevice;
use extant_disk::bitmap;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_units::{BlockSize, Group, Pblk, at_most_u32};

use crate::state::volume::{Layout, Zone};
use crate::types::error::{Error, Result};

/// Blocks for data that a last group must have, or it is left out: mke2fs's and resize2fs's rule.
const LEAST_DATA: u64 = 50;

/// Groups behind the last one, complete: no group of a flex group comes later.
pub(super) struct NewGroups<'a> {
    layout: &'a Layout,
    /// Their numbers.
    pub(super) groups: Range<u32>,
    /// One past the last block of the last one.
    pub(super) end: u64,
    /// Their descriptors.
    pub(super) descs: Vec<GroupDesc>,
    /// The blocks of the format among theirs, in order.
    parts: Vec<Range<u64>>,
}

/// The end that a volume of at most `end` blocks gets: a last new group that is too small for its
/// own metadata and some data is left out.
pub(super) fn worthwhile_end(layout: &Layout, end: u64) -> u64 {
    let old = layout.end().get();
    let group = group_of(layout, end.saturating_sub(1));
    let start = layout.group_start(Group::new(group)).get();
    let metadata = head(layout, group) + 2 + u64::from(layout.itable_blocks);
    match start < old || end - start >= metadata + LEAST_DATA {
        true => end,
        false => start,
    }
}

/// The group of `block`, which may lie behind the end.
pub(super) fn group_of(layout: &Layout, block: u64) -> u32 {
    let at = block.saturating_sub(layout.first_data_block.get());
    at_most_u32(at / u64::from(layout.blocks_per_group))
}

/// Blocks at the start of `group` that copies of superblock and descriptors take.
fn head(layout: &Layout, group: u32) -> u64 {
    u64::from(layout.full_head_blocks(Group::new(group)))
}

fn start(layout: &Layout, group: u32) -> u64 {
    layout.group_start(Group::new(group)).get()
}

impl<'a> NewGroups<'a> {
    /// The groups `groups` of a volume that ends, or goes on, at block `end`.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if their metadata does not fit into them.
    pub(super) fn plan(layout: &'a Layout, groups: Range<u32>, end: u64) -> Result<Self> {
        let mut new = Self {
            layout,
            end: end.min(start(layout, groups.end)),
            descs: vec![GroupDesc::default(); groups.len()],
            parts: Vec::new(),
            groups,
        };
        let flex = 1_u64 << layout.flex_bits;
        let mut first = new.groups.start;
        while first < new.groups.end {
            let next = (u64::from(first) / flex + 1) * flex;
            let next = at_most_u32(next).min(new.groups.end);
            new.place(first..next)?;
            first = next;
        }
        for group in new.groups.clone() {
            let at = start(layout, group);
            new.parts.push(at..at + head(layout, group));
        }
        new.parts.retain(|part| !part.is_empty());
        new.parts.sort_unstable_by_key(|part| part.start);
        new.count();
        Ok(new)
    }

    /// Places the metadata of a flex group, or of a lone group.
    fn place(&mut self, groups: Range<u32>) -> Result<()> {
        let mut at = start(self.layout, groups.start);
        let within = at..start(self.layout, groups.end).min(self.end);
        let table = u64::from(self.layout.itable_blocks);
        for part in 0..3 {
            let len = if part == 2 { table } else { 1 };
            for group in groups.clone() {
                let block = self.room(at, len, &within)?;
                at = block + len;
                self.parts.push(block..at);
                let index = (group - self.groups.start) as usize;
                if let Some(desc) = self.descs.get_mut(index) {
                    let field = match part {
                        0 => &mut desc.block_bitmap,
                        1 => &mut desc.inode_bitmap,
                        _ => &mut desc.inode_table,
                    };
                    *field = Pblk::new(block);
                }
            }
        }
        Ok(())
    }

    /// The first block from `from` on that has `len` blocks without a copy of the superblock.
    fn room(&self, from: u64, len: u64, within: &Range<u64>) -> Result<u64> {
        let layout = self.layout;
        let mut at = from;
        let mut group = group_of(layout, at);
        while start(layout, group) < at + len {
            let head_end = start(layout, group) + head(layout, group);
            if start(layout, group) < head_end && head_end > at {
                at = head_end;
            }
            group += 1;
        }
        match at + len <= within.end {
            true => Ok(at),
            false => Err(Error::NotSupported(
                "growing by groups that have no room for their own bitmaps and inode tables",
            )),
        }
    }

    /// Fills in counts and flags.
    fn count(&mut self) {
        let inodes = self.layout.inodes_per_group;
        for (group, index) in self.groups.clone().zip(0..) {
            let bits = self.bits_in_use(group);
            let len = self.len(group);
            let free = bitmap::count_clear(&bits, at_most_u32(len));
            let Some(desc) = self.descs.get_mut(index) else {
                continue;
            };
            desc.free_blocks = free;
            desc.free_inodes = inodes;
            // The tables are cleared before the group is there.
            desc.flags = GroupFlags::ITABLE_ZEROED;
            if self.layout.uninit_groups() {
                desc.flags.insert(GroupFlags::INODE_UNINIT);
                desc.itable_unused = inodes;
            }
            let covered = (self.layout.blocks_per_group / 8) as usize;
            let covered = bits.get(..covered).unwrap_or(&bits);
            if let Some(full) = self.layout.group_checksum.of_bitmap(covered) {
                desc.block_bitmap_csum = GroupDesc::stored_bitmap_csum(full, self.layout.desc_size);
            }
        }
    }

    /// Blocks of `group`.
    fn len(&self, group: u32) -> u64 {
        let first = start(self.layout, group);
        let full = u64::from(self.layout.blocks_per_group);
        self.end.saturating_sub(first).min(full)
    }

    /// The block bitmap of `group`: what is the format's own, and what is behind the end.
    fn bits_in_use(&self, group: u32) -> Vec<u8> {
        let (first, len) = (start(self.layout, group), self.len(group));
        let mut bits = vec![0; self.layout.block_size.bytes()];
        let all = self.layout.block_size.bytes_u64() * 8;
        bitmap::set_range(&mut bits, at_most_u32(len)..at_most_u32(all));
        let from = self.parts.partition_point(|part| part.end <= first);
        let mine = self.parts.iter().skip(from);
        for part in mine.take_while(|part| part.start < first + len) {
            let within = part.start.max(first) - first..part.end.min(first + len) - first;
            bitmap::set_range(
                &mut bits,
                at_most_u32(within.start)..at_most_u32(within.end),
            );
        }
        bits
    }

    /// Blocks of the format among these groups'.
    pub(super) fn metadata(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// Blocks that are free for files.
    pub(super) fn free_blocks(&self) -> u64 {
        let free = |desc: &GroupDesc| u64::from(desc.free_blocks);
        self.descs.iter().map(free).sum()
    }

    /// The groups and their descriptors.
    pub(super) fn each(&self) -> impl Iterator<Item = (Group, &GroupDesc)> {
        self.groups.clone().map(Group::new).zip(&self.descs)
    }

    /// The blocks that no file may own.
    pub(super) fn zones(&self) -> Vec<Zone> {
        let zone = |part: &Range<u64>| Zone {
            start: Pblk::new(part.start),
            end: Pblk::new(part.end),
            owner: None,
        };
        self.parts.iter().map(zone).collect()
    }

    /// Writes bitmaps and tables, and makes them durable.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write(&self, dev: &dyn BlockDevice) -> Result<()> {
        let bs = self.layout.block_size;
        let table = u64::from(self.layout.itable_blocks) << bs.log2();
        for (group, desc) in self.each() {
            dev.write_at(
                bs.dev_off(desc.block_bitmap).ok_or(Error::Invalid)?,
                &self.bits_in_use(group.get()),
            )?;
            if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                let inodes = inode_bitmap(bs, self.layout.inodes_per_group);
                dev.write_at(
                    bs.dev_off(desc.inode_bitmap).ok_or(Error::Invalid)?,
                    &inodes,
                )?;
            }
            dev.write_zeroes(bs.dev_off(desc.inode_table).ok_or(Error::Invalid)?, table)?;
        }
        Ok(dev.flush()?)
    }
}

/// The bitmap of `inodes` free inodes.
fn inode_bitmap(bs: BlockSize, inodes: u32) -> Vec<u8> {
    let mut bits = vec![0; bs.bytes()];
    let all = at_most_u32(bs.bytes_u64() * 8);
    bitmap::set_range(&mut bits, inodes..all);
    bits
}
