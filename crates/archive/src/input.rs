//! The source of an archive's bytes, and how to go past those that are not wanted.

use std::io::{self, Read};

/// The bytes of an archive, in order.
pub trait Input: Read {
    /// Goes past `len` bytes. Returns how many there were: fewer at the end.
    ///
    /// # Errors
    /// Those of the input.
    fn pass(&mut self, len: u64) -> io::Result<u64>;
}

/// An input that is read to go past something.
#[derive(Debug)]
pub struct Stream<R>(pub R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read> Input for Stream<R> {
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        io::copy(&mut (&mut self.0).take(len), &mut io::sink())
    }
}

impl Input for &[u8] {
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.len());
        *self = &self[len..];
        Ok(len as u64)
    }
}
