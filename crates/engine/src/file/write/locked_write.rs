//! Writes that lock their range: the way for everything that is more than cached bytes.

use std::cell::Cell;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_failpoint::Failpoint;
use extant_iomap::{Payload, SourceTail};
use extant_pagecache::SEQUENTIAL_FOLIO_BYTES;
use extant_units::{Pos, at_most_usize};

use crate::alloc;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{WriteAt, lock_for_write};
use crate::file::{
    data_path, direct, error_reporting, inline_file, max_size, switch_path, truncate, write_through,
};
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr::privileges;

/// Way of a write's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Into the page cache, to be written later.
    Buffered,
    /// From a cache above ours, to the device at once where that can be.
    WriteThrough,
    /// To the device, past the cache (`O_DIRECT`).
    Direct,
}

/// One write.
pub(super) struct WriteRequest<'a, P: ?Sized> {
    pub(super) route: Route,
    pub(super) at: WriteAt,
    pub(super) bytes: &'a P,
    cred: &'a Cred,
}

impl<'a, P: ?Sized> WriteRequest<'a, P> {
    /// A write through the page cache, unless a cache above has had it.
    pub(super) fn buffered(at: WriteAt, bytes: &'a P, cred: &'a Cred) -> Self {
        let route = match at {
            WriteAt::Pos(_) | WriteAt::End => Route::Buffered,
            WriteAt::UpperWriteback(_) => Route::WriteThrough,
        };
        Self {
            route,
            at,
            bytes,
            cred,
        }
    }

    /// A write past the page cache.
    pub(super) fn direct(at: WriteAt, bytes: &'a P, cred: &'a Cred) -> Self {
        debug_assert!(
            !matches!(at, WriteAt::UpperWriteback(_)),
            "a cache above asks for no direct write"
        );
        Self {
            route: Route::Direct,
            at,
            bytes,
            cred,
        }
    }
}

/// Writes what `request` asks for. Returns the position, and the number of bytes written.
///
/// If space ran out, the rest is a write of its own, after what is written: readers may have seen
/// that, and other writers have passed there, since it was unlocked. An append has its position by
/// then, and a direct write is cut where the device's blocks are. An attempt that fails takes
/// nothing back: the result is what was written before.
pub(super) fn write<P: Payload + ?Sized>(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    request: &WriteRequest<'_, P>,
) -> Result<(u64, usize)> {
    let WriteRequest {
        route, at, bytes, ..
    } = *request;
    let is_resumable = route != Route::Direct && at.position().is_some();
    // The bytes that attempts have written: they stay, and are not written again.
    let written = Cell::new(0);
    let begins_again = fs.tuning.failpoint.is(Failpoint::RetryUndoesWrite);
    let lacks_space = |result: &Result<(u64, usize)>| match result {
        // One that was cut at the largest size has all its space.
        Ok((pos, done)) => {
            let end = pos + *done as u64;
            is_resumable && *done < bytes.len() && end < max_size(fs, inode)
        }
        Err(error) => error.is_lack_of_room(),
    };
    let write = || {
        let before = if begins_again { 0 } else { written.get() };
        let (pos, done) = match lock_and_write(fs, inode, request, before) {
            Ok(attempt) => attempt,
            Err(error) if written.get() == 0 => return Err(error),
            // What did arrive counts.
            Err(_) => return Ok((at.position().unwrap_or_default(), written.get())),
        };
        debug_assert!(before + done <= bytes.len(), "{before} and {done} bytes");
        written.set(written.get().max(before + done));
        Ok((pos - before as u64, written.get()))
    };
    let result = alloc::retry_unlocked_while(fs, write, lacks_space);
    result.inspect_err(|error| error_reporting::latch_if_corrupt(fs, error))
}

/// Writes the bytes of `request` after the first `skipped`. Returns the position of the first of
/// them, and how many were written.
fn lock_and_write<P: Payload + ?Sized>(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    request: &WriteRequest<'_, P>,
    skipped: usize,
) -> Result<(u64, usize)> {
    let WriteRequest { bytes, cred, .. } = *request;
    let want = bytes.len() - skipped;
    let at = request.at.advanced_by(skipped);
    // A small cached write maps the rest of its folio as well, for writes that follow it.
    let prepares = request.route == Route::Buffered && (want as u64) < SEQUENTIAL_FOLIO_BYTES;
    let align = if prepares { SEQUENTIAL_FOLIO_BYTES } else { 1 };
    let (mut held, pos, size) = lock_for_write(fs, inode, at, want as u64, align)?;
    let mut cx = FileContext::new(fs, inode).with_cred(cred);
    let is_new = request.route != Route::WriteThrough;
    if is_new && cx.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    data_path::require_changeable(fs, inode, cx.flags)?;
    let limit = max_size(fs, inode);
    let room = limit.checked_sub(pos).filter(|&room| room > 0);
    let room = room.ok_or(Error::FileTooBig)?;
    let len = at_most_usize(room).min(want);
    if is_new {
        privileges::file_modified(fs, inode, cred)?;
    }
    if cx.flags.contains(InodeFlags::INLINE_DATA)
        && let Some(whole) = held.whole()
    {
        if request.route == Route::Direct {
            switch_path::leave_inode(fs, whole, inode, cx.privileged)?;
        } else if inline_file::write(&cx, whole, pos, &bytes.contiguous()[skipped..][..len])? {
            return Ok((pos, len));
        }
        cx = cx.refreshed();
    }
    if prepares {
        cx = cx.with_locked_to(held.end());
    }
    if pos > size {
        // What lies past the old end becomes part of the file: it must read as zero.
        let block_end = fs.layout.block_size.round_up(Pos::new(size));
        let block_end = block_end.unwrap_or(Pos::MAX).get();
        data_path::zero_range(&cx, Pos::new(size), pos.min(block_end) - size)?;
        truncate::drop_stale_blocks_past_eof(&cx, block_end, pos)?;
    }
    let start = Pos::new(pos);
    let contiguous = || bytes.contiguous();
    let part = skipped..skipped + len;
    let done = match request.route {
        Route::Direct => direct::write(&cx, &mut held, start, &contiguous()[part])?,
        Route::Buffered => {
            let mut source = bytes.source();
            let source = SourceTail::new(&mut source, skipped);
            data_path::write_unlocking_front(&cx, &mut held, start, 0..len, source)?
        }
        Route::WriteThrough => write_through::write(&cx, &mut held, start, &contiguous()[part])?,
    };
    if fs.tuning.failpoint.is(Failpoint::SizeBeforeData) {
        cx.move_size_early(Pos::new(pos + done as u64))?;
    }
    Ok((pos, done))
}
