//! Vectored I/O: one operation on several buffers, as preadv(2) and pwritev(2) have it.
//!
//! A vectored write takes one byte-range lock, or one look at each cached folio, whatever the
//! number of buffers; it never interleaves with another write. A vectored read sees each folio
//! whole.

use std::io::{IoSlice, IoSliceMut};

use extant_iomap::Payload;

use super::file::File;
use super::node::Node;
use super::volume::Volume;
use crate::file::{self, Reader, WriteAt};
use crate::{Cred, Result};

impl Volume {
    /// [`Volume::write`] of several buffers, one after the other, as one write.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn write_vectored(
        &self,
        node: &Node,
        pos: u64,
        bufs: &[IoSlice<'_>],
        cred: &Cred,
    ) -> Result<usize> {
        let wrote = self.put_vectored(node, WriteAt::Pos(pos), bufs, cred);
        wrote.map(|(_, written)| written)
    }

    /// [`Volume::append`] of several buffers, one after the other, as one step.
    ///
    /// # Errors
    /// As [`Volume::append`].
    pub fn append_vectored(
        &self,
        node: &Node,
        bufs: &[IoSlice<'_>],
        cred: &Cred,
    ) -> Result<(u64, usize)> {
        self.put_vectored(node, WriteAt::End, bufs, cred)
    }

    fn put_vectored(
        &self,
        node: &Node,
        at: WriteAt,
        bufs: &[IoSlice<'_>],
        cred: &Cred,
    ) -> Result<(u64, usize)> {
        let open = node.open(self.fs());
        file::write_vectored(self.fs(), node.inode(), open, at, bufs, cred)
    }

    /// [`Volume::read`] into several buffers, one after the other, as one read.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_vectored(
        &self,
        node: &Node,
        pos: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let open = node.open(self.fs());
        file::read_vectored(self.fs(), node.inode(), open, Reader::Ordinary, pos, bufs)
    }
}

impl File {
    /// Writes the bytes of `bufs`, one after the other, at byte `pos`, as one write; less than
    /// given only if space ran out on the way. A file opened for appending is written at its end
    /// instead. With `O_DIRECT` the bytes are copied together first.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).make().expect("mke2fs");
    /// # let fs = extant::Filesystem::options().write(true).open(image.path())?;
    /// use std::io::{IoSlice, IoSliceMut};
    ///
    /// let file = fs.open_options().create(true).read(true).write(true).open("/record")?;
    /// file.write_vectored_at(&[IoSlice::new(b"header"), IoSlice::new(b"body")], 0)?;
    /// let (mut header, mut body) = ([0; 6], [0; 4]);
    /// let mut bufs = [IoSliceMut::new(&mut header), IoSliceMut::new(&mut body)];
    /// assert_eq!(file.read_vectored_at(&mut bufs, 0)?, 10);
    /// assert_eq!((&header, &body), (b"header", b"body"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], pos: u64) -> Result<usize> {
        let (volume, node, cred) = self.target(true)?;
        if self.appends() {
            return Ok(self.append_vectored(bufs)?.1);
        }
        if self.is_direct() {
            return volume.write_direct(node, pos, &bufs.contiguous(), cred);
        }
        volume.write_vectored(node, pos, bufs, cred)
    }

    /// Writes at the end; returns the position of the first byte, and how many were written.
    pub(super) fn append_vectored(&self, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        let (volume, node, cred) = self.target(true)?;
        if self.is_direct() {
            return volume.append_direct(node, &bufs.contiguous(), cred);
        }
        volume.append_vectored(node, bufs, cred)
    }

    /// Fills `bufs`, one after the other, from byte `pos`, as one read; less than asked for only at
    /// the end of the file. With `O_DIRECT` the bytes are read into one buffer first.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], pos: u64) -> Result<usize> {
        let (volume, node, _) = self.target(false)?;
        if !self.is_direct() {
            return volume.read_vectored(node, pos, bufs);
        }
        let mut whole = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        let done = self.read_at(&mut whole, pos)?;
        let mut rest = whole.get(..done).unwrap_or_default();
        for buf in bufs {
            let part;
            (part, rest) = rest.split_at(rest.len().min(buf.len()));
            buf[..part.len()].copy_from_slice(part);
        }
        Ok(done)
    }
}
