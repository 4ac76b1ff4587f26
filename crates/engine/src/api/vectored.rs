//! Vectored I/O: one operation on several buffers, as preadv(2) and pwritev(2).
//!
//! A vectored write takes one byte-range lock, or checks each cached folio once, whatever the
//! number of buffers; it never interleaves with another write. A vectored read sees each folio
//! whole.

use std::io::{IoSlice, IoSliceMut};

use super::node::Node;
use super::volume::Volume;
use crate::Cred;
use crate::Result;
use crate::file::{self, ReadMode, WriteAt};

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
        file::read_vectored(self.fs(), node.inode(), open, ReadMode::Buffered, pos, bufs)
    }
}
