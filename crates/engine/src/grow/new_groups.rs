//! Groups that are added to a mounted volume: their bitmaps and tables on the device, and what the
//! allocators have to know of them.
//!
//! Everything here lies behind the volume's end: no file and no transaction has any of it, so it is
//! written to the device directly.

use extant_blockdev::BlockDevice;
use extant_disk::bitmap;
use extant_disk::geometry::{Geometry, NewGroups};
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_units::{Group, Pblk};

use crate::state::volume::{Layout, Zone};
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The groups and their descriptors, as they are stored.
pub(super) fn descriptors(layout: &Layout, new: &NewGroups) -> Vec<(Group, GroupDesc)> {
    let covered = (layout.blocks_per_group / 8) as usize;
    let stored = |(group, mut desc): (Group, GroupDesc)| {
        // The tables are cleared before the group is there.
        desc.flags.insert(GroupFlags::ITABLE_ZEROED);
        let bits = new.block_bitmap(group);
        let covered = bits.get(..covered).unwrap_or(&bits);
        if let Some(full) = layout.group_checksum.of_bitmap(covered) {
            desc.block_bitmap_csum = GroupDesc::stored_bitmap_csum(full, layout.desc_size);
        }
        (group, desc)
    };
    new.descriptors().map(stored).collect()
}

/// The blocks that no file may own.
pub(super) fn zones(new: &NewGroups) -> Vec<Zone> {
    let zone = |part: &core::ops::Range<u64>| Zone {
        start: Pblk::new(part.start),
        end: Pblk::new(part.end),
        owner: None,
    };
    new.parts().iter().map(zone).collect()
}

/// Asserts that the volume gets from `old` to `new` by what `groups` have. Called before anything
/// is written. The last group of `old` is full.
pub(super) fn assert_sums(old: &Geometry, new: &Geometry, groups: &[(Group, GroupDesc)]) {
    let numbers = groups.iter().map(|(group, _)| group.get());
    assert!(
        numbers.eq(old.groups..new.groups),
        "each new group is added once, in order"
    );
    let free: u64 = groups
        .iter()
        .map(|(_, desc)| u64::from(desc.free_blocks))
        .sum();
    let used: u64 = (old.groups..new.groups)
        .map(|group| new.overhead(group))
        .sum();
    assert_eq!(
        old.blocks + used + free,
        new.blocks,
        "blocks before, and those added"
    );
    let inodes: u32 = groups.iter().map(|(_, desc)| desc.free_inodes).sum();
    assert_eq!(
        old.inodes() + inodes,
        new.inodes(),
        "inodes before, and those added"
    );
}

/// Writes bitmaps and tables. All of them lie behind the end of `old`.
///
/// # Errors
/// The device's.
pub(super) fn write(dev: &dyn BlockDevice, old: &Geometry, new: &NewGroups) -> Result<()> {
    let bs = new.geometry().block_size;
    let at = |block: Pblk| {
        assert!(block.get() >= old.blocks, "{block:?} is of the old volume");
        bs.dev_off(block).ok_or(Error::Invalid)
    };
    let table = u64::from(new.geometry().itable_blocks) << bs.log2();
    for (group, desc) in new.descriptors() {
        dev.write_at(at(desc.block_bitmap)?, &new.block_bitmap(group))?;
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let inodes = bitmap::of_free(bs, new.geometry().inodes_per_group);
            dev.write_at(at(desc.inode_bitmap)?, &inodes)?;
        }
        dev.write_zeroes(at(desc.inode_table)?, table)?;
    }
    Ok(())
}

/// Writes the blocks of descriptors that lie behind the end of `old`: those of new meta groups.
/// `groups` are the new groups.
///
/// # Errors
/// The device's.
pub(super) fn write_descriptors(
    fs: &Fs,
    old: &Geometry,
    new: &NewGroups,
    groups: &[(Group, GroupDesc)],
) -> Result<()> {
    let (layout, geometry) = (&fs.layout, new.geometry());
    let per_block = geometry.descs_per_block() as usize;
    for at in old.desc_blocks..geometry.desc_blocks {
        let block = Pblk::new(geometry.desc_block(at));
        if block.get() < old.blocks {
            continue; // in the table
        }
        let mut bytes = vec![0; layout.block_size.bytes()];
        let before = at as usize * per_block - old.groups as usize;
        let of_block = groups.iter().skip(before).take(per_block);
        for (slot, (group, desc)) in bytes.chunks_exact_mut(layout.desc_size).zip(of_block) {
            desc.store(slot, *group, &layout.group_checksum);
        }
        let offset = layout.block_size.dev_off(block).ok_or(Error::Invalid)?;
        fs.dev.write_at(offset, &bytes)?;
    }
    Ok(())
}
