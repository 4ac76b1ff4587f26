//! Reading the blocks of a log by their number in the log.

use extant_blockdev::BlockDevice;
use extant_disk::damage::JournalDamage;
use extant_disk::jbd2::Format;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_units::{BlockSize, Pblk};

use crate::error::JournalError;
use crate::log_map::LogMap;
use crate::ring::Ring;

/// Reads blocks of a log.
pub(super) struct LogReader<'a> {
    /// The device of the file system.
    pub(super) dev: &'a dyn BlockDevice,
    pub(super) bs: BlockSize,
    map: &'a LogMap,
    pub(super) format: Format,
    pub(super) ring: Ring,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(
        dev: &'a dyn BlockDevice,
        bs: BlockSize,
        map: &'a LogMap,
        superblock: &JournalSuperblock,
    ) -> Self {
        Self {
            dev,
            bs,
            map,
            format: superblock.format(),
            ring: Ring::new(superblock.first(), superblock.end()),
        }
    }

    /// The device block of log block `at`.
    pub(super) fn location(&self, at: u32) -> Result<Pblk, JournalError> {
        let block = self.map.block(at).filter(|&p| self.bs.dev_off(p).is_some());
        Ok(block.ok_or(JournalDamage::NoBlock { at })?)
    }

    /// Reads log block `at` into `block`.
    pub(super) fn read(&self, at: u32, block: &mut [u8]) -> Result<(), JournalError> {
        let offset = self
            .bs
            .dev_off(self.location(at)?)
            .ok_or(JournalDamage::NoBlock { at })?;
        self.map
            .device(self.dev)
            .read_at(offset, block)
            .map_err(JournalError::io("reading the log"))
    }

    /// A buffer for one block.
    pub(super) fn buffer(&self) -> Vec<u8> {
        vec![0; self.bs.bytes()]
    }
}
