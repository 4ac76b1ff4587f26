//! Page-aligned buffers that a queue can own.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use extant_sync::Mutex;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The alignment of [`IoBuf`]s and the unit of their memory. No device of Linux requires more.
pub const IO_ALIGN: usize = 4096;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; IO_ALIGN]);

/// Owned bytes that begin on a page boundary, so that a device can read and write them without a
/// copy.
///
/// The buffer travels with its request: submitting a request gives it away, the completion returns
/// it. A new buffer is zeroed; the content of one that a queue lent ([`crate::IoQueue::buffer`]) is
/// undefined.
pub struct IoBuf {
    pages: Vec<Page>,
    /// At most the bytes of `pages`.
    len: usize,
    /// The pool that the pages return to, and their number in it.
    origin: Option<(Arc<BufPool>, u16)>,
}

impl IoBuf {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// The host does not have that much memory.
    pub fn zeroed(len: usize) -> Self {
        let pages = Page::new_vec_zeroed(len.div_ceil(IO_ALIGN));
        Self {
            pages: pages.unwrap_or_else(|_| panic!("no memory for {len} bytes")),
            len,
            origin: None,
        }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// The most bytes that the buffer can hold: a multiple of [`IO_ALIGN`].
    pub fn capacity(&self) -> usize {
        self.pages.len() * IO_ALIGN
    }

    /// Sets the length to `len`, or to the capacity if that is less. The content of bytes that
    /// become visible is undefined.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }

    /// The buffer's number in `pool`, if it comes from there.
    pub(crate) fn number_in(&self, pool: &Arc<BufPool>) -> Option<u16> {
        let (origin, number) = self.origin.as_ref()?;
        Arc::ptr_eq(origin, pool).then_some(*number)
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if let Some((pool, number)) = self.origin.take() {
            pool.free.lock().push((number, mem::take(&mut self.pages)));
        }
    }
}

/// Buffers of one size for reuse. Their memory keeps its address, and is freed only when the pool
/// and all lent buffers are gone.
#[derive(Default)]
pub(crate) struct BufPool {
    free: Mutex<Vec<(u16, Vec<Page>)>>,
}

impl BufPool {
    /// `count` buffers of `capacity` bytes.
    pub(crate) fn new(count: u16, capacity: usize) -> Arc<Self> {
        let pages = |number| (number, mem::take(&mut IoBuf::zeroed(capacity).pages));
        Arc::new(Self {
            free: Mutex::new((0..count).map(pages).collect()),
        })
    }

    /// A buffer of `len` bytes, if one is left and large enough.
    pub(crate) fn lend(self: &Arc<Self>, len: usize) -> Option<IoBuf> {
        let mut free = self.free.lock();
        let fits = |(_, pages): &mut (u16, Vec<Page>)| pages.len() * IO_ALIGN >= len;
        let (number, pages) = free.pop_if(fits)?;
        Some(IoBuf {
            pages,
            len,
            origin: Some((Arc::clone(self), number)),
        })
    }

    /// Calls `visit` with the whole memory of each buffer that is not lent, in the order of their
    /// numbers.
    pub(crate) fn for_each_free(&self, mut visit: impl FnMut(u16, &mut [u8])) {
        let mut free = self.free.lock();
        free.sort_by_key(|(number, _)| *number);
        for (number, pages) in free.iter_mut() {
            visit(*number, pages.as_mut_slice().as_mut_bytes());
        }
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
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.pages.as_mut_slice().as_mut_bytes()[..len]
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
        for len in [0, 1, 4095, 4096, 4097, 20_000] {
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

    #[test]
    fn lent_buffers_return_and_keep_their_numbers() {
        let pool = BufPool::new(2, 8192);
        let mut one = pool.lend(5000).unwrap();
        let two = pool.lend(8192).unwrap();
        assert!(pool.lend(1).is_none());
        assert_ne!(one.number_in(&pool), two.number_in(&pool));
        assert_eq!(two.number_in(&BufPool::new(2, 8192)), None);
        assert_eq!(IoBuf::zeroed(1).number_in(&pool), None);
        let (number, address) = (one.number_in(&pool), one.as_ptr());
        one.fill(3);
        drop(one);
        let again = pool.lend(8000).unwrap();
        assert_eq!((again.number_in(&pool), again.as_ptr()), (number, address));
        assert!(again.iter().take(5000).all(|&b| b == 3));
        drop(again);
        assert!(pool.lend(8193).is_none());
        let mut numbers = Vec::new();
        pool.for_each_free(|number, bytes| numbers.push((number, bytes.len())));
        assert_eq!(numbers.len(), 1);
        drop(two);
        pool.for_each_free(|number, bytes| numbers.push((number, bytes.len())));
        assert_eq!(numbers[1..], [(0, 8192), (1, 8192)]);
    }
}
