//! Moving the content of one file, with its holes or without.

use extant::DataBudget;

use super::sides::{Source, Target};
use crate::args::Sparse;
use crate::failure::{Failure, filled};
use crate::progress::Progress;

/// Bytes moved at once.
pub(super) const CHUNK: usize = 1 << 20;
/// What is looked at to find zeros that can be a hole.
const PIECE: usize = 4096;

/// The fault of a file that has more data than the volume.
pub(crate) const TOO_MUCH: &str = "its extents have more data than the volume has blocks: damaged";

/// The side that failed.
pub(super) enum Trouble {
    Source(Failure),
    Target(Failure),
}

/// One copy of content.
pub(super) struct Content<'a> {
    pub(super) from: &'a dyn Source,
    pub(super) to: &'a dyn Target,
    pub(super) sparse: Sparse,
    pub(super) progress: &'a Progress,
}

impl Content<'_> {
    /// Copies `len` bytes, or all there are if that is [`super::sides::UNKNOWN`], as far as the
    /// budget goes. A file that shrinks meanwhile gives a shorter copy.
    pub(super) fn copy(
        &self,
        len: u64,
        budget: &mut DataBudget,
        buf: &mut [u8],
    ) -> Result<(), Trouble> {
        let mut pos = 0;
        let mut ended = None;
        while let Some((start, end)) = self.next_data(pos)?.filter(|&(start, _)| start < len) {
            self.hole(pos, start, buf)?;
            pos = start;
            let end = end.min(len);
            if !budget.take(end.saturating_sub(pos)) {
                return Err(Trouble::Source(Failure::new(TOO_MUCH)));
            }
            while pos < end {
                let want = usize::try_from(end - pos)
                    .unwrap_or(usize::MAX)
                    .min(buf.len());
                let piece = &mut buf[..want];
                let got = self.from.read_at(piece, pos).map_err(Trouble::Source)?;
                if got == 0 {
                    ended = Some(pos.min(self.len_now()?));
                    break;
                }
                let data = filled(buf, got).map_err(Trouble::Source)?;
                self.write(data, pos)?;
                pos += got as u64;
                self.progress.add(got as u64);
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
        self.to.set_len(end).map_err(Trouble::Target)
    }

    fn len_now(&self) -> Result<u64, Trouble> {
        self.from.len().map_err(Trouble::Source)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Trouble> {
        self.from.next_data(pos).map_err(Trouble::Source)
    }

    /// Leaves out a hole, or writes it.
    fn hole(&self, start: u64, end: u64, buf: &mut [u8]) -> Result<(), Trouble> {
        if self.sparse != Sparse::Never {
            // No hole, where the data before reached past a length that has shrunk.
            self.progress.add(end.saturating_sub(start));
            return Ok(());
        }
        let mut pos = start;
        while pos < end {
            let len = usize::try_from(end - pos)
                .unwrap_or(usize::MAX)
                .min(buf.len());
            let zeros = &mut buf[..len];
            zeros.fill(0);
            self.to.write_at(zeros, pos).map_err(Trouble::Target)?;
            pos += len as u64;
            self.progress.add(len as u64);
        }
        Ok(())
    }

    /// Writes data; whole pieces of zeros become holes if that is asked for.
    fn write(&self, data: &[u8], pos: u64) -> Result<(), Trouble> {
        let write = |start: usize, end: usize| {
            // Both ends are borders of pieces.
            let data = &data[start..end];
            self.to
                .write_at(data, pos + start as u64)
                .map_err(Trouble::Target)
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
    use crate::copy::sides::{Change, UNKNOWN};

    /// A source of these bytes, of which the caller believed that there were more.
    struct Shrunk<'a>(&'a [u8]);

    impl Source for Shrunk<'_> {
        fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
            let from = self.0.get(usize::try_from(pos).unwrap()..).unwrap_or(&[]);
            let len = buf.len().min(from.len());
            buf[..len].copy_from_slice(&from[..len]);
            Ok(len)
        }

        fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
            let len = self.0.len() as u64;
            Ok((pos < len).then_some((pos, len)))
        }

        fn len(&self) -> Result<u64, Failure> {
            Ok(self.0.len() as u64)
        }
    }

    #[derive(Default)]
    struct Copied(RefCell<Vec<u8>>);

    impl Target for Copied {
        fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
            let (start, mut all) = (usize::try_from(pos).unwrap(), self.0.borrow_mut());
            let end = start + data.len();
            let len = all.len().max(end);
            all.resize(len, 0);
            all[start..end].copy_from_slice(data);
            Ok(())
        }

        fn set_len(&self, len: u64) -> Result<(), Failure> {
            self.0.borrow_mut().resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn change(&self) -> Option<&dyn Change> {
            None
        }
    }

    #[test]
    fn a_source_that_shrank_gives_a_shorter_copy() {
        let progress = Progress::new(true);
        for sparse in [Sparse::Auto, Sparse::Always, Sparse::Never] {
            for (bytes, believed) in [(&b"left"[..], 1 << 20), (b"", 5000), (b"left", UNKNOWN)] {
                let (from, to) = (Shrunk(bytes), Copied::default());
                let mut budget = DataBudget::unbounded();
                let content = Content {
                    from: &from,
                    to: &to,
                    sparse,
                    progress: &progress,
                };
                assert!(content.copy(believed, &mut budget, &mut [0; CHUNK]).is_ok());
                assert_eq!(to.0.into_inner(), bytes, "{believed}");
            }
        }
    }
}
