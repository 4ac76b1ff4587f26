//! A device that keeps metadata and forgets data: the cost of everything above a device.
//!
//! Data is what is written in large pieces or begins with a mark, and everything that comes through
//! a queue: direct I/O of blocks that are there.

use std::io::{self, IoSlice};

use extant_blockdev::{BlockDevice, Completion, IoBuf, IoQueue, IoRequest, MemoryDevice, Queueing};
use extant_units::DevOff;

/// Writes of this many bytes at once are data.
const DATA: usize = 128 << 10;

/// The beginning of data that is written in small pieces. No metadata begins so.
const MARK: &[u8] = b"data of a bench\n";

/// A buffer of data that a null device knows in small pieces as well.
pub(crate) fn marked(len: usize) -> IoBuf {
    let mut buf = IoBuf::zeroed(len);
    if let Some(begin) = buf.get_mut(..MARK.len()) {
        begin.copy_from_slice(MARK);
    }
    buf
}

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
        if buf.len() >= DATA || buf.starts_with(MARK) {
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
        Queueing::Own(Box::new(NullQueue {
            depth,
            over: Vec::with_capacity(depth),
        }))
    }
}

/// A queue whose requests are over at once, and do nothing.
struct NullQueue {
    depth: usize,
    over: Vec<Completion>,
}

impl IoQueue for NullQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.over.len()
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.over.len() >= self.depth {
            return Err(request);
        }
        self.over.push(Completion {
            tag: request.tag,
            buf: request.buf,
            result: Ok(()),
        });
        Ok(())
    }

    fn reap(&mut self, _min: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_is_forgotten() {
        let device = NullData(MemoryDevice::new(1 << 20));
        let (metadata, data) = ([7; 4096], marked(4096));
        device.write_at(DevOff::new(0), &metadata).unwrap();
        device.write_at(DevOff::new(4096), &data).unwrap();
        device.write_at(DevOff::new(8192), &vec![7; DATA]).unwrap();
        let mut read = [1; 8192 + DATA];
        device.read_at(DevOff::new(0), &mut read).unwrap();
        assert_eq!(read[..4096], metadata);
        assert!(read[4096..].iter().all(|byte| *byte == 0));
    }
}
