//! Sources of written bytes and targets of reads: one buffer, or several as one.
//!
//! A vectored call is one operation: it looks at the cache once for each folio, whatever the number
//! of buffers, and each folio is read or written whole.

use std::borrow::Cow;
use std::io::{IoSlice, IoSliceMut};

/// A source of written bytes.
pub trait Source {
    /// Copies bytes from `offset` of the source to `into`; returns how many there were. Called with
    /// a folio locked: must not touch the same file system.
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize;
}

impl Source for &[u8] {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        // Past its end a source has nothing.
        let rest = self.get(offset..).unwrap_or(&[]);
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// A source without its first bytes.
#[derive(Debug)]
pub struct SourceTail<'a, S: ?Sized> {
    source: &'a mut S,
    first: usize,
}

impl<'a, S: Source + ?Sized> SourceTail<'a, S> {
    /// The bytes of `source` from `first` on.
    #[inline]
    pub fn new(source: &'a mut S, first: usize) -> Self {
        Self { source, first }
    }
}

impl<S: Source + ?Sized> Source for SourceTail<'_, S> {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        self.source.copy_at(self.first + offset, into)
    }
}

/// A target of a read: one buffer, or several as if they were one.
pub trait Target {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Returns whether there is no room at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory from byte `offset` on, as far as it is contiguous; empty only at the end.
    fn part(&mut self, offset: usize) -> &mut [u8];

    /// Copies `bytes` to byte `offset`.
    #[inline]
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let part = self.part(offset + done);
            let len = part.len().min(bytes.len() - done);
            debug_assert!(len > 0, "bytes beyond the end of the target");
            if len == 0 {
                return;
            }
            part[..len].copy_from_slice(&bytes[done..done + len]);
            done += len;
        }
    }
}

impl Target for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn part(&mut self, offset: usize) -> &mut [u8] {
        // Past its end a target has no room.
        self.get_mut(offset..).unwrap_or_default()
    }

    #[inline]
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// The bytes of one write, which are in memory: one buffer, or several as if they were one.
pub trait Payload {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A source of all of them.
    fn source(&self) -> impl Source;

    /// All of them in one piece; copied together where they are not.
    fn contiguous(&self) -> Cow<'_, [u8]>;
}

impl Payload for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn source(&self) -> impl Source {
        self
    }

    fn contiguous(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

impl Payload for [IoSlice<'_>] {
    #[inline]
    fn len(&self) -> usize {
        // The slices may share memory, so that their sum may be more than any memory: such a write
        // is refused by its length.
        self.iter()
            .fold(0, |sum: usize, buf| sum.saturating_add(buf.len()))
    }

    #[inline]
    fn source(&self) -> impl Source {
        Gather::new(self)
    }

    fn contiguous(&self) -> Cow<'_, [u8]> {
        match self {
            [one] => Cow::Borrowed(one),
            several => Cow::Owned(several.iter().flat_map(|buf| buf.iter().copied()).collect()),
        }
    }
}

/// The buffer that a byte offset lies in. Moves forward cheaply; a step back starts over.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// The buffer.
    index: usize,
    /// The offset of that buffer's first byte.
    start: usize,
}

impl Cursor {
    /// Moves to the buffer that has byte `offset`; returns the byte's offset inside of it. `None`
    /// past the last buffer.
    #[inline]
    fn seek(&mut self, offset: usize, len_of: impl Fn(usize) -> Option<usize>) -> Option<usize> {
        if offset < self.start {
            *self = Self::default();
        }
        loop {
            let len = len_of(self.index)?;
            let inside = offset - self.start;
            if inside < len {
                return Some(inside);
            }
            self.start += len;
            self.index += 1;
        }
    }
}

/// The bytes of several buffers, one after the other, as a [`Source`].
#[derive(Debug)]
struct Gather<'a, 'b> {
    bufs: &'a [IoSlice<'b>],
    cursor: Cursor,
}

impl<'a, 'b> Gather<'a, 'b> {
    fn new(bufs: &'a [IoSlice<'b>]) -> Self {
        Self {
            bufs,
            cursor: Cursor::default(),
        }
    }
}

impl Source for Gather<'_, '_> {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        let bufs = self.bufs;
        let mut done = 0;
        while done < into.len() {
            let len_of = |index: usize| bufs.get(index).map(|buf| buf.len());
            let Some(inside) = self.cursor.seek(offset + done, len_of) else {
                break;
            };
            let part = &bufs[self.cursor.index][inside..];
            let len = part.len().min(into.len() - done);
            into[done..done + len].copy_from_slice(&part[..len]);
            done += len;
        }
        done
    }
}

/// Several buffers, one after the other, as the [`Target`] of a read.
#[derive(Debug)]
pub struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    len: usize,
    cursor: Cursor,
}

impl<'a, 'b> Scatter<'a, 'b> {
    /// Fills `bufs` in order.
    pub fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self {
            // Disjoint memory of one address space: the sum fits.
            len: bufs.iter().map(|buf| buf.len()).sum(),
            bufs,
            cursor: Cursor::default(),
        }
    }
}

impl Target for Scatter<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn part(&mut self, offset: usize) -> &mut [u8] {
        let bufs = &*self.bufs;
        let len_of = |index: usize| bufs.get(index).map(|buf| buf.len());
        match self.cursor.seek(offset, len_of) {
            Some(inside) => &mut self.bufs[self.cursor.index][inside..],
            None => &mut [],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_any_offset_of_any_buffers() {
        let bytes: Vec<u8> = (0..200).collect();
        let bufs = [&bytes[..0], &bytes[..7], &bytes[7..8], &[], &bytes[8..]].map(IoSlice::new);
        let mut gather = Gather::new(&bufs);
        for (offset, len) in [(0, 200), (3, 20), (150, 50), (7, 1), (0, 8), (199, 1)] {
            let mut into = vec![0; len];
            assert_eq!(gather.copy_at(offset, &mut into), len);
            assert_eq!(into, bytes[offset..offset + len]);
        }
        assert_eq!(gather.copy_at(190, &mut [0; 20]), 10);
        assert_eq!(gather.copy_at(200, &mut [0; 1]), 0);
    }

    #[test]
    fn bytes_go_to_any_offset_of_any_buffers() {
        let bytes: Vec<u8> = (0..200).collect();
        let (mut a, mut b, mut c) = (vec![0; 9], vec![], vec![0; 191]);
        let mut bufs = [&mut a, &mut b, &mut c].map(|buf| IoSliceMut::new(buf));
        let mut scatter = Scatter::new(&mut bufs);
        assert_eq!(scatter.len(), 200);
        assert_eq!(scatter.part(8).len(), 1);
        assert_eq!(scatter.part(9).len(), 191);
        assert_eq!(scatter.part(200).len(), 0);
        for (offset, len) in [(100, 100), (5, 95), (0, 5)] {
            scatter.put(offset, &bytes[offset..offset + len]);
        }
        assert_eq!([a, c].concat(), bytes);
    }
    #[test]
    fn one_buffer_is_taken_as_it_is_and_several_are_joined() {
        let bytes: Vec<u8> = (0..200).collect();
        let whole = bytes[..].contiguous();
        assert!(matches!(whole, Cow::Borrowed(all) if all == bytes));
        let one = [IoSlice::new(&bytes)];
        assert!(matches!(one[..].contiguous(), Cow::Borrowed(all) if all == bytes));
        let several = [&bytes[..7], &[], &bytes[7..]].map(IoSlice::new);
        assert_eq!(several[..].contiguous(), bytes);
        assert!(several[1..2].contiguous().is_empty());
    }
}
