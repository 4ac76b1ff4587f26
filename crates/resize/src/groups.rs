//! The metadata of groups: of those that are new, that are cut off, and that has to move.

use std::ops::Range;

use extant_disk::features::{Compat, Incompat};
use extant_disk::geometry::{Geometry, NewGroups};
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_units::{Ino, Pblk};

use crate::error::{Error, Result};
use crate::extents::one;
use crate::files::RESIZE;
use crate::pointers::{numbers, words};
use crate::volume::Volume;

/// The slot of the resize inode that leads to all of its blocks.
const DOUBLE_INDIRECT: usize = 13;

/// The blocks of starts of groups, of bitmaps and tables, in order.
pub(crate) fn parts_of(groups: &[GroupDesc], geometry: &Geometry) -> Vec<Range<u64>> {
    let table = u64::from(geometry.itable_blocks);
    let own = |(group, desc): (u32, &GroupDesc)| {
        let run = |block: Pblk, len: u64| block.get()..block.get().saturating_add(len);
        let mut head = geometry.head(group);
        head.end = head.end.min(geometry.group_blocks(group).end);
        [
            head,
            run(desc.block_bitmap, 1),
            run(desc.inode_bitmap, 1),
            run(desc.inode_table, table),
        ]
    };
    let mut parts: Vec<_> = (0..geometry.groups).zip(groups).flat_map(own).collect();
    parts.retain(|part| !part.is_empty());
    parts.sort_unstable_by_key(|part| part.start);
    parts
}

impl Volume {
    /// Takes what the new volume needs at the starts of groups, and moves the ends of groups.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let common = self.old.groups.min(self.new.groups);
        for group in 0..common {
            let start = self.old.group_start(group);
            let (old, new) = (self.old.head_blocks(group), self.new.head_blocks(group));
            if old < new {
                self.claim(start + old..start + new)?;
            }
        }
        // The last group of one of the two may be larger in the other, and needs a bitmap.
        let last = common - 1;
        let differs = self.old.group_blocks(last) != self.new.group_blocks(last);
        if differs || common == self.new.groups {
            self.touch(last)?;
        }
        Ok(())
    }

    /// Adds the new groups.
    pub(crate) fn add_groups(&mut self) -> Result<()> {
        if self.new.groups <= self.old.groups {
            return Ok(());
        }
        let plan = NewGroups::plan(&self.new, self.old.groups);
        let plan = plan.ok_or(Error::NoRoom("the new groups' metadata"))?;
        assert_eq!(
            self.groups.len(),
            self.old.groups as usize,
            "none is added yet"
        );
        for (group, mut desc) in plan.descriptors() {
            let group = group.get();
            let bare = self.needs_no_bitmap(group, desc.free_blocks);
            desc.flags.set(GroupFlags::BLOCK_UNINIT, bare);
            self.groups.push(desc);
            if !bare {
                self.touch(group)?;
            }
        }
        assert_eq!(self.groups.len(), self.new.groups as usize, "all are added");
        let heads = plan.groups().map(|group| self.new.head_blocks(group));
        let mut left = plan.metadata() - heads.sum::<u64>();
        for (_, desc) in plan.descriptors() {
            let table = desc.inode_table.get()..;
            for run in [
                one(desc.block_bitmap),
                one(desc.inode_bitmap),
                table.start..table.start + u64::from(self.new.itable_blocks),
            ] {
                left -= run.end - run.start;
                match self.new.cluster_bits {
                    0 => self.take(run)?,
                    _ => self.claim(run)?,
                }
            }
        }
        assert_eq!(left, 0, "each block of the plan is taken once");
        for group in plan.groups() {
            self.clear_table(group)?;
        }
        // Behind the last table there is room for what moves.
        let last = self.desc(self.new.groups - 1)?.inode_table;
        self.cursor = self.new.group_of(last.get());
        Ok(())
    }

    /// Returns whether a new group with so many free clusters needs no bitmap on the device: it has
    /// nothing but the copies at its start. The last group has one in any case, as mke2fs makes it.
    pub(crate) fn needs_no_bitmap(&self, group: u32, free: u32) -> bool {
        let head = self.new.clusters_for(self.new.head_blocks(group));
        let is_bare = u64::from(free) + head == u64::from(self.new.clusters_per_group());
        let is_new = group >= self.old.groups && group + 1 < self.new.groups;
        is_bare && is_new && self.new.features.group_csum()
    }

    /// A new group's inodes: none.
    fn clear_table(&mut self, group: u32) -> Result<()> {
        let len = u64::from(self.new.itable_blocks);
        let (log2, zeros_from) = (self.old.block_size.log2(), self.zeros_from);
        let has_flags = self.new.features.group_csum();
        let desc = self.desc_mut(group)?;
        let table = desc.inode_table.get();
        let is_zero = table << log2 >= zeros_from;
        if has_flags {
            desc.flags.set(GroupFlags::ITABLE_ZEROED, is_zero);
        } else {
            self.inode_bits.insert(group, self.no_inodes());
            if !is_zero {
                self.clear(&(table..table + len))?;
            }
        }
        Ok(())
    }

    /// Moves bitmaps and tables of groups that stay out of what is not the new volume's.
    pub(crate) fn move_tables(&mut self) -> Result<()> {
        for group in 0..self.old.groups.min(self.new.groups) {
            let desc = *self.desc(group)?;
            let within = match self.new.features.has_incompat(Incompat::FLEX_BG) {
                true => self.anywhere(!self.format.wide_blocks),
                false => self.new.group_blocks(group),
            };
            let block_bitmap = self.move_metadata(desc.block_bitmap, 1, &within)?;
            let inode_bitmap = self.move_metadata(desc.inode_bitmap, 1, &within)?;
            let len = u64::from(self.old.itable_blocks);
            let inode_table = self.move_metadata(desc.inode_table, len, &within)?;
            let desc = self.desc_mut(group)?;
            desc.block_bitmap = block_bitmap;
            desc.inode_bitmap = inode_bitmap;
            desc.inode_table = inode_table;
        }
        Ok(())
    }

    fn move_metadata(&mut self, at: Pblk, len: u64, within: &Range<u64>) -> Result<Pblk> {
        let run = at.get()..at.get() + len;
        if !self.must_move_own(&run) {
            return Ok(at);
        }
        let to = self.take_whole(len, within)?;
        let to = to.ok_or(Error::NoRoom("a group's bitmaps and inode table"))?;
        self.copy(at.get(), to, len)?;
        self.loose.push(run);
        Ok(Pblk::new(to))
    }

    /// Frees what groups that are cut off have in those that stay, and the starts of groups that
    /// the new volume needs no more.
    pub(crate) fn drop_groups(&mut self) -> Result<()> {
        let cut: Vec<GroupDesc> = self.groups.drain(self.new.groups as usize..).collect();
        assert_eq!(
            cut.len(),
            self.old.groups.saturating_sub(self.new.groups) as usize,
            "a group that is cut off is one of the old volume"
        );
        for desc in cut {
            let len = u64::from(self.old.itable_blocks);
            for run in [
                one(desc.block_bitmap),
                one(desc.inode_bitmap),
                desc.inode_table.get()..desc.inode_table.get() + len,
            ] {
                self.loose.push(run);
            }
        }
        for group in 0..self.new.groups.min(self.old.groups) {
            let start = self.old.group_start(group);
            let (old, new) = (self.old.head_blocks(group), self.new.head_blocks(group));
            if new < old {
                self.loose.push(start + new..start + old);
            }
        }
        self.release_loose()
    }

    /// Frees the clusters of metadata that was moved or cut off, where none is left.
    fn release_loose(&mut self) -> Result<()> {
        let mut loose: Vec<_> = (std::mem::take(&mut self.loose).into_iter())
            .map(|run| self.new.whole_clusters(&run))
            .filter(|run| run.start < self.new.blocks)
            .collect();
        loose.sort_unstable_by_key(|run| run.start);
        let parts = self.own_parts();
        let mut next = 0;
        for run in loose {
            // Two that were moved may have shared a cluster.
            let mut at = run.start.max(next);
            next = next.max(run.end);
            let from = parts.partition_point(|part| self.new.whole_clusters(part).end <= at);
            for part in parts.iter().skip(from) {
                let part = self.new.whole_clusters(part);
                if part.start >= run.end || at >= run.end {
                    break;
                }
                self.release(at..part.start.max(at))?;
                at = at.max(part.end);
            }
            self.release(at.min(run.end)..run.end)?;
        }
        Ok(())
    }

    /// The blocks of starts of groups, of bitmaps and tables, as they become: in order.
    pub(crate) fn own_parts(&self) -> Vec<Range<u64>> {
        parts_of(&self.groups, &self.new)
    }

    /// Lets the resize inode lead to the reserve behind the descriptors, in all groups that have
    /// one.
    pub(crate) fn store_resize_inode(&mut self) -> Result<()> {
        let Some(ino) = Ino::new(RESIZE) else {
            return Ok(());
        };
        if !self.new.features.has_compat(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let mut core = self.inode(ino)?;
        let double = words(&core.i_block).nth(DOUBLE_INDIRECT);
        let mut double = Pblk::new(double.expect("an inode has 15 words").into());
        if self.must_move(&one(double)) {
            let within = self.anywhere(true);
            let to = self.take_whole(1, &within)?;
            let to = Pblk::new(to.ok_or(Error::NoRoom("the resize inode"))?);
            self.give_up(one(double))?;
            double = to;
        }
        let len = self.block_bytes();
        for block in self.new.reserved_descriptors() {
            let copies = self.new.copies_of_reserved(block);
            self.put(block, &numbers(copies.into_iter(), len)?)?;
        }
        let leads_to = self.new.resize_inode_map();
        self.put(double.get(), &numbers(leads_to.into_iter(), len)?)?;
        let slots = (0..15).map(|slot| match slot {
            DOUBLE_INDIRECT => double.get(),
            _ => 0,
        });
        let root = numbers(slots, core.i_block.len())?;
        core.i_block.copy_from_slice(&root);
        core.sectors = self.new.resize_inode_blocks() * (len as u64 / 512);
        self.put_inode(ino, &core)
    }
}
