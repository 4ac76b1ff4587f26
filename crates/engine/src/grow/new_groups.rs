//! Groups that are added to a mounted volume: their bitmaps and tables on the device, and what the
//! allocators have to know of them.
//!
//! Everything here lies behind the volume's end: no file and no transaction has any of it, so it is
//! written to the device directly.

use extant_blockdev::BlockDevice;
use extant_disk::bitmap;
use extant_disk::geometry::NewGroups;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_units::{Group, Pblk};

use crate::state::volume::{Layout, Zone};
use crate::types::error::{Error, Result};

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

/// Writes bitmaps and tables, and makes them durable.
///
/// # Errors
/// The device's.
pub(super) fn write(dev: &dyn BlockDevice, new: &NewGroups) -> Result<()> {
    let bs = new.geometry().block_size;
    let at = |block: Pblk| bs.dev_off(block).ok_or(Error::Invalid);
    let table = u64::from(new.geometry().itable_blocks) << bs.log2();
    for (group, desc) in new.descriptors() {
        dev.write_at(at(desc.block_bitmap)?, &new.block_bitmap(group))?;
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let inodes = bitmap::of_free(bs, new.geometry().inodes_per_group);
            dev.write_at(at(desc.inode_bitmap)?, &inodes)?;
        }
        dev.write_zeroes(at(desc.inode_table)?, table)?;
    }
    Ok(dev.flush()?)
}
