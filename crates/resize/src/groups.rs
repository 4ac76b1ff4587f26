//! The metadata of groups: of those that are new, that are cut off, and that has to move.

use std::ops::Range;

use extant_disk::features::{Compat, Incompat};
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_units::{Ino, Pblk, at_most_u32};

use crate::error::{Error, Result};
use crate::extents::one;
use crate::files::RESIZE;
use crate::pointers::{numbers, words};
use crate::volume::Volume;

/// The slot of the resize inode that leads to all of its blocks.
const DOUBLE_INDIRECT: usize = 13;

impl Volume {
    /// Takes what the new volume needs at the starts of groups, and moves the ends of groups.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let common = self.old.groups.min(self.new.groups);
        for group in 0..common {
            let start = self.old.start(group);
            let (old, new) = (self.old.super_blocks(group), self.new.super_blocks(group));
            if old < new {
                self.take(start + old..start + new)?;
            }
        }
        // The last group of one of the two may be larger in the other.
        if self.old.range(common - 1) != self.new.range(common - 1) {
            self.touch(common - 1)?;
        }
        Ok(())
    }

    /// Adds the new groups, with bitmaps and tables of each flex group together.
    pub(crate) fn add_groups(&mut self) -> Result<()> {
        let flex = self.new.features().has_incompat(Incompat::FLEX_BG);
        let mut group = self.old.groups;
        while group < self.new.groups {
            let end = match flex {
                true => self.new.flex_end(group),
                false => group + 1,
            };
            self.add_flex_group(group..end)?;
            group = end;
        }
        Ok(())
    }

    fn add_flex_group(&mut self, groups: Range<u32>) -> Result<()> {
        for group in groups.clone() {
            let range = self.new.range(group);
            let len = range.end - range.start;
            let free = len - self.new.super_blocks(group).min(len);
            // Whole groups with nothing but the copies at their start have no bitmap in memory.
            let bare = self.new.features().group_csum() && len == self.new.per_group();
            let mut desc = GroupDesc {
                free_blocks: at_most_u32(free),
                ..GroupDesc::default()
            };
            desc.flags.set(GroupFlags::BLOCK_UNINIT, bare);
            self.groups.push(desc);
            if !bare {
                self.touch(group)?;
            }
        }
        let within = self.new.start(groups.start)..self.new.range(groups.end - 1).end;
        // Each search goes on where the one before it ended: those of a flex group are as many as
        // its groups.
        self.cursor = groups.start;
        for group in groups.clone() {
            let block = self.place(group, &within, 1)?;
            self.desc_mut(group)?.block_bitmap = block;
        }
        for group in groups.clone() {
            let block = self.place(group, &within, 1)?;
            self.desc_mut(group)?.inode_bitmap = block;
        }
        for group in groups {
            let block = self.place(group, &within, self.new.table_blocks)?;
            self.desc_mut(group)?.inode_table = block;
            self.clear_table(group)?;
        }
        Ok(())
    }

    /// Takes blocks for the metadata of a new group.
    fn place(&mut self, group: u32, within: &Range<u64>, len: u64) -> Result<Pblk> {
        let near = self.take_whole(len, within)?;
        let own = self.new.range(group);
        let block = match near {
            None => self.take_whole(len, &own)?,
            near => near,
        };
        block
            .map(Pblk::new)
            .ok_or(Error::NoRoom("the new groups' metadata"))
    }

    /// A new group's inodes: none.
    fn clear_table(&mut self, group: u32) -> Result<()> {
        let (csum, len) = (self.new.features().group_csum(), self.new.table_blocks);
        let (per_group, bits) = (self.new.inodes_per_group(), self.no_inodes());
        let (log2, zeros_from) = (self.old.block_size().log2(), self.zeros_from);
        let desc = self.desc_mut(group)?;
        desc.free_inodes = per_group;
        let table = desc.inode_table.get();
        let is_zero = table << log2 >= zeros_from;
        if csum {
            desc.itable_unused = per_group;
            desc.flags.insert(GroupFlags::INODE_UNINIT);
            desc.flags.set(GroupFlags::ITABLE_ZEROED, is_zero);
        } else {
            self.inode_bits.insert(group, bits);
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
            let within = match self.new.features().has_incompat(Incompat::FLEX_BG) {
                true => self.anywhere(!self.format.wide_blocks),
                false => self.new.range(group),
            };
            let block_bitmap = self.move_metadata(desc.block_bitmap, 1, &within)?;
            let inode_bitmap = self.move_metadata(desc.inode_bitmap, 1, &within)?;
            let len = self.old.table_blocks;
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
        if !self.must_move(&run) {
            return Ok(at);
        }
        let to = self.take_whole(len, within)?;
        let to = to.ok_or(Error::NoRoom("a group's bitmaps and inode table"))?;
        self.copy(at.get(), to, len)?;
        self.give_up(run)?;
        Ok(Pblk::new(to))
    }

    /// Frees what groups that are cut off have in those that stay, and the starts of groups that
    /// the new volume needs no more.
    pub(crate) fn drop_groups(&mut self) -> Result<()> {
        let cut: Vec<GroupDesc> = self.groups.drain(self.new.groups as usize..).collect();
        for desc in cut {
            let len = self.old.table_blocks;
            for run in [
                one(desc.block_bitmap),
                one(desc.inode_bitmap),
                desc.inode_table.get()..desc.inode_table.get() + len,
            ] {
                self.give_up(run)?;
            }
        }
        for group in 0..self.new.groups.min(self.old.groups) {
            let start = self.old.start(group);
            let (old, new) = (self.old.super_blocks(group), self.new.super_blocks(group));
            if new < old {
                self.release(start + new..start + old)?;
            }
        }
        Ok(())
    }

    /// Lets the resize inode lead to the reserve behind the descriptors, in all groups that have
    /// one.
    pub(crate) fn store_resize_inode(&mut self) -> Result<()> {
        let Some(ino) = Ino::new(RESIZE) else {
            return Ok(());
        };
        if !self.new.features().has_compat(Compat::RESIZE_INODE) {
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
        let (per_block, reserved) = ((len / 4) as u64, self.new.reserved_gdt);
        let first = self.reserve_start().get();
        let copies = self.new.backups().take(len / 4);
        let copies: Vec<u64> = copies
            .map(|group| u64::from(group) * self.new.per_group())
            .collect();
        let mut leads_to = vec![0; len / 4];
        for at in 0..reserved {
            let slot = extant_units::index((self.new.desc_blocks + at) % per_block);
            if let Some(slot) = leads_to.get_mut(slot) {
                *slot = first + at;
            }
            let others = copies.iter().map(|offset| first + at + offset);
            self.put(first + at, &numbers(others, len)?)?;
        }
        self.put(double.get(), &numbers(leads_to.into_iter(), len)?)?;
        let slots = (0..15).map(|slot| match slot {
            DOUBLE_INDIRECT => double.get(),
            _ => 0,
        });
        let root = numbers(slots, core.i_block.len())?;
        core.i_block.copy_from_slice(&root);
        core.sectors = (1 + reserved * (1 + copies.len() as u64)) * (len as u64 / 512);
        self.put_inode(ino, &core)
    }
}
