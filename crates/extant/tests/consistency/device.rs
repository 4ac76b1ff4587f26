//! A device in memory that takes its time in the middle of every block.

use std::io;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_units::DevOff;

/// Bytes that arrive at once.
const PIECE: usize = 1024;

pub(crate) struct Piecemeal(MemoryDevice);

impl Piecemeal {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(MemoryDevice::from_bytes(bytes))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(self.0.len()).unwrap()];
        self.0.read_at(DevOff::ZERO, &mut all).unwrap();
        all
    }
}

/// Offsets of each piece of a request.
fn places(offset: DevOff) -> impl Iterator<Item = DevOff> {
    (0..).map(move |piece: u64| DevOff::new(offset.get() + piece * PIECE as u64))
}

impl BlockDevice for Piecemeal {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        for (at, piece) in places(offset).zip(buf.chunks_mut(PIECE)) {
            self.0.read_at(at, piece)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        for (at, piece) in places(offset).zip(buf.chunks(PIECE)) {
            self.0.write_at(at, piece)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
