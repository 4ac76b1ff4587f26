//! Plain memory: the limit that everything else is held against.

use extant_testkit::{Error, Result};

use super::{Counters, Data, Place, VECTORS};

/// Buffers that are kept and used again, so that none of their bytes is touched for the first time while measured.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Answers reads with zeros instead of copying.
    pub(crate) zeros: bool,
}

/// A buffer.
struct Buffer {
    bytes: Vec<u8>,
    pos: usize,
    zeros: bool,
}

impl Place for Memory {
    fn open(&mut self, _name: &str) -> Result<Box<dyn Data>> {
        Ok(Box::new(Buffer::new(self.zeros)))
    }

    fn renew(&mut self, name: &str, old: Option<Box<dyn Data>>) -> Result<Box<dyn Data>> {
        old.map_or_else(|| self.open(name), Ok)
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn opener(&mut self, _name: &str) -> Result<Box<dyn Data + Send>> {
        // A buffer of its own: copies do not share anything but memory.
        Ok(Box::new(Buffer::new(self.zeros)))
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn new(zeros: bool) -> Buffer {
        Buffer {
            bytes: Vec::new(),
            pos: 0,
            zeros,
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8], at: usize) -> Result<()> {
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 1);
        }
        let to = self.bytes.get_mut(at..end);
        to.ok_or_else(outside)?
            .copy_from_slice(std::hint::black_box(bytes));
        Ok(())
    }
}

fn outside() -> Error {
    Error::new("outside of the buffer")
}

impl Data for Buffer {
    #[inline]
    fn pwrite(&mut self, bytes: &[u8], pos: u64) -> Result<()> {
        self.put(bytes, usize::try_from(pos)?)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, self.pos)?;
        self.pos += bytes.len();
        Ok(())
    }

    #[inline]
    fn writev(&mut self, bytes: &[u8]) -> Result<()> {
        (0..VECTORS).try_for_each(|_| self.write(bytes))
    }

    #[inline]
    fn rewind(&mut self, pos: u64) -> Result<()> {
        self.pos = std::hint::black_box(usize::try_from(pos)?);
        Ok(())
    }

    #[inline]
    fn pread(&mut self, buf: &mut [u8], pos: u64) -> Result<()> {
        if self.zeros {
            buf.fill(0);
            std::hint::black_box(buf);
            return Ok(());
        }
        let at = usize::try_from(pos)?;
        let from = self.bytes.get(at..at + buf.len());
        buf.copy_from_slice(from.ok_or_else(outside)?);
        std::hint::black_box(buf);
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.bytes.resize(usize::try_from(len)?, 1);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn cool(&mut self) -> Result<()> {
        Ok(())
    }
}
