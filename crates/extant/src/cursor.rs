//! Reads and writes of an open file at its position: the traits of `std::io`, also for a shared
//! reference.
//!
//! # Concurrency
//! The position is locked for as long as a call takes, as that of a descriptor in Linux. So two
//! threads that read from one file get parts that follow each other. Calls with a position of their
//! own ([`File::read_at`]) do not take this lock.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use extant_engine::Error;

use crate::file::File;

// No position overflows below: no file reaches past 2^63 bytes.

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut pos = self.position();
        let done = self.read_at(buf, *pos)?;
        *pos += done as u64;
        Ok(done)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut pos = self.position();
        let done = self.read_vectored_at(bufs, *pos)?;
        *pos += done as u64;
        Ok(done)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut pos = self.position();
        let (start, done) = match self.appends() {
            true => self.append(data)?,
            false => (*pos, self.write_at(data, *pos)?),
        };
        *pos = start + done as u64;
        Ok(done)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pos = self.position();
        let (start, done) = match self.appends() {
            true => self.append_vectored(bufs)?,
            false => (*pos, self.write_vectored_at(bufs, *pos)?),
        };
        *pos = start + done as u64;
        Ok(done)
    }

    /// Nothing is buffered in the handle; see [`File::sync_all`] for durability.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut pos = self.position();
        let target = match to {
            SeekFrom::Start(pos) => Some(pos),
            SeekFrom::Current(by) => pos.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        *pos = target.ok_or(Error::Invalid)?;
        Ok(*pos)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
