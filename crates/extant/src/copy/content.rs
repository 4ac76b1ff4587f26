//! Moving the content of one file, with its holes or without.

use std::io;

use extant_engine::{DataBudget, Error};

use super::copy_error::{CopyRefusal, CopySide};
use super::copy_options::Sparse;
use super::sides::{Sink, Source};

/// Bytes moved at once.
pub(super) const CHUNK: usize = 1 << 20;
/// Bytes that are looked at together to find zeros that can be a hole.
const PIECE: usize = 4096;

/// An error, and the side that it happened on.
pub(super) type Sided<T> = Result<T, (CopySide, io::Error)>;

/// One copy of content.
pub(super) struct Content<'a, 's> {
    pub(super) from: &'a dyn Source,
    pub(super) to: &'a dyn Sink<'s>,
    pub(super) sparse: Sparse,
    /// Called with the bytes of each step; returns whether to go on.
    pub(super) copied: &'a mut dyn FnMut(u64) -> bool,
}

/// The first `len` bytes of `buf`, which a call has said that it filled.
///
/// # Errors
/// The buffer has fewer: a copy must not pass for complete.
pub fn filled(buf: &[u8], len: usize) -> io::Result<&[u8]> {
    let had = buf.len();
    let what = || io::Error::other(format!("internal error: {len} bytes in a buffer of {had}"));
    buf.get(..len).ok_or_else(what)
}

fn at_source(error: io::Error) -> (CopySide, io::Error) {
    (CopySide::Source, error)
}

fn at_target(error: io::Error) -> (CopySide, io::Error) {
    (CopySide::Target, error)
}

impl Content<'_, '_> {
    /// Copies `len` bytes, or all there are if that is [`super::sides::UNKNOWN`], as far as the
    /// budget goes. A file that shrinks meanwhile gives a shorter copy. Returns the length of the
    /// copy.
    pub(super) fn copy(&mut self, len: u64, budget: &mut DataBudget, buf: &mut [u8]) -> Sided<u64> {
        let mut pos = 0;
        let mut ended = None;
        while let Some((start, end)) = self.next_data(pos)?.filter(|&(start, _)| start < len) {
            self.hole(pos, start, buf)?;
            pos = start;
            let end = end.min(len);
            if !budget.take(end.saturating_sub(pos)) {
                return Err(at_source(CopyRefusal::TooMuchData.into()));
            }
            while pos < end {
                let want = usize::try_from(end - pos)
                    .unwrap_or(usize::MAX)
                    .min(buf.len());
                let piece = &mut buf[..want];
                let got = self.from.read_at(piece, pos).map_err(at_source)?;
                if got == 0 {
                    ended = Some(pos.min(self.len_now()?));
                    break;
                }
                let data = filled(buf, got).map_err(at_source)?;
                self.write(data, pos)?;
                pos += got as u64;
                self.done(got as u64)?;
            }
            if ended.is_some() {
                break;
            }
        }
        // What follows is a hole, or is gone from a file that shrank.
        let end = match ended {
            Some(end) => end,
            None => len.min(self.len_now()?).max(pos),
        };
        if ended.is_none() {
            self.hole(pos, end, buf)?;
        }
        self.to.set_len(end).map_err(at_target)?;
        Ok(end)
    }

    fn done(&mut self, bytes: u64) -> Sided<()> {
        match bytes == 0 || (self.copied)(bytes) {
            true => Ok(()),
            false => Err(at_source(Error::Interrupted.into())),
        }
    }

    fn len_now(&self) -> Sided<u64> {
        self.from.len_now().map_err(at_source)
    }

    fn next_data(&self, pos: u64) -> Sided<Option<(u64, u64)>> {
        self.from.next_data(pos).map_err(at_source)
    }

    /// Leaves out a hole, or writes it.
    fn hole(&mut self, start: u64, end: u64, buf: &mut [u8]) -> Sided<()> {
        if self.sparse != Sparse::Never {
            // No hole, where the data before reached past a length that has shrunk.
            return self.done(end.saturating_sub(start));
        }
        let mut pos = start;
        while pos < end {
            let len = usize::try_from(end - pos)
                .unwrap_or(usize::MAX)
                .min(buf.len());
            let zeros = &mut buf[..len];
            zeros.fill(0);
            self.to.write_at(zeros, pos).map_err(at_target)?;
            pos += len as u64;
            self.done(len as u64)?;
        }
        Ok(())
    }

    /// Writes data; whole pieces of zeros become holes if that is asked for.
    fn write(&self, data: &[u8], pos: u64) -> Sided<()> {
        let write = |start: usize, end: usize| {
            // Both ends are borders of pieces.
            let data = &data[start..end];
            self.to
                .write_at(data, pos + start as u64)
                .map_err(at_target)
        };
        if self.sparse != Sparse::Always {
            return write(0, data.len());
        }
        // Where the run of pieces that are not zeros began.
        let mut begin = None;
        let mut at = 0;
        for piece in data.chunks(PIECE) {
            if piece.iter().all(|&byte| byte == 0) {
                if let Some(begin) = begin.take() {
                    write(begin, at)?;
                }
            } else {
                begin.get_or_insert(at);
            }
            at += piece.len();
        }
        match begin {
            Some(begin) => write(begin, at),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::copy::sides::{AnyFile, UNKNOWN};

    /// A source of these bytes, of which the caller believed that there were more.
    struct Shrunk<'a>(&'a [u8]);

    impl Source for Shrunk<'_> {
        fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
            let from = self.0.get(usize::try_from(pos).unwrap()..).unwrap_or(&[]);
            let len = buf.len().min(from.len());
            buf[..len].copy_from_slice(&from[..len]);
            Ok(len)
        }

        fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
            let len = self.0.len() as u64;
            Ok((pos < len).then_some((pos, len)))
        }

        fn len_now(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }
    }

    #[derive(Default)]
    struct Copied(RefCell<Vec<u8>>);

    impl<'a> Sink<'a> for Copied {
        fn write_at(&self, data: &[u8], pos: u64) -> io::Result<()> {
            let (start, mut all) = (usize::try_from(pos).unwrap(), self.0.borrow_mut());
            let end = start + data.len();
            let len = all.len().max(end);
            all.resize(len, 0);
            all[start..end].copy_from_slice(data);
            Ok(())
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.borrow_mut().resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn file(&self) -> Option<&AnyFile<'a>> {
            None
        }
    }

    #[test]
    fn a_buffer_that_cannot_have_been_filled_is_an_error() {
        assert_eq!(filled(&[1, 2], 1).ok(), Some(&[1][..]));
        assert!(filled(&[1, 2], 3).is_err());
    }

    #[test]
    fn a_source_that_shrank_gives_a_shorter_copy() {
        for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
            for (bytes, believed) in [(&b"left"[..], 1 << 20), (b"", 5000), (b"left", UNKNOWN)] {
                let (from, to) = (Shrunk(bytes), Copied::default());
                let mut budget = DataBudget::unbounded();
                let mut content = Content {
                    from: &from,
                    to: &to,
                    sparse,
                    copied: &mut |_| true,
                };
                let copied = content.copy(believed, &mut budget, &mut [0; CHUNK]);
                assert_eq!(copied.ok(), Some(bytes.len() as u64));
                assert_eq!(to.0.into_inner(), bytes, "{believed}");
            }
        }
    }
}
