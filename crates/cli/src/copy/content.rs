//! Moving the content of one file, with its holes or without.

use super::sides::{Source, Target, UNKNOWN};
use crate::args::Sparse;
use crate::failure::{Failure, filled};
use crate::progress::Progress;

/// Bytes moved at once.
pub(super) const CHUNK: usize = 1 << 20;
/// What is looked at to find zeros that can be a hole.
const PIECE: usize = 4096;

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
    /// Copies `len` bytes, or all there are if that is [`UNKNOWN`]. A file that shrinks meanwhile
    /// gives a shorter copy.
    pub(super) fn copy(&self, len: u64, buf: &mut [u8]) -> Result<(), Trouble> {
        let mut pos = 0;
        let mut ended = None;
        while let Some((start, end)) = self.next_data(pos)?.filter(|&(start, _)| start < len) {
            self.hole(pos, start, buf)?;
            pos = start;
            let end = end.min(len);
            while pos < end {
                let want = usize::try_from(end - pos)
                    .unwrap_or(usize::MAX)
                    .min(buf.len());
                let piece = &mut buf[..want];
                let got = self.from.read_at(piece, pos).map_err(Trouble::Source)?;
                if got == 0 {
                    ended = Some(pos);
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
        if len != UNKNOWN && ended.is_none() {
            self.hole(pos, len, buf)?;
        }
        let end = ended.unwrap_or(len);
        self.to.set_len(end).map_err(Trouble::Target)
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
