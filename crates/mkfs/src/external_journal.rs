//! The journal of a new volume, on a device of its own.
//!
//! A volume names its journal by the UUID, and the journal has a list of its users, of which it can
//! serve one.

use std::path::{Path, PathBuf};

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_disk::features::Incompat;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_units::{BlockSize, DevOff, exact_u32};

use crate::error::{Error, Result};

/// A journal that a new volume uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalJournal {
    /// Path of the device, or of the file.
    pub path: PathBuf,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Bytes of its blocks, and so of the volume's.
    pub block_size: u32,
    /// The number of the device as Linux stores it; zero for a file.
    pub number: u32,
}

/// The block of a journal's superblock, behind that of the device's.
pub(crate) fn log_block(bs: BlockSize) -> u64 {
    SUPERBLOCK_OFFSET / bs.bytes_u64() + 1
}

impl ExternalJournal {
    /// Reads the journal on the device or in the file at `path`, for a volume that is to use it.
    ///
    /// # Errors
    /// It is in use, holds no journal, or one that is damaged or that another volume uses.
    pub fn open(path: &Path) -> Result<Self> {
        let device = FileDevice::open(path, OpenMode::ReadOnly)?;
        let (bs, log) = read(&device).map_err(|why| refused(path, why))?;
        if log.users() > 0 {
            return Err(refused(path, "it is the journal of another volume"));
        }
        Ok(Self {
            path: path.to_owned(),
            uuid: log.uuid(),
            block_size: exact_u32(bs.bytes_u64()),
            number: number_of(path)?,
        })
    }

    /// Makes the volume with `uuid` the user of the journal.
    ///
    /// # Errors
    /// As [`ExternalJournal::open`]: it may have changed since.
    pub(crate) fn serve(&self, uuid: [u8; 16]) -> Result<()> {
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite)?;
        let (bs, mut log) = read(&device).map_err(|why| refused(&self.path, why))?;
        if log.uuid() != self.uuid || log.users() > 0 {
            return Err(refused(&self.path, "it is the journal of another volume"));
        }
        log.set_user(uuid);
        let at = DevOff::new(log_block(bs) * bs.bytes_u64());
        Ok(device.write_durable(at, &log.to_bytes())?)
    }
}

fn refused(path: &Path, why: impl Into<String>) -> Error {
    Error::BadJournal {
        path: path.to_owned(),
        why: why.into(),
    }
}

/// The block size and the superblock of the journal on `device`, or why there is none.
fn read(device: &dyn BlockDevice) -> std::result::Result<(BlockSize, JournalSuperblock), String> {
    let none = || String::from("it holds no journal: mkfs -O journal_dev makes one");
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(none());
    }
    let failed = |error: std::io::Error| error.to_string();
    let at = DevOff::new(SUPERBLOCK_OFFSET);
    device.read_at(at, &mut bytes).map_err(failed)?;
    let sb = Superblock::parse(&bytes).map_err(|_| none())?;
    if !sb.features().has_incompat(Incompat::JOURNAL_DEV) {
        return Err(none());
    }
    let (bs, blocks) = (sb.block_size(), sb.blocks_count().get());
    let at = log_block(bs) * bs.bytes_u64();
    if blocks > device.len() / bs.bytes_u64() || at + bs.bytes_u64() > device.len() {
        return Err(String::from("the device is shorter than its journal"));
    }
    let mut block = vec![0; bs.bytes()];
    device
        .read_at(DevOff::new(at), &mut block)
        .map_err(failed)?;
    let log = JournalSuperblock::parse(&block, bs, blocks).map_err(|error| error.to_string())?;
    if log.start() != 0 {
        return Err(String::from("it has transactions that wait for a replay"));
    }
    if u64::from(log.first()) <= log_block(bs) {
        return Err(String::from("its log begins at a block of a superblock"));
    }
    Ok((bs, log))
}

/// The number of a block device as Linux stores it in 32 bits.
fn number_of(path: &Path) -> Result<u32> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = path.metadata()?;
    match metadata.file_type().is_block_device() {
        // Minor numbers of more than 20 bits do not occur.
        true => Ok(u32::try_from(metadata.rdev()).unwrap_or(0)),
        false => Ok(0),
    }
}
