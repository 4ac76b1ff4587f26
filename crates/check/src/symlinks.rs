//! The targets of symbolic links: in the inode, in a block, or beside the inode's attributes.

use extant_disk::damage::InodeDamage;
use extant_disk::inode::{InodeCore, InodeFlags};

use crate::contexts::is_encrypted_target;
use crate::error::Result;
use crate::maps::Map;
use crate::volume::Volume;

/// Damage of a link of `size` bytes with the map `map`: the target ends where the size says, in the
/// inode or in the only block.
pub(crate) fn damage(
    volume: &Volume,
    core: &InodeCore,
    size: u64,
    map: &Map,
) -> Result<impl Iterator<Item = InodeDamage> + use<>> {
    let blocks = map.runs.iter().map(|run| u64::from(run.len)).sum();
    // The map has no blocks of its own either.
    let too_many = blocks > 1 || blocks == 1 && map.claimed > 1;
    let target = match map.runs.first() {
        None => core.i_block.to_vec(),
        Some(run) if run.lblk.get() == 0 && !run.unwritten => volume.block(run.pblk)?,
        Some(_) => Vec::new(),
    };
    let end = target.iter().position(|byte| *byte == 0);
    let is_whole = match core.flags.contains(InodeFlags::ENCRYPT) {
        true => is_encrypted_target(&target, size),
        false => size > 0 && end.map(|end| end as u64) == Some(size),
    };
    let of_blocks = too_many.then_some(InodeDamage::SymlinkBlocks { blocks });
    let of_size = (!is_whole).then_some(InodeDamage::SymlinkTargetSize { size });
    Ok(of_blocks.into_iter().chain(of_size))
}

/// Damage of a link whose target is `data`, inside of the inode.
pub(crate) fn damage_inside(core: &InodeCore, data: &[u8], size: u64) -> Option<InodeDamage> {
    match core.flags.contains(InodeFlags::ENCRYPT) {
        true if is_encrypted_target(data, size) => None,
        false if size > 0 && data.contains(&0) => Some(InodeDamage::SymlinkTargetNul { size }),
        false if size > 0 => None,
        _ => Some(InodeDamage::SymlinkTargetSize { size }),
    }
}

/// Returns whether the target lies in the inode itself.
pub(crate) fn is_fast(volume: &Volume, core: &InodeCore, attribute_clusters: u64) -> bool {
    let blocks = attribute_clusters << volume.sb.cluster_bits();
    let own = blocks * (volume.sb.block_size().bytes_u64() / 512);
    !core.flags.contains(InodeFlags::EXTENTS) && core.sectors <= own && core.disk_size < 60
}
