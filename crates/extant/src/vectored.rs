//! Vectored I/O on open files: one operation on several buffers, as preadv(2) and pwritev(2).

use std::borrow::Cow;
use std::io::{IoSlice, IoSliceMut};

use extant_engine::Result;

use crate::file::File;

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
        let done = match self.is_direct() {
            true => volume.write_direct(node, pos, &joined(bufs), cred),
            false => volume.write_vectored(node, pos, bufs, cred),
        };
        self.written(done?)
    }

    /// Writes the bytes of `bufs` at the end, as one write; see [`File::append`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append_vectored(&self, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        let (volume, node, cred) = self.target(true)?;
        let done = match self.is_direct() {
            true => volume.append_direct(node, &joined(bufs), cred),
            false => volume.append_vectored(node, bufs, cred),
        };
        self.written(done?)
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
        let mut rest = &whole[..done];
        for buf in bufs {
            let part;
            (part, rest) = rest.split_at(rest.len().min(buf.len()));
            buf[..part.len()].copy_from_slice(part);
        }
        Ok(done)
    }
}

/// The bytes of `bufs`, one after the other.
fn joined<'a>(bufs: &'a [IoSlice<'_>]) -> Cow<'a, [u8]> {
    match bufs {
        [one] => Cow::Borrowed(one),
        several => several.iter().flat_map(|buf| buf.iter().copied()).collect(),
    }
}
