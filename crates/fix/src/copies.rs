//! The copies of superblock and descriptors in other groups, written anew from the originals.
//!
//! As mke2fs leaves them: a copy is not marked as unmounted cleanly, so that a volume is checked
//! that is mounted by it, and waits for no recovery.

use extant_disk::features::Incompat;
use extant_disk::superblock::{SUPERBLOCK_SIZE, State};
use extant_units::{Group, Pblk};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::image::Image;

/// Writes the copies of the superblock at the start of `groups`.
pub(crate) fn superblocks(image: &Image, groups: &[Group]) -> Result<()> {
    for group in groups {
        let mut copy = image.sb.raw().clone();
        let mut features = copy.features();
        features.incompat.remove(Incompat::RECOVER);
        copy.set_features(features);
        copy.set_state(copy.state() - State::VALID - State::ERROR);
        // The field has 16 bits; the low ones are kept, as mke2fs does.
        let [low, high, ..] = group.get().to_le_bytes();
        copy.block_group_nr = u16::from_le_bytes([low, high]).into();
        copy.seal();
        image.edit(start(image, *group), |block| {
            block
                .get_mut(..SUPERBLOCK_SIZE)?
                .copy_from_slice(copy.as_bytes());
            Some(())
        })?;
    }
    Ok(())
}

/// Writes the copies of all descriptors behind the superblock's in `groups`.
pub(crate) fn descriptors(image: &Image, groups: &[Group]) -> Result<()> {
    let (first, count) = image.descriptors();
    for at in 0..u64::from(count) {
        let block = image.block(first.plus(at))?;
        for group in groups {
            image.put(start(image, *group).plus(1 + at), &block)?;
        }
    }
    Ok(())
}

fn start(image: &Image, group: Group) -> Pblk {
    let blocks = u64::from(group.get()) * u64::from(image.sb.blocks_per_group());
    image.sb.first_data_block().plus(blocks)
}
