//! Journals on devices of their own, which the caller gives.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::features::Incompat;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::{LogMap, inspect};
use extant_units::DevOff;

use crate::error::{Error, Result};

/// The log on `journal`, if it is that of the volume with superblock `sb`.
///
/// # Errors
/// [`Error::OtherJournal`] if it is not; the device fails; a superblock that cannot be used.
pub fn external_log(sb: &Superblock, journal: &Arc<dyn BlockDevice>) -> Result<LogMap> {
    let refused = |why| Err(Error::OtherJournal(why));
    if !sb.has_journal_elsewhere() {
        return refused("the volume has no journal on another device");
    }
    if journal.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return refused("the device holds no journal");
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    journal.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    let Ok(own) = Superblock::parse(&bytes) else {
        return refused("the device holds no journal");
    };
    if !own.features().has_incompat(Incompat::JOURNAL_DEV) {
        return refused("the device holds no journal");
    }
    if own.raw().uuid != sb.raw().journal_uuid {
        return refused("the device holds the journal of another volume");
    }
    let bs = sb.block_size();
    if own.block_size() != bs {
        return refused("the journal has another block size");
    }
    let held = journal.len() / bs.bytes_u64();
    let blocks = u32::try_from(own.blocks_count().get());
    let Some(blocks) = blocks.ok().filter(|&blocks| u64::from(blocks) <= held) else {
        return refused("the device is shorter than the journal");
    };
    // Behind the block of the device's superblock.
    let at = extant_units::at_most_u32(SUPERBLOCK_OFFSET / bs.bytes_u64() + 1);
    let log = LogMap::on_device(Arc::clone(journal), blocks, at);
    if inspect(&**journal, bs, &log)?.first() <= at {
        return refused("the log begins at a block of a superblock");
    }
    Ok(log)
}

/// The same on a private copy of `journal`, of at most `memory` bytes: a replay empties the log.
///
/// # Errors
/// As [`external_log`].
pub fn external_log_copy(
    sb: &Superblock,
    journal: &Arc<dyn BlockDevice>,
    memory: u64,
) -> Result<LogMap> {
    let copy = CowDevice::with_limit(Arc::clone(journal), memory);
    let copy: Arc<dyn BlockDevice> = Arc::new(copy);
    external_log(sb, &copy)
}
