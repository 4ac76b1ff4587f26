//! The device that a hostile image is: bytes in memory, and a count of what is read from them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

/// An image as a device.
pub struct Disk {
    len: u64,
    bytes: RwLock<Vec<u8>>,
    read_bytes: AtomicU64,
    read_only: bool,
}

impl Disk {
    /// A device that holds `bytes`.
    pub fn new(bytes: Vec<u8>, read_only: bool) -> Disk {
        Disk {
            len: bytes.len() as u64,
            bytes: RwLock::new(bytes),
            read_bytes: AtomicU64::new(0),
            read_only,
        }
    }

    /// A copy of what it holds now.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Bytes read from it so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }
}

fn range(offset: DevOff, len: usize) -> Option<std::ops::Range<usize>> {
    let from = usize::try_from(offset.get()).ok()?;
    Some(from..from.checked_add(len)?)
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let from = range(offset, buf.len()).and_then(|range| bytes.get(range));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::InvalidInput)?);
        self.read_bytes
            .fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let to = range(offset, buf.len()).and_then(|range| bytes.get_mut(range));
        to.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
