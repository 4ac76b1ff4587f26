//! An archive in a file, read by its headers alone: contents are passed by.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::input::Input;

/// Bytes that are read where contents were passed by: a header and what may follow it.
const LEAST: usize = 4 << 10;
/// Bytes that are read at most, where everything is wanted.
const MOST: usize = 128 << 10;

/// A part of a file, read through a window that widens while nothing is passed by.
#[derive(Debug)]
pub struct Window<'a> {
    file: &'a File,
    /// The part that is not read yet, behind the window.
    rest: Range<u64>,
    buf: Vec<u8>,
    /// The part of the buffer that is not read yet.
    ready: Range<usize>,
    next: usize,
}

impl<'a> Window<'a> {
    /// Reads `range` of `file`.
    #[must_use]
    pub fn new(file: &'a File, range: Range<u64>) -> Self {
        Self {
            file,
            rest: range,
            buf: Vec::new(),
            ready: 0..0,
            next: LEAST,
        }
    }

    /// The position in the file of the next byte.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.rest.start - self.ready.len() as u64
    }

    fn refill(&mut self) -> io::Result<()> {
        let left = usize::try_from(self.rest.end - self.rest.start).unwrap_or(usize::MAX);
        self.buf.resize(self.next.min(left), 0);
        let len = loop {
            match self.file.read_at(&mut self.buf, self.rest.start) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        self.rest.start += len as u64;
        self.ready = 0..len;
        self.next = (self.next * 2).min(MOST);
        Ok(())
    }
}

impl Read for Window<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            self.refill()?;
        }
        let from = &self.buf[self.ready.clone()];
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        self.ready.start += len;
        Ok(len)
    }
}

impl Input for Window<'_> {
    fn pass(&mut self, len: u64) -> io::Result<u64> {
        let here = (self.ready.len() as u64).min(len);
        // No more than is ready.
        self.ready.start += usize::try_from(here).unwrap_or(self.ready.len());
        let beyond = (len - here).min(self.rest.end - self.rest.start);
        if beyond > 0 {
            self.rest.start += beyond;
            self.next = LEAST;
        }
        Ok(here + beyond)
    }
}
