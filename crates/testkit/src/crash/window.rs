//! A part of a device as a device: in a state of two devices that were recorded together, one of
//! them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, Queueing};
use extant_units::DevOff;

/// The bytes of `part` of a device. It is flushed with all of the device.
pub struct Window<D> {
    device: Arc<D>,
    part: Range<DevOff>,
}

impl<D: BlockDevice> Window<D> {
    /// The bytes of `part` of `device`, which has them.
    pub fn new(device: Arc<D>, part: Range<DevOff>) -> Self {
        assert!(part.end.get() <= device.len(), "the device has the part");
        Self { device, part }
    }

    /// The place on the device of `len` bytes at `offset`.
    fn locate(&self, offset: DevOff, len: usize) -> io::Result<DevOff> {
        let end = offset.checked_add(len as u64);
        match end.is_some_and(|end| end.get() <= self.len()) {
            true => Ok(self.part.start.saturating_add(offset.get())),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn len(&self) -> u64 {
        self.part.end.since(self.part.start)
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(self.locate(offset, buf.len())?, buf)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.device.write_at(self.locate(offset, buf.len())?, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.device.queueing(depth).through_wrapper()
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn a_window_shows_its_part_and_no_more() {
        let device = Arc::new(MemoryDevice::new(4096));
        let window = Window::new(device.clone(), DevOff::new(1024)..DevOff::new(2048));
        assert_eq!(window.len(), 1024);
        window.write_at(DevOff::new(512), &[7; 512]).unwrap();
        let mut bytes = [0; 1024];
        window.read_at(DevOff::ZERO, &mut bytes).unwrap();
        assert_eq!((bytes[511], bytes[512]), (0, 7));
        let all = device.to_bytes();
        let seven = |byte: &u8| *byte == 7;
        assert_eq!(all.iter().position(seven), Some(1536));
        assert_eq!(all.iter().rposition(seven), Some(2047));
        for (at, len) in [(512, 513), (1025, 0), (u64::MAX, 1)] {
            let mut bytes = vec![0; len];
            assert!(window.read_at(DevOff::new(at), &mut bytes).is_err());
            assert!(window.write_at(DevOff::new(at), &bytes).is_err());
        }
    }
}
