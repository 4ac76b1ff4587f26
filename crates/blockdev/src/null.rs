//! A device that stores nothing.

use std::io;

use extant_units::DevOff;

use crate::device::{BlockDevice, check_range};
use crate::queue::Queueing;

/// A device that discards writes and reads as zeros.
pub(crate) struct NullDevice {
    len: u64,
}

impl NullDevice {
    /// A device of `len` bytes.
    pub(crate) const fn new(len: u64) -> Self {
        Self { len }
    }
}

impl BlockDevice for NullDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        check_range(offset, buf.len(), self.len)?;
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        check_range(offset, buf.len(), self.len)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn queueing(&self, _depth: usize) -> Queueing {
        Queueing::Immediate
    }
}
