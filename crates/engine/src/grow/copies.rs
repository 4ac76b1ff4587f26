//! The copies of superblock and descriptors in other groups, after a grow.
//!
//! No transaction has their blocks, so they are written to the device directly. A cut on the way
//! leaves copies of the old size, and at most one that is torn: they matter only where the primary
//! superblock is lost.
//!
//! # Invariants
//! The superblock of the first copy is written last, once all else is durable: where it has the
//! volume's size, all copies have it. (Not where two resizes were cut one after the other, the
//! first of them from this size: `extant resize` looks at all copies.)

use extant_disk::geometry::Geometry;
use extant_disk::superblock::{SUPERBLOCK_SIZE, Superblock};
use extant_units::{Blocks, Group, Pblk};
use zerocopy::IntoBytes;

use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Returns whether the first copy is torn or has another number of blocks than the volume: others
/// may be so too. It has more where a resize that made the volume smaller was cut.
///
/// # Errors
/// The device's.
pub(super) fn are_stale(fs: &Fs) -> Result<bool> {
    let layout = &fs.layout;
    let mut groups = (1..layout.groups()).map(Group::new);
    let Some(group) = groups.find(|group| layout.has_superblock(*group)) else {
        return Ok(false);
    };
    let mut copy = [0; SUPERBLOCK_SIZE];
    let at = layout.block_size.dev_off(layout.group_start(group));
    fs.dev.read_at(at.ok_or(Error::Invalid)?, &mut copy)?;
    let blocks = Superblock::parse(&copy).map(|copy| copy.blocks_count().get());
    Ok(!blocks.is_ok_and(|blocks| blocks == layout.end().get()))
}

/// Writes the copies of a volume that has `geometry` now.
///
/// # Errors
/// The device's.
pub(super) fn write(fs: &Fs, geometry: &Geometry) -> Result<()> {
    let layout = &fs.layout;
    let bs = layout.block_size;
    let primary = fs.super_block.read(fs)?;
    let mut block = vec![0; bs.bytes()];
    // Files that were there before own none of these blocks, nor do new ones.
    let offset = |block: Pblk| {
        let is_no_files = !fs.zones.may_map(None, block, Blocks::ONE);
        assert!(
            is_no_files && layout.contains(block, Blocks::ONE),
            "{block:?}"
        );
        bs.dev_off(block).ok_or(Error::Invalid)
    };
    let mut superblock = |group: u32| -> Result<()> {
        if let Some(head) = block.get_mut(..SUPERBLOCK_SIZE) {
            head.copy_from_slice(primary.backup(Group::new(group)).as_bytes());
        }
        let start = Pblk::new(geometry.group_start(group));
        Ok(fs.dev.write_at(offset(start)?, &block)?)
    };
    let first = geometry.backup_groups().next();
    for group in (1..geometry.groups).rev() {
        fs.check_writable()?;
        if let Some((start, blocks)) = geometry.desc_copy(group) {
            for (nth, at) in (0..).zip(blocks) {
                let original = Pblk::new(geometry.desc_block(at));
                let bytes = fs.cache.read_unchecked(original)?.data();
                fs.dev.write_at(offset(Pblk::new(start + nth))?, &bytes)?;
            }
        }
        if geometry.has_backup(group) && Some(group) != first {
            superblock(group)?;
        }
    }
    fs.dev.flush()?;
    if let Some(first) = first {
        superblock(first)?;
    }
    Ok(fs.dev.flush()?)
}
