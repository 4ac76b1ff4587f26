//! Copying from file to file.
//!
//! Data goes through the cache, a piece at a time. Holes are not read: in the target a hole removes
//! what was there, or is left out if the file ends before it.
//!
//! # Invariants
//! * No step moves the size on disk past data that only the cache has (J20): a hole waits for the
//!   writeback of what lies below it, if it moves that size. Behind the end of the target only the
//!   last one does.
//!
//! # Concurrency
//! No lock spans the copy, nor two files. A copy is a sequence of reads, writes and range
//! operations. A thread that writes to either file meanwhile may find it half done, as with a
//! program that copies.

use std::sync::Arc;

use extant_units::Pos;

use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::truncate;
use crate::file::writeback::writeback_gap_below;
use crate::file::{ReadMode, Whence, WriteAt, fallocate, max_size, read, seek, write};
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FallocateMode};
use crate::volume::Fs;

/// Bytes copied at once.
const COPY_CHUNK_BYTES: u64 = 1 << 20;

/// One side of a copy: the file, its opener, and the position.
pub(crate) struct Side<'a> {
    /// The file.
    pub(crate) inode: &'a Arc<Inode>,
    /// The opener's own state, if it has one.
    pub(crate) open: Option<&'a OpenState>,
    /// First byte.
    pub(crate) pos: u64,
}

/// Copies up to `len` bytes. Returns the number copied: fewer at the end of the source, at the
/// largest size, or if an error came after some. Holes stay holes. Times and privileges are treated
/// as for a read and a write.
///
/// # Errors
/// [`Error::Invalid`] if both ranges are of one file and overlap; those of reading and writing, if
/// nothing was copied.
pub(crate) fn copy_range(
    fs: &Arc<Fs>,
    from: &Side<'_>,
    to: &Side<'_>,
    len: u64,
    cred: &Cred,
) -> Result<u64> {
    fs.check_writable()?;
    require_regular(from.inode)?;
    require_regular(to.inode)?;
    to.inode.check_changeable(false)?;
    let ends = (from.pos.checked_add(len), to.pos.checked_add(len));
    let (Some(_), Some(_)) = ends else {
        return Err(Error::FileTooBig);
    };
    let len = len.min(from.inode.size().saturating_sub(from.pos));
    if len == 0 {
        return Ok(0);
    }
    let room = max_size(fs, to.inode).saturating_sub(to.pos);
    if room == 0 {
        return Err(Error::FileTooBig);
    }
    let len = len.min(room);
    let near = from.pos.abs_diff(to.pos) < len;
    if near && Arc::ptr_eq(from.inode, to.inode) {
        return Err(Error::Invalid);
    }
    let mut copy = Copy {
        fs,
        from,
        to,
        cred,
        done: 0,
        ends_in_hole: false,
    };
    let copied = copy.run(len);
    let result = copied.and(copy.reach_end());
    match result {
        Err(error) if copy.done == 0 => Err(error),
        _ => Ok(copy.done),
    }
}

/// A copy under way.
struct Copy<'a> {
    fs: &'a Arc<Fs>,
    from: &'a Side<'a>,
    to: &'a Side<'a>,
    cred: &'a Cred,
    done: u64,
    /// The target may end before the last hole of what is done.
    ends_in_hole: bool,
}

impl Copy<'_> {
    fn run(&mut self, len: u64) -> Result<()> {
        let mut buf = Vec::new();
        while self.done < len {
            let at = self.from.pos + self.done;
            let left = len - self.done;
            let data = self.find(Whence::Data, at)?.unwrap_or(u64::MAX);
            let hole = data.saturating_sub(at).min(left);
            if hole > 0 {
                // The source may have become shorter: what is behind its end is no hole of it.
                let hole = hole.min(self.from.inode.size().saturating_sub(at));
                if hole == 0 {
                    return Ok(());
                }
                self.skip(hole)?;
                continue;
            }
            // The file may have become shorter: then reading finds nothing. Or a hole has come
            // there meanwhile, of a block at least.
            let end = self.find(Whence::Hole, at)?.unwrap_or(at);
            let block = self.fs.layout.block_size.bytes_u64();
            let rest_of_block = block - at % block;
            let piece = end.saturating_sub(at).max(rest_of_block);
            let piece = piece.min(COPY_CHUNK_BYTES).min(left);
            buf.resize(extant_units::index(piece), 0);
            if !self.copy_piece(at, &mut buf)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The position of the next data or hole; `None` if there is none.
    fn find(&self, whence: Whence, at: u64) -> Result<Option<u64>> {
        match seek(self.fs, self.from.inode, whence, at) {
            Err(Error::NoSuchAddress) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Copies up to `buf.len()` bytes. Returns whether there may be more.
    fn copy_piece(&mut self, at: u64, buf: &mut [u8]) -> Result<bool> {
        let Side { inode, open, .. } = self.from;
        let got = read(self.fs, inode, *open, ReadMode::Buffered, at, buf)?;
        let mut rest = buf.get(..got).unwrap_or_default();
        while !rest.is_empty() {
            let pos = WriteAt::Pos(self.to.pos + self.done);
            let (_, put) = write(self.fs, self.to.inode, self.to.open, pos, rest, self.cred)?;
            debug_assert!(
                put <= rest.len(),
                "{put} bytes of {} are written",
                rest.len()
            );
            if put == 0 {
                return Ok(false);
            }
            self.done += put as u64;
            self.ends_in_hole = false;
            rest = rest.get(put..).unwrap_or_default();
        }
        Ok(got > 0)
    }

    /// Makes the next `len` bytes zeros that take no space, as far as the target has them. The rest
    /// is zeros when more is written behind it, or with [`Copy::reach_end`].
    fn skip(&mut self, len: u64) -> Result<()> {
        let pos = self.to.pos + self.done;
        if pos < self.to.inode.size() {
            writeback_gap_below(&FileContext::new(self.fs, self.to.inode), Pos::new(pos))?;
            let mode = FallocateMode::PunchHole;
            fallocate(self.fs, self.to.inode, mode, (pos, len), self.cred)?;
        }
        self.done += len;
        self.ends_in_hole = true;
        Ok(())
    }

    /// Makes the target as long as what is done, where that ends in a hole. If that fails, a hole
    /// behind the end is not done.
    fn reach_end(&mut self) -> Result<()> {
        if !self.ends_in_hole {
            return Ok(());
        }
        let end = self.to.pos + self.done;
        let result = truncate::extend_to_at_least(self.fs, self.to.inode, end, self.cred);
        result.inspect_err(|_| {
            let there = self.to.inode.size().saturating_sub(self.to.pos);
            self.done = self.done.min(there);
        })
    }
}
