//! Reading and writing the journal's superblock: block 0 of the log, or the first behind the
//! superblock of a device of its own.

use extant_blockdev::BlockDevice;
use extant_disk::damage::JournalDamage;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_units::{BlockSize, Blocks, DevOff};

use crate::error::JournalError;
use crate::log_map::LogMap;

/// Reads the journal's superblock and checks it against the device and the log's map.
pub(crate) fn read(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    map: &LogMap,
) -> Result<JournalSuperblock, JournalError> {
    let dev = map.device(dev);
    map.check(Blocks::new(dev.len() >> bs.log2()))?;
    let mut block = vec![0; bs.bytes()];
    dev.read_at(offset(bs, map)?, &mut block)
        .map_err(JournalError::io("reading the journal's superblock"))?;
    Ok(JournalSuperblock::parse(&block, bs, map.len())?)
}

/// Writes the journal's superblock. With `barrier` it is durable, and so is everything that was
/// written to the device before it.
pub(crate) fn write(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    map: &LogMap,
    superblock: &JournalSuperblock,
    barrier: bool,
) -> Result<(), JournalError> {
    let (dev, offset) = (map.device(dev), offset(bs, map)?);
    let bytes = superblock.to_bytes();
    if barrier {
        dev.write_durable(offset, &bytes)
    } else {
        dev.write_at(offset, &bytes)
    }
    .map_err(write_error())
}

/// Writes the journal's superblock as a note, which may get lost: past a failed flush that the
/// device remembers, and without a flush.
pub(crate) fn write_note(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    map: &LogMap,
    superblock: &JournalSuperblock,
) -> Result<(), JournalError> {
    map.device(dev)
        .write_note(offset(bs, map)?, &superblock.to_bytes())
        .map_err(write_error())
}

fn write_error() -> impl FnOnce(std::io::Error) -> JournalError {
    JournalError::io("writing the journal's superblock")
}

fn offset(bs: BlockSize, map: &LogMap) -> Result<DevOff, JournalError> {
    map.superblock()
        .and_then(|p| bs.dev_off(p))
        .ok_or_else(|| JournalDamage::NoBlocks.into())
}
