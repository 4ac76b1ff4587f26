//! Bytes that a queue can own: page-aligned memory.

use std::fmt;
use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// What [`IoBuf`]s are aligned to and made of: no device of Linux asks for more.
pub const IO_ALIGN: usize = 4096;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; IO_ALIGN]);

/// Owned bytes that begin on a page border, so that they can go to and from a device without a copy.
///
/// It travels with its request: whoever submits gives it away, and gets it back with the completion. The bytes of a
/// new one are zeros; one that a queue lent out ([`crate::IoQueue::buffer`]) holds anything.
pub struct IoBuf {
    pages: Vec<Page>,
    /// At most the bytes of `pages`.
    len: usize,
}

impl IoBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// If the host has not so much memory, as a `Vec` does.
    pub fn zeroed(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(IO_ALIGN));
        Self {
            pages: pages.unwrap_or_else(|_| panic!("no memory for {len} bytes")),
            len,
        }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes there is room for: a multiple of [`IO_ALIGN`].
    pub fn capacity(&self) -> usize {
        self.pages.len() * IO_ALIGN
    }

    /// Makes it `len` bytes long, within its capacity; bytes that come in are what they were. Longer than the capacity
    /// it does not become.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_bytes().get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.pages.as_mut_slice().as_mut_bytes();
        bytes.get_mut(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_bounded() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let mut buf = IoBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&b| b == 0));
            assert!(len == 0 || buf.as_ptr().addr().is_multiple_of(IO_ALIGN));
            assert!(buf.capacity() >= len && buf.capacity() < len + IO_ALIGN);
            buf.set_len(usize::MAX);
            assert_eq!(buf.len(), buf.capacity());
        }
        let mut buf = IoBuf::copy_of(&[7; 5000]);
        buf.set_len(10);
        assert_eq!(*buf, [7; 10]);
    }
}
