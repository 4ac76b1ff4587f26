//! A device that keeps metadata and forgets data: the cost of everything above a device.

use std::io::{self, IoSlice};

use extant_blockdev::{BlockDevice, MemoryDevice, Queueing};
use extant_units::DevOff;

/// Writes of this many bytes at once are data.
const DATA: usize = 128 << 10;

/// Large writes go nowhere, all else is kept. A file system on it works until it is mounted again.
pub(crate) struct NullData(pub(crate) MemoryDevice);

impl BlockDevice for NullData {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        if buf.len() >= DATA {
            return Ok(());
        }
        self.0.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() >= DATA {
            return Ok(());
        }
        self.0.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.0.queueing(depth).through_wrapper()
    }
}
