//! An external journal: the log on a device of its own, which the mount was given.
//!
//! The device begins with a superblock of ext4 that says so, in the same place as that of a volume.
//! The journal's superblock is the next block. The log's blocks have the numbers of the device's.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::JournalDamage;
use extant_disk::features::Incompat;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::{LogMap, inspect};
use extant_units::DevOff;

use crate::state::volume::Layout;
use crate::types::error::{Error, Location, Result};

/// The log on `device`, which must hold the journal of the volume with the superblock `sb`.
///
/// # Errors
/// [`Error::BadOption`] for a device that is no journal, or that of another volume; damage.
pub(super) fn log_on(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    layout: &Layout,
) -> Result<LogMap> {
    let refused = |why: &str| Err(Error::BadOption(format!("'journal_path': {why}")));
    if device.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return refused("the device is no journal");
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    let journal = match Superblock::parse(&bytes) {
        Ok(journal) if journal.features().has_incompat(Incompat::JOURNAL_DEV) => journal,
        _ => return refused("the device is no journal"),
    };
    if journal.raw().uuid != sb.raw().journal_uuid {
        return refused("the device is the journal of another volume");
    }
    let bs = layout.block_size;
    if journal.block_size() != bs {
        return refused("the journal has another block size");
    }
    let blocks = journal.blocks_count().get();
    let fits = blocks <= device.len() / bs.bytes_u64();
    let Some(blocks) = u32::try_from(blocks).ok().filter(|_| fits) else {
        return refused("the device is shorter than the journal");
    };
    // The block behind that of the superblock.
    let at = SUPERBLOCK_OFFSET / bs.bytes_u64() + 1;
    let at = u32::try_from(at).unwrap_or(u32::MAX);
    let log = LogMap::on_device(Arc::clone(device), blocks, at);
    let superblock = inspect(&**device, bs, &log)?;
    if superblock.first() <= at {
        // The log would be written over the superblocks.
        return refused("the log begins at a block of a superblock");
    }
    let users = superblock.users();
    if users > 1 {
        let damage = JournalDamage::Users { users };
        return Err(Error::corrupt(Location::Journal, damage));
    }
    Ok(log)
}
