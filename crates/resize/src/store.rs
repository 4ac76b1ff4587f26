//! Storing what stands apart from the copy while a volume is resized: bitmaps, descriptors and
//! superblock.

use extant_disk::bitmap;
use extant_disk::features::Incompat;
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_jbd2::LogMap;
use extant_units::{Blocks, Group, at_most_u32, index};

use crate::error::Result;
use crate::groups::parts_of;
use crate::volume::{Volume, edit_super};

impl Volume {
    /// Stores bitmaps, descriptors and superblock in the copy.
    pub(crate) fn store(&mut self) -> Result<()> {
        let size = self.raw_desc_size();
        self.store_block_bitmaps(size)?;
        self.store_inode_bitmaps(size)?;
        self.assert_conserved();
        self.assert_apart();
        self.store_descriptors(size)?;
        self.store_super()
    }

    /// Asserts that as many blocks, inodes and directories are in use as before, but for metadata
    /// of groups, maps and the journal. The check has found the counts of the old volume right.
    /// Nothing is harmed: so far, only free blocks of the device were written.
    fn assert_conserved(&self) {
        let sum = |groups: &[GroupDesc], count: fn(&GroupDesc) -> u32| -> i128 {
            groups.iter().map(|desc| i128::from(count(desc))).sum()
        };
        let of_files = |groups: &[GroupDesc], geometry: &Geometry| {
            let first = geometry.first_block();
            let all = geometry.clusters_for(geometry.blocks - first);
            let own = i128::from(own_clusters(groups, geometry));
            let clusters = i128::from(all) - own - sum(groups, |desc| desc.free_blocks);
            clusters << geometry.cluster_bits
        };
        assert_eq!(self.groups.len(), self.new.groups as usize, "of all groups");
        assert_eq!(
            of_files(&self.groups, &self.new),
            of_files(&self.was, &self.old) + self.blocks_added,
            "files have as many blocks as before, and what their maps need"
        );
        let used_inodes = |groups: &[GroupDesc], geometry: &Geometry| {
            i128::from(geometry.inodes()) - sum(groups, |desc| desc.free_inodes)
        };
        assert_eq!(
            used_inodes(&self.groups, &self.new),
            used_inodes(&self.was, &self.old),
            "as many inodes are in use as before"
        );
        assert_eq!(
            sum(&self.groups, |desc| desc.used_dirs),
            sum(&self.was, |desc| desc.used_dirs),
            "as many directories are counted as before"
        );
    }

    /// Asserts that bitmaps, tables and the starts of groups share no block and lie in the volume.
    /// The check has found that of the old volume. Nothing is harmed, as above.
    fn assert_apart(&self) {
        let (new, parts) = (&self.new, self.own_parts());
        for pair in parts.windows(2) {
            assert!(
                pair[0].end <= pair[1].start,
                "{pair:?}: two parts share a block"
            );
        }
        assert!(
            parts.last().is_none_or(|last| last.end <= new.blocks),
            "all metadata lies in the new volume"
        );
    }

    fn raw_desc_size(&self) -> usize {
        match self.old.features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
            true => usize::from(self.raw.desc_size.get()),
            false => 32,
        }
    }

    fn store_block_bitmaps(&mut self, size: usize) -> Result<()> {
        let covered = index(u64::from(self.new.clusters_per_group()) / 8);
        for group in self.bits.keys().copied().collect::<Vec<u32>>() {
            let Some(bits) = self.bits.get(&group).filter(|bits| bits.changed) else {
                continue;
            };
            let free = bitmap::count_clear(&bits.now, self.new.group_clusters(group));
            assert_eq!(
                free, bits.free,
                "group {group}: each block was taken and released once"
            );
            let bare = self.needs_no_bitmap(group, free);
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
        let mut groups = (0..self.new.groups).zip(&self.groups);
        for at in 0..self.new.desc_blocks {
            let place = self.new.desc_block(at);
            let mut block = match at < self.old.desc_blocks {
                true => self.block(place)?,
                false => vec![0; self.block_bytes()],
            };
            for (nth, slot) in block.chunks_exact_mut(size).take(per_block).enumerate() {
                // Descriptors of groups that are gone, or were never there, are zeros.
                let number = u64::from(at) * per_block as u64 + nth as u64;
                if number >= u64::from(self.old.groups.min(self.new.groups)) {
                    slot.fill(0);
                }
                if let Some((group, desc)) = groups.next() {
                    desc.store(slot, Group::new(group), &self.checksum);
                }
            }
            self.put(place, &block)?;
        }
        assert!(groups.next().is_none(), "each descriptor has a slot");
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
        let free = free << new.cluster_bits;
        assert!(free <= new.in_whole_clusters(new.blocks) && inodes <= u64::from(new.inodes()));
        let journal = self.log.as_ref().map_or(0, LogMap::len);
        let raw = &mut self.raw;
        new.store_size(raw);
        raw.set_free_blocks_count(Blocks::new(free));
        raw.free_inodes_count.set(at_most_u32(inodes));
        if raw.overhead_blocks.get() != 0 {
            let own = own_clusters(&self.groups, new);
            let overhead = new.first_block() + own + new.clusters_for(journal);
            // A count past 32 bits becomes zero: then a mount computes it.
            raw.overhead_blocks
                .set(u32::try_from(overhead).unwrap_or(0));
        }
        let raw = raw.clone();
        edit_super(&*self.dev, |stored| *stored = raw)
    }
}

/// Clusters that have metadata of groups.
fn own_clusters(groups: &[GroupDesc], geometry: &Geometry) -> u64 {
    let (mut clusters, mut next) = (0, 0);
    for part in parts_of(groups, geometry) {
        let run = geometry.whole_clusters(&part);
        clusters += geometry.clusters_for(run.end.saturating_sub(run.start.max(next)));
        next = next.max(run.end);
    }
    clusters
}
