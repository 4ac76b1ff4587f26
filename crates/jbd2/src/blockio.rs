//! Writing many blocks in few vectored writes.

use std::io::{self, IoSlice};

use extant_blockdev::BlockDevice;
use extant_units::{BlockSize, Pblk};

/// The most blocks in one write: what Linux takes in one call (`UIO_MAXIOV`).
const MAX_BLOCKS: usize = 1024;

/// Writes `blocks` in the order given. Neighbours that are contiguous on the device are written
/// together.
pub(crate) fn write_blocks<'a>(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    blocks: impl IntoIterator<Item = (Pblk, &'a [u8])>,
) -> io::Result<()> {
    let mut run: Vec<IoSlice<'a>> = Vec::new();
    let mut start = Pblk::ZERO;
    let mut next = None;
    for (p, bytes) in blocks {
        debug_assert_eq!(bytes.len(), bs.bytes(), "block {p} is written whole");
        if next != Some(p) || run.len() >= MAX_BLOCKS {
            write_run(dev, bs, start, &run)?;
            run.clear();
            start = p;
        }
        run.push(IoSlice::new(bytes));
        next = p.checked_add(1);
    }
    write_run(dev, bs, start, &run)
}

fn write_run(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    start: Pblk,
    run: &[IoSlice<'_>],
) -> io::Result<()> {
    let offset = bs
        .dev_off(start)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    match run {
        [] => Ok(()),
        [one] => dev.write_at(offset, one),
        many => dev.write_vectored_at(offset, many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::MemoryDevice;
    use extant_units::DevOff;
    use parking_lot::Mutex;

    struct Recording(MemoryDevice, Mutex<Vec<(u64, usize)>>);

    impl BlockDevice for Recording {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
            self.1.lock().push((offset.get() / 1024, 1));
            self.0.write_at(offset, buf)
        }
        fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
            self.1.lock().push((offset.get() / 1024, bufs.len()));
            self.0.write_vectored_at(offset, bufs)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn neighbours_are_written_together() {
        let dev = Recording(MemoryDevice::new(64 << 10), Mutex::default());
        let block = |i: u8| [i; 1024];
        let data: Vec<(u64, [u8; 1024])> = [(3, 1), (4, 2), (5, 3), (9, 4), (2, 5), (3, 6)]
            .map(|(p, i)| (p, block(i)))
            .into();
        let blocks = data.iter().map(|(p, bytes)| (Pblk::new(*p), &bytes[..]));
        write_blocks(&dev, BlockSize::KIB1, blocks).unwrap();
        assert_eq!(*dev.1.lock(), [(3, 3), (9, 1), (2, 2)]);
        let bytes = dev.0.to_bytes();
        let at = |p: usize| bytes[p * 1024];
        assert_eq!([at(2), at(3), at(4), at(5), at(9)], [5, 6, 2, 3, 4]);
        write_blocks(&dev, BlockSize::KIB1, []).unwrap();
    }
}
