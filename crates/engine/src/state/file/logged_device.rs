//! The device as files with journalled data see it: what the journal has of a block, else the
//! device's.

use std::io;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_jbd2::Journal;
use extant_units::{BlockSize, DevOff, Pblk, index};

/// The device as files with journalled data see it.
pub(crate) struct LoggedDevice {
    dev: Arc<dyn BlockDevice>,
    journal: Arc<Journal>,
    block_size: BlockSize,
}

impl LoggedDevice {
    /// `dev` behind `journal`.
    pub(crate) fn new(
        dev: Arc<dyn BlockDevice>,
        journal: Arc<Journal>,
        block_size: BlockSize,
    ) -> Self {
        Self {
            dev,
            journal,
            block_size,
        }
    }
}

impl BlockDevice for LoggedDevice {
    fn len(&self) -> u64 {
        self.dev.len()
    }

    fn is_read_only(&self) -> bool {
        self.dev.is_read_only()
    }

    /// Reads the device in one piece, and lays the journal's newer versions over it.
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let size = self.block_size.bytes();
        let first = offset.get() >> self.block_size.log2();
        let inside = index(offset.get() & (size as u64 - 1));
        let blocks = (first..).take((inside + buf.len()).div_ceil(size));
        // Asked for before the device is read: a version that is checkpointed in between is the
        // same.
        let newer: Vec<_> = blocks
            .map(|block| self.journal.newer_than_device(Pblk::new(block)))
            .collect();
        if newer.iter().any(Option::is_none) {
            self.dev.read_at(offset, buf)?;
        }
        for (number, data) in newer.iter().enumerate() {
            let Some(data) = data else { continue };
            // The first block may begin before the range.
            let start = (number * size).saturating_sub(inside);
            debug_assert!(start < buf.len(), "each block has bytes of the range");
            let skip = if number == 0 { inside } else { 0 };
            let len = (size - skip).min(buf.len() - start);
            buf[start..start + len].copy_from_slice(&data[skip..skip + len]);
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.dev.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }
}
