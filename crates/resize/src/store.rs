//! Storing what is kept apart while a volume is resized: bitmaps, descriptors and superblock.

use extant_disk::bitmap;
use extant_disk::features::Incompat;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_jbd2::LogMap;
use extant_units::{Blocks, Group, at_most_u32, index};

use crate::error::Result;
use crate::volume::{Volume, edit_super};

impl Volume {
    /// Stores bitmaps, descriptors and superblock in the copy.
    pub(crate) fn store(&mut self) -> Result<()> {
        let size = self.raw_desc_size();
        self.store_block_bitmaps(size)?;
        self.store_inode_bitmaps(size)?;
        self.store_descriptors(size)?;
        self.store_super()
    }

    fn raw_desc_size(&self) -> usize {
        match self.old.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            true => usize::from(self.raw.desc_size.get()),
            false => 32,
        }
    }

    fn store_block_bitmaps(&mut self, size: usize) -> Result<()> {
        let covered = index(u64::from(self.new.blocks_per_group) / 8);
        for group in self.bits.keys().copied().collect::<Vec<u32>>() {
            let Some(bits) = self.bits.get(&group).filter(|bits| bits.changed) else {
                continue;
            };
            let range = self.new.group_blocks(group);
            let free = bitmap::count_clear(&bits.now, at_most_u32(range.end - range.start));
            let supers = at_most_u32(self.new.head_blocks(group));
            // A group with nothing but the copies at its start needs no bitmap on the device.
            let bare = u64::from(free) + u64::from(supers) == u64::from(self.new.blocks_per_group)
                && group >= self.old.groups
                && self.new.features.group_csum();
            let sum = self.checksum.of_bitmap(&bits.now[..covered]);
            let now = bits.now.clone();
            let desc = self.desc_mut(group)?;
            desc.free_blocks = free;
            desc.flags.set(GroupFlags::BLOCK_UNINIT, bare);
            desc.block_bitmap_csum = 0;
            let at = desc.block_bitmap.get();
            if !bare {
                // Without `metadata_csum` the field is zero.
                desc.block_bitmap_csum = GroupDesc::stored_bitmap_csum(sum.unwrap_or(0), size);
                self.put(at, &now)?;
            }
        }
        Ok(())
    }

    fn store_inode_bitmaps(&mut self, size: usize) -> Result<()> {
        let covered = index(u64::from(self.new.inodes_per_group) / 8);
        for (group, bits) in self.inode_bits.clone() {
            let sum = self.checksum.of_bitmap(&bits[..covered]);
            let free = bitmap::count_clear(&bits, self.new.inodes_per_group);
            let desc = self.desc_mut(group)?;
            desc.free_inodes = free;
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            // Without `metadata_csum` the field is zero.
            desc.inode_bitmap_csum = GroupDesc::stored_bitmap_csum(sum.unwrap_or(0), size);
            let at = desc.inode_bitmap.get();
            self.put(at, &bits)?;
        }
        Ok(())
    }

    fn store_descriptors(&mut self, size: usize) -> Result<()> {
        let per_block = self.block_bytes() / size;
        let start = self.new.first_block() + 1;
        let mut groups = (0..self.new.groups).zip(&self.groups);
        for at in 0..u64::from(self.new.desc_blocks) {
            let mut block = match at < u64::from(self.old.desc_blocks) {
                true => self.block(start + at)?,
                false => vec![0; self.block_bytes()],
            };
            for (nth, slot) in block.chunks_exact_mut(size).take(per_block).enumerate() {
                // Descriptors of groups that are gone, or were never there, are zeros.
                let number = at * per_block as u64 + nth as u64;
                if number >= u64::from(self.old.groups.min(self.new.groups)) {
                    slot.fill(0);
                }
                if let Some((group, desc)) = groups.next() {
                    desc.store(slot, Group::new(group), &self.checksum);
                }
            }
            self.put(start + at, &block)?;
        }
        Ok(())
    }

    /// Stores the superblock in the copy.
    pub(crate) fn store_super(&mut self) -> Result<()> {
        let free: u64 = self
            .groups
            .iter()
            .map(|desc| u64::from(desc.free_blocks))
            .sum();
        let inodes: u64 = self
            .groups
            .iter()
            .map(|desc| u64::from(desc.free_inodes))
            .sum();
        let new = &self.new;
        let journal = self.log.as_ref().map_or(0, LogMap::len);
        let raw = &mut self.raw;
        new.store_size(raw);
        raw.set_free_blocks_count(Blocks::new(free));
        raw.free_inodes_count.set(at_most_u32(inodes));
        if raw.overhead_blocks.get() != 0 {
            let overhead = new.first_block() + new.metadata() + journal;
            // A count past 32 bits becomes zero: then a mount computes it.
            raw.overhead_blocks
                .set(u32::try_from(overhead).unwrap_or(0));
        }
        let raw = raw.clone();
        edit_super(&*self.dev, |stored| *stored = raw)
    }
}
