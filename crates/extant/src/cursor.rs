//! Reads and writes of an open file at its position: the traits of `std::io`, also for a shared
//! reference.
//!
//! # Concurrency
//! The position is locked for as long as a call takes ([`crate::position`]). So two threads that
//! read from one file get parts that follow each other. Calls with a position of their own
//! ([`File::read_at`]) do not take this lock.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use extant_engine::{Error, Result};

use crate::file::File;

// No position overflows below: no file reaches past 2^63 bytes.

#[inline]
fn read(file: &File, pos: &mut u64, buf: &mut [u8]) -> Result<usize> {
    let done = file.read_at(buf, *pos)?;
    *pos += done as u64;
    Ok(done)
}

fn read_vectored(file: &File, pos: &mut u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
    let done = file.read_vectored_at(bufs, *pos)?;
    *pos += done as u64;
    Ok(done)
}

#[inline]
fn write(file: &File, pos: &mut u64, data: &[u8]) -> Result<usize> {
    let (start, done) = match file.appends() {
        true => file.append(data)?,
        false => (*pos, file.write_at(data, *pos)?),
    };
    *pos = start + done as u64;
    Ok(done)
}

fn write_vectored(file: &File, pos: &mut u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
    let (start, done) = match file.appends() {
        true => file.append_vectored(bufs)?,
        false => (*pos, file.write_vectored_at(bufs, *pos)?),
    };
    *pos = start + done as u64;
    Ok(done)
}

fn seek(file: &File, pos: &mut u64, to: SeekFrom) -> Result<u64> {
    let target = match to {
        SeekFrom::Start(pos) => Some(pos),
        SeekFrom::Current(by) => pos.checked_add_signed(by),
        SeekFrom::End(by) => file.metadata()?.len().checked_add_signed(by),
    };
    *pos = target.ok_or(Error::Invalid)?;
    Ok(*pos)
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(read(self, &mut self.position(), buf)?)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(read_vectored(self, &mut self.position(), bufs)?)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(write(self, &mut self.position(), data)?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(write_vectored(self, &mut self.position(), bufs)?)
    }

    /// Nothing is buffered in the handle; see [`File::sync_all`] for durability.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(seek(self, &mut self.position(), to)?)
    }
}

impl Read for File {
    #[inline]
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.at_position(|file, pos| read(file, pos, buf))?)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(self.at_position(|file, pos| read_vectored(file, pos, bufs))?)
    }
}

impl Write for File {
    #[inline]
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.at_position(|file, pos| write(file, pos, data))?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.at_position(|file, pos| write_vectored(file, pos, bufs))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    #[inline]
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(self.at_position(|file, pos| seek(file, pos, to))?)
    }
}
