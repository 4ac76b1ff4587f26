//! Devices, pipes and standard input of the host: what is read or written from its beginning to its
//! end, in order.
//!
//! Such files have no length to go by and no holes: reading ends when they end, and holes are
//! written as zeros.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};

use super::sides::{AnyFile, Sink, Source, UNKNOWN};

/// A file that only goes forward.
pub(super) struct Stream {
    file: RefCell<File>,
    at: Cell<u64>,
}

impl Stream {
    pub(super) fn new(file: File) -> Stream {
        Stream {
            file: RefCell::new(file),
            at: Cell::new(0),
        }
    }

    /// Writes zeros up to `pos`.
    fn fill(&self, pos: u64) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        while self.at.get() < pos {
            let left = usize::try_from(pos - self.at.get()).unwrap_or(usize::MAX);
            self.put(&ZEROS[..left.min(ZEROS.len())])?;
        }
        Ok(())
    }

    fn put(&self, data: &[u8]) -> io::Result<()> {
        self.file.borrow_mut().write_all(data)?;
        self.at.set(self.at.get() + data.len() as u64);
        Ok(())
    }
}

impl Source for Stream {
    fn read_at(&self, buf: &mut [u8], _: u64) -> io::Result<usize> {
        self.file.borrow_mut().read(buf)
    }

    fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
        Ok(Some((pos, UNKNOWN)))
    }

    fn len_now(&self) -> io::Result<u64> {
        Ok(UNKNOWN)
    }
}

impl<'a> Sink<'a> for Stream {
    fn write_at(&self, data: &[u8], pos: u64) -> io::Result<()> {
        self.fill(pos)?;
        self.put(data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fill(len)
    }

    fn file(&self) -> Option<&AnyFile<'a>> {
        None
    }
}
