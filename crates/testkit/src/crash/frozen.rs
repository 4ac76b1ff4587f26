//! The bytes of a device at one moment, shared by many states.

use std::io;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::DevOff;

/// Immutable bytes as a device. Cloning shares them.
#[derive(Clone)]
pub struct Frozen(pub(super) Arc<Vec<u8>>);

impl Frozen {
    /// A device that holds `bytes` for good.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }
}

impl BlockDevice for Frozen {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let source = usize::try_from(offset.get())
            .ok()
            .and_then(|at| self.0.get(at..at.checked_add(buf.len())?))
            .ok_or(io::ErrorKind::InvalidInput)?;
        buf.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, _offset: DevOff, _buf: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
