//! Writing to files: limits, privileges, the space behind the old end, and errors that a second try
//! may cure.
//!
//! # Locks
//! A write that changes nothing but cached bytes within one folio or a few takes their locks and no
//! other, and the EOF lock if it moves the end; every other one holds the inode's `lock` and its
//! range (`range_lock`). `docs/PATH_OF_A_WRITE.md` says why that is enough.

use std::cell::Cell;
use std::io::IoSlice;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_failpoint::Failpoint;
use extant_iomap::{Behind, Payload, Source};
use extant_units::{BlockSize, Pos, at_most_usize};

use crate::alloc;
use crate::file::data_path;
use crate::file::direct;
use crate::file::first_use::check_kind;
use crate::file::lock::range_lock::{Held, lock_for_write, try_lock_append};
use crate::file::mapping::iomap_ops::FileOps;
use crate::file::max_size;
use crate::file::truncate;
use crate::file::write_at::WriteAt;
use crate::file::write_through;
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr::privileges;

/// Which way the bytes take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Via {
    /// Into the page cache, to be written later.
    Cache,
    /// To the device, past the cache (`O_DIRECT`).
    Device,
}

/// Writes `bytes` into the cache; `open` is the writer's own state, if it has one. Returns where,
/// and how many, fewer if an error or a limit stopped the rest. Takes privileges away and notes the
/// time, as a modification does. Durable on return only with the mount option `sync` or the file's
/// flag.
///
/// # Errors
/// [`Error::NoSpace`]; [`Error::FileTooBig`]; [`Error::NotPermitted`] for immutable files; device
/// and map failures. Nothing was written then.
pub(crate) fn write(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &[u8],
    cred: &Cred,
) -> Result<(u64, usize)> {
    write_via(Via::Cache, fs, inode, open, at, bytes, cred)
}

/// [`write()`] of several buffers, one after the other, as one write.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_vectored(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bufs: &[IoSlice<'_>],
    cred: &Cred,
) -> Result<(u64, usize)> {
    write_via(Via::Cache, fs, inode, open, at, bufs, cred)
}

/// [`write()`] past the cache (`O_DIRECT`): on return the bytes are on the device, with their
/// position and the size.
///
/// # Errors
/// As [`write()`]; what kept older data of the range from being written.
pub(crate) fn write_direct(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &[u8],
    cred: &Cred,
) -> Result<(u64, usize)> {
    write_via(Via::Device, fs, inode, open, at, bytes, cred)
}

#[inline]
fn write_via(
    via: Via,
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &(impl Payload + ?Sized),
    cred: &Cred,
) -> Result<(u64, usize)> {
    fs.check_writable()?;
    check_kind(inode)?;
    if bytes.is_empty() {
        return Ok((inode.size(), 0));
    }
    let cached = via == Via::Cache;
    let (pos, done) = match cached.then(|| put_in_folio(fs, inode, open, at, bytes)) {
        Some(Some(pos)) => (pos, bytes.len()),
        _ => write_mapped(fs, inode, at, via, bytes, cred)?,
    };
    if fs.options.sync() || inode.flags().contains(InodeFlags::SYNC) {
        crate::file::fsync(fs, inode, open, false)?;
    }
    Ok((pos, done))
}

/// The shortest ways, for a write that changes cached bytes of the file and nothing else (not its
/// map, times or privileges), but that it may make it longer. Returns where it went; `None` if
/// there is more to do.
#[inline]
pub(in crate::file) fn put_in_folio(
    fs: &Fs,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &(impl Payload + ?Sized),
) -> Option<u64> {
    let ops = FileOps::new(fs, inode);
    let noted = || match at {
        WriteAt::Pos(_) | WriteAt::End => {
            !inode.flags().contains(InodeFlags::IMMUTABLE) && privileges::nothing_to_modify(inode)
        }
        WriteAt::Cached(_) => true,
    };
    if inode.is_gone() || !(noted() || note_write(&ops, at, bytes.len())) {
        return None;
    }
    let recent = &open.unwrap_or(&ops.data.shared).recent;
    let len = bytes.len() as u64;
    let below_the_end = |pos: &u64| pos.saturating_add(len) <= inode.size();
    if let Some(pos) = at.position().filter(below_the_end) {
        return data_path::overwrite(&ops, recent, Pos::new(pos), bytes).then_some(pos);
    }
    let (eof, pos) = try_lock_append(fs, inode, ops.data, at, len)?;
    // A holder of `lock` before this may have changed attributes.
    if !noted() {
        return None;
    }
    data_path::extend(&ops, &eof, recent, Pos::new(pos), bytes).then_some(pos)
}

/// Does what a write asks for before its bytes, if that takes no handle, and the write is one that
/// cannot be refused.
#[cold]
fn note_write(ops: &FileOps<'_>, at: WriteAt, len: usize) -> bool {
    let end = at.position().unwrap_or(ops.inode.size());
    let fits = end.saturating_add(len as u64) <= max_size(ops.fs, ops.inode);
    fits && !ops.flags.contains(InodeFlags::IMMUTABLE)
        && privileges::note_plain_write(ops.fs, ops.inode)
}

/// The way for everything else.
///
/// A write that found space for a part is tried again as a whole: two parts under two locks could
/// interleave with another write. But what it has released belongs to writers that came after it,
/// so from there on it goes on behind what is written, as a caller does that is told of a part. An
/// append has its place by then, and a direct write is cut where the device's blocks are.
fn write_mapped(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    at: WriteAt,
    via: Via,
    bytes: &(impl Payload + ?Sized),
    cred: &Cred,
) -> Result<(u64, usize)> {
    let goes_on = via == Via::Cache && at.position().is_some();
    // The bytes of attempts that are not repeated.
    let passed = Cell::new(0);
    let lacks_space = |result: &Result<(u64, usize)>| match result {
        // One that was cut at the largest size has all its space.
        Ok((pos, done)) => {
            let end = pos + *done as u64;
            goes_on && *done < bytes.len() && end < max_size(fs, inode)
        }
        Err(error) => matches!(error, Error::NoSpace),
    };
    let write = || {
        let before = passed.get();
        let attempt = write_locked(fs, inode, at.behind(before), via, (bytes, before), cred);
        let Attempt { pos, done, over } = match attempt {
            Ok(attempt) => attempt,
            Err(error) if before == 0 => return Err(error),
            // What did arrive counts.
            Err(_) => return Ok((at.position().unwrap_or_default(), before)),
        };
        debug_assert!(before + done <= bytes.len(), "{before} and {done} bytes");
        if over {
            passed.set(before + done);
        }
        Ok((pos - before as u64, before + done))
    };
    let result = alloc::retry_unlocked_while(fs, write, lacks_space);
    result.inspect_err(|error| crate::file::report(fs, error))
}

/// Result of a write under one lock.
struct Attempt {
    /// Position of its first byte.
    pos: u64,
    /// Bytes written.
    done: usize,
    /// They are not to be written again: other writers may have passed there.
    over: bool,
}

/// Writes `bytes` behind the first `passed`, which go to `at`.
fn write_locked(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    at: WriteAt,
    via: Via,
    (bytes, passed): (&(impl Payload + ?Sized), usize),
    cred: &Cred,
) -> Result<Attempt> {
    let want = bytes.len() - passed;
    let (mut held, pos, size) = lock_for_write(fs, inode, at, want as u64)?;
    let ops = FileOps::new(fs, inode).with_cred(cred);
    let fresh = !matches!(at, WriteAt::Cached(_));
    if fresh && ops.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    let limit = max_size(fs, inode);
    let room = limit.checked_sub(pos).filter(|&room| room > 0);
    let room = room.ok_or(Error::FileTooBig)?;
    let len = at_most_usize(room).min(want);
    if fresh {
        privileges::file_modified(fs, inode, cred)?;
    }
    if pos > size {
        // What lies behind the old end becomes part of the file: it must read as zero.
        let block_end = fs.layout.block_size.round_up(Pos::new(size));
        let block_end = block_end.unwrap_or(Pos::MAX).get();
        data_path::zero_range(&ops, Pos::new(size), pos.min(block_end) - size)?;
        truncate::unwrite_leftovers(&ops, block_end, pos)?;
    }
    let at = Pos::new(pos);
    let contiguous = || bytes.contiguous();
    let done = match via {
        Via::Device => {
            let bytes = contiguous();
            put_on_device(&ops, &mut held, at, &bytes[passed..passed + len])?
        }
        Via::Cache if fresh => {
            let mut source = bytes.source();
            let source = Behind::new(&mut source, passed);
            let source = Releasing::new(&ops, source, at, &mut held);
            put_in_cache(&ops, (at, len), source, 0)?
        }
        Via::Cache => {
            let bytes = contiguous();
            let bytes = &bytes[passed..passed + len];
            let done = write_through::write(&ops, &mut held, at, bytes)?;
            let source = Releasing::new(&ops, bytes, at, &mut held);
            put_in_cache(&ops, (at, len), source, done)?
        }
    };
    if fs.tuning.failpoint.is(Failpoint::SizeBeforeData) {
        ops.move_size_early(Pos::new(pos + done as u64))?;
    }
    Ok(Attempt {
        pos,
        done,
        over: held.has_released(),
    })
}

/// A source whose writer lets go of what it has written.
struct Releasing<'a, 'l, S> {
    source: S,
    /// Where the source's first byte goes.
    pos: Pos,
    block_size: BlockSize,
    held: &'a mut Held<'l>,
}

impl<'a, 'l, S> Releasing<'a, 'l, S> {
    fn new(ops: &FileOps<'_>, source: S, pos: Pos, held: &'a mut Held<'l>) -> Self {
        let block_size = ops.fs.layout.block_size;
        Self {
            source,
            pos,
            block_size,
            held,
        }
    }
}

impl<S: Source> Source for Releasing<'_, '_, S> {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        // Bytes are asked for in order, once those before them are in the cache and dirty.
        let at = self.pos.plus(offset as u64);
        self.held.release_before(at, self.block_size);
        self.source.copy_at(offset, into)
    }
}

/// Writes `len` bytes of `source` at `pos` into the cache, except for the first `done`, which are
/// written already. Returns how many bytes are written then.
fn put_in_cache(
    ops: &FileOps<'_>,
    (pos, len): (Pos, usize),
    mut source: impl Source,
    done: usize,
) -> Result<usize> {
    if done >= len {
        return Ok(done);
    }
    let at = pos.plus(done as u64);
    let mut rest = Behind::new(&mut source, done);
    match data_path::write(ops, at, len - done, &mut rest) {
        Ok(more) => {
            debug_assert!(done + more <= len, "{done} and {more} of {len} bytes");
            Ok(done + more)
        }
        Err(error) if done == 0 => Err(error),
        // What did arrive counts; the next call meets the error again.
        Err(_) => Ok(done),
    }
}

/// Writes `bytes` at `pos` past the cache; what has to go through it goes on to the device from
/// there. That part stays locked until it is on the device: a second attempt may write it again.
fn put_on_device(ops: &FileOps<'_>, held: &mut Held<'_>, pos: Pos, bytes: &[u8]) -> Result<usize> {
    let direct = direct::write(ops, held, pos, bytes)?;
    debug_assert!(direct.bytes <= bytes.len(), "no more than there is");
    if !direct.falls_back {
        return Ok(direct.bytes);
    }
    let done = put_in_cache(ops, (pos, bytes.len()), bytes, direct.bytes)?;
    let position = |done: usize| pos.plus(done as u64);
    match direct::write_back_cached(ops, position(direct.bytes), position(done)) {
        Err(error) if direct.bytes == 0 => Err(error),
        Err(_) => Ok(direct.bytes),
        Ok(()) => Ok(done),
    }
}
