//! The copies of superblock and descriptors in other groups, written anew from the originals.

use extant_disk::superblock::SUPERBLOCK_SIZE;
use extant_units::{Group, Pblk};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::image::Image;

/// Writes the copies of the superblock at the start of `groups`.
pub(crate) fn superblocks(image: &Image, groups: &[Group]) -> Result<()> {
    for group in groups {
        // Nothing is harmed: this is the private copy.
        assert!(
            group.get() > 0 && image.sb.has_backup(*group),
            "a copy, not the first"
        );
        let copy = image.sb.raw().backup(*group);
        image.edit(start(image, *group), |block| {
            block
                .get_mut(..SUPERBLOCK_SIZE)?
                .copy_from_slice(copy.as_bytes());
            Some(())
        })?;
    }
    Ok(())
}

/// Writes the copies of descriptors in `groups`: all behind a copy of the superblock, or those of a
/// meta group.
pub(crate) fn descriptors(image: &Image, groups: &[Group]) -> Result<()> {
    let geometry = image.geometry();
    for group in groups {
        let copy = geometry.desc_copy(group.get());
        // Nothing is harmed: this is the private copy.
        let (start, blocks) = copy.expect("a group with a copy of descriptors");
        for (nth, at) in (0..).zip(blocks) {
            let block = image.block(Pblk::new(geometry.desc_block(at)))?;
            image.put(Pblk::new(start + nth), &block)?;
        }
    }
    Ok(())
}

fn start(image: &Image, group: Group) -> Pblk {
    let blocks = u64::from(group.get()) * u64::from(image.sb.blocks_per_group());
    image.sb.first_data_block().plus(blocks)
}
