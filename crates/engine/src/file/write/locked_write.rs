//! Writes that lock their range: the way for everything that is more than cached bytes.

use std::cell::Cell;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_failpoint::Failpoint;
use extant_iomap::{Behind, Payload};
use extant_units::{Pos, at_most_usize};

use crate::alloc;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{WriteAt, lock_for_write};
use crate::file::{data_path, direct, error_reporting, max_size, truncate, write_through};
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr::privileges;

/// Way of a write's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Via {
    /// Into the page cache, to be written later.
    Cache,
    /// To the device, past the cache (`O_DIRECT`).
    Device,
}

/// One write.
pub(super) struct Request<'a, P: ?Sized> {
    pub(super) via: Via,
    pub(super) at: WriteAt,
    pub(super) bytes: &'a P,
    cred: &'a Cred,
}

impl<'a, P: ?Sized> Request<'a, P> {
    pub(super) fn new(via: Via, at: WriteAt, bytes: &'a P, cred: &'a Cred) -> Self {
        Self {
            via,
            at,
            bytes,
            cred,
        }
    }
}

/// Writes what `request` asks for. Returns the position, and the number of bytes written.
///
/// A write that found space for a part is tried again as a whole: two parts under two locks could
/// interleave with another write. But what it has released belongs to writers that came after it,
/// so from there on it goes on behind what is written, as a caller does that is told of a part. An
/// append has its position by then, and a direct write is cut where the device's blocks are.
pub(super) fn write<P: Payload + ?Sized>(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    request: &Request<'_, P>,
) -> Result<(u64, usize)> {
    let Request { via, at, bytes, .. } = *request;
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
        let attempt = write_locked(fs, inode, request, before);
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
    result.inspect_err(|error| error_reporting::latch_if_corrupt(fs, error))
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

/// Writes the bytes of `request` behind the first `passed`.
fn write_locked<P: Payload + ?Sized>(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    request: &Request<'_, P>,
    passed: usize,
) -> Result<Attempt> {
    let Request { bytes, cred, .. } = *request;
    let want = bytes.len() - passed;
    let at = request.at.behind(passed);
    let (mut held, pos, size) = lock_for_write(fs, inode, at, want as u64)?;
    let cx = FileContext::new(fs, inode).with_cred(cred);
    let fresh = !matches!(at, WriteAt::Cached(_));
    if fresh && cx.flags.contains(InodeFlags::IMMUTABLE) {
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
        data_path::zero_range(&cx, Pos::new(size), pos.min(block_end) - size)?;
        truncate::drop_stale_blocks_past_eof(&cx, block_end, pos)?;
    }
    let start = Pos::new(pos);
    let contiguous = || bytes.contiguous();
    let done = match request.via {
        Via::Device => direct::write(&cx, &mut held, start, &contiguous()[passed..passed + len])?,
        Via::Cache if fresh => {
            let mut source = bytes.source();
            let source = Behind::new(&mut source, passed);
            data_path::write_unlocking_front(&cx, &mut held, start, 0..len, source)?
        }
        Via::Cache => {
            write_through::write(&cx, &mut held, start, &contiguous()[passed..passed + len])?
        }
    };
    if fs.tuning.failpoint.is(Failpoint::SizeBeforeData) {
        cx.move_size_early(Pos::new(pos + done as u64))?;
    }
    Ok(Attempt {
        pos,
        done,
        over: held.has_released(),
    })
}
