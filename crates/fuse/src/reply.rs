//! Replies: header first, then what belongs to it.
//!
//! The memory is as large as the largest reply (a READ of the agreed size) and is made once: a
//! worker at `/dev/fuse` has its own ([`ReplyMemory`]), a ring's worker uses that of the ring. Data
//! that was read goes right behind the header, so that a READ copies it once. The zeros of a hole
//! are nowhere in that memory if the sender has some ([`ReplyBuf::let_zeros_follow`]).

use std::io;
use std::mem::size_of;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::{self, OUT_HEADER, OutHeader};
use crate::errno::Errno;

/// Memory for replies.
pub(crate) struct ReplyMemory(Box<[u8]>);

/// So many zeros. Many take no memory before they are written to.
///
/// # Errors
/// There is no memory.
pub(crate) fn zeroed(len: usize) -> io::Result<Box<[u8]>> {
    let bytes = <[u8]>::new_box_zeroed_with_elems(len);
    Ok(bytes.map_err(|_| io::ErrorKind::OutOfMemory)?)
}

impl ReplyMemory {
    /// Memory for replies with up to `max_body` bytes behind the header.
    pub(crate) fn new(max_body: usize) -> Self {
        Self(vec![0; OUT_HEADER + max_body].into_boxed_slice())
    }

    /// The same, for large ones: fails where there is no memory.
    pub(crate) fn try_new(max_body: usize) -> io::Result<Self> {
        Ok(Self(zeroed(OUT_HEADER + max_body)?))
    }

    /// The memory, which begins with the last reply.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// An empty reply.
    pub(crate) fn start(&mut self) -> ReplyBuf<'_> {
        ReplyBuf::over(&mut self.0)
    }
}

/// A reply under construction.
pub(crate) struct ReplyBuf<'a> {
    bytes: &'a mut [u8],
    len: usize,
    queue: Option<u16>,
    /// The sender has zeros to send behind the bytes.
    may_zeros_follow: bool,
    /// How many it is to send.
    zeros: usize,
}

/// Bytes that a directory entry's record is padded to.
const DIRENT_ALIGN: usize = 8;

impl<'a> ReplyBuf<'a> {
    /// An empty reply in `bytes`, which begin with room for a reply's header.
    pub(crate) fn over(bytes: &'a mut [u8]) -> Self {
        assert!(bytes.len() >= OUT_HEADER, "a reply has a header");
        Self {
            bytes,
            len: OUT_HEADER,
            queue: None,
            may_zeros_follow: false,
            zeros: 0,
        }
    }

    /// The sender is going to send [`ReplyBuf::zeros`] behind the bytes.
    pub(crate) fn let_zeros_follow(&mut self) {
        self.may_zeros_follow = true;
    }

    /// Returns whether zeros at the end of the reply take no memory.
    pub(crate) fn may_zeros_follow(&self) -> bool {
        self.may_zeros_follow
    }

    /// How many zeros follow the bytes.
    pub(crate) fn zeros(&self) -> usize {
        self.zeros
    }

    /// The request came by this queue of a ring.
    pub(crate) fn set_queue(&mut self, queue: u16) {
        self.queue = Some(queue);
    }

    /// The queue that the request came by, if it was one of a ring.
    pub(crate) fn queue(&self) -> Option<u16> {
        self.queue
    }

    /// The reply so far. It is complete after [`ReplyBuf::finish`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Forgets what was put in.
    pub(crate) fn clear(&mut self) {
        (self.len, self.zeros) = (OUT_HEADER, 0);
    }

    /// Ends the reply with `len` zeros, which the sender has. [`Errno::INVAL`] if they did not fit
    /// the buffer, which no reply outgrows.
    pub(crate) fn end_with_zeros(&mut self, len: usize) -> Result<(), Errno> {
        debug_assert!(self.may_zeros_follow, "the sender has zeros");
        if len > self.bytes.len() - self.len {
            return Err(Errno::INVAL);
        }
        self.zeros = len;
        Ok(())
    }

    /// Appends a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put_bytes(value.as_bytes())
    }

    /// Appends bytes; [`Errno::IO`] if the buffer, which holds any reply the kernel can ask for, is
    /// full.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let end = self.len + bytes.len();
        self.bytes
            .get_mut(self.len..end)
            .ok_or(Errno::IO)?
            .copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Lets `fill` write up to `want` bytes behind what is there; it returns how many it wrote.
    pub(crate) fn fill<E: From<Errno>>(
        &mut self,
        want: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let space = self
            .bytes
            .get_mut(self.len..self.len + want)
            .ok_or(Errno::INVAL)?;
        let done = fill(space)?;
        self.len += done.min(want);
        Ok(())
    }

    /// Appends a directory entry, with the attributes before it if given, unless the body would
    /// outgrow `limit` bytes; returns whether it fit.
    pub(crate) fn put_dirent(
        &mut self,
        limit: usize,
        plus: Option<&abi::EntryOut>,
        head: &abi::DirentHead,
        name: &[u8],
    ) -> Result<bool, Errno> {
        let entry_len = plus.map_or(0, |_| size_of::<abi::EntryOut>());
        let len = entry_len + size_of::<abi::DirentHead>() + name.len();
        let padded = len.next_multiple_of(DIRENT_ALIGN);
        if self.len - OUT_HEADER + padded > limit {
            return Ok(false);
        }
        if let Some(entry) = plus {
            self.put(entry)?;
        }
        self.put(head)?;
        self.put_bytes(name)?;
        self.put_bytes(&[0; DIRENT_ALIGN][..padded - len])?;
        Ok(true)
    }

    /// Completes the reply to request `unique`: what was put in, or the error alone.
    pub(crate) fn finish(&mut self, unique: u64, result: Result<(), Errno>) -> &[u8] {
        let error = match result {
            Ok(()) => 0,
            Err(errno) => {
                self.clear();
                errno.negative()
            }
        };
        // The buffer is far below 4 GiB. The kernel would refuse a length of 0.
        let len = self.len + self.zeros;
        debug_assert!(u32::try_from(len).is_ok(), "a reply of {len} bytes");
        let len = u32::try_from(len).unwrap_or(0);
        let header = OutHeader { len, error, unique };
        self.bytes[..OUT_HEADER].copy_from_slice(header.as_bytes());
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn entries_stop_at_the_limit_and_are_padded() {
        let mut space = ReplyMemory::new(4096);
        let mut reply = space.start();
        let head = abi::DirentHead {
            ino: 5,
            off: 7,
            namelen: 3,
            kind: 8,
        };
        assert_eq!(reply.put_dirent(32, None, &head, b"abc"), Ok(true));
        assert_eq!(reply.put_dirent(63, None, &head, b"abc"), Ok(false));
        assert_eq!(reply.put_dirent(64, None, &head, b"abc"), Ok(true));
        let bytes = reply.finish(9, Ok(()));
        assert_eq!(bytes.len(), OUT_HEADER + 64);
        assert_eq!(&bytes[OUT_HEADER + 24..OUT_HEADER + 32], b"abc\0\0\0\0\0");
    }

    #[test]
    fn an_error_carries_no_body() {
        let mut space = ReplyMemory::new(64);
        let mut reply = space.start();
        reply.put_bytes(b"half an answer").unwrap();
        let bytes = reply.finish(77, Err(Errno::NOSYS)).to_vec();
        let (header, rest) = OutHeader::read_from_prefix(&bytes).unwrap();
        assert_eq!((header.len, header.error, header.unique), (16, -38, 77));
        assert!(rest.is_empty());
    }

    #[test]
    fn zeros_count_and_take_no_memory() {
        let mut space = ReplyMemory::new(64);
        let mut reply = space.start();
        assert!(!reply.may_zeros_follow());
        reply.let_zeros_follow();
        assert_eq!(reply.end_with_zeros(65), Err(Errno::INVAL));
        reply.end_with_zeros(64).unwrap();
        let bytes = reply.finish(7, Ok(())).to_vec();
        let header = OutHeader::read_from_bytes(&bytes).unwrap();
        assert_eq!((header.len, reply.zeros()), (16 + 64, 64));
        // An error has none.
        reply.finish(7, Err(Errno::IO));
        assert_eq!(reply.zeros(), 0);
    }

    #[test]
    fn more_than_the_buffer_is_an_error_not_a_panic() {
        let mut space = ReplyMemory::new(8);
        let mut reply = space.start();
        assert_eq!(reply.put_bytes(&[0; 9]), Err(Errno::IO));
        assert_eq!(reply.fill(9, |_| Ok::<_, Errno>(9)), Err(Errno::INVAL));
    }
}
