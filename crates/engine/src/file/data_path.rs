//! Which code moves a file's buffered data: the only place where the paths part.
//! `inode/path_choice.rs` chooses which file takes which.

use std::ops::Range;

use extant_disk::inode::InodeFlags;
use extant_iomap::{
    Miss, Payload, ReadView, Source, SourceTail, Stopped, Target, WritebackControl,
};
use extant_pagecache::{Readahead, RecentFolios};
use extant_units::{BlockSize, Pos, at_most_usize, index};

use crate::alloc;
use crate::config::BufferedPath;
use crate::crypt;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{self, FileRangeGuard, WriteAt};
use crate::file::verity;
use crate::inline_data;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Bytes of an edit that are copied at a time, where it cannot be done in place.
const EDIT_CHUNK_BYTES: usize = 64 << 10;

/// Fails for files whose contents are not in their blocks, or encrypted without a key.
///
/// # Errors
/// [`Error::OutOfRange`] for data inside of the inode, which callers treat before;
/// [`Error::NoKey`].
pub(super) fn require_data_in_blocks(cx: &FileContext<'_>) -> Result<()> {
    match cx.flags.contains(InodeFlags::INLINE_DATA) {
        true => Err(Error::OutOfRange),
        false => require_key(cx.fs, cx.inode, cx.flags),
    }
}

/// Fails for an encrypted file without a key.
fn require_key(fs: &Fs, inode: &Inode, flags: InodeFlags) -> Result<()> {
    match flags.contains(InodeFlags::ENCRYPT) {
        true => crypt::require_key(fs, inode).map(drop),
        false => Ok(()),
    }
}

/// Fails for files whose blocks cannot be changed: those, and what fs-verity protects.
pub(super) fn require_writable_data(cx: &FileContext<'_>) -> Result<()> {
    require_data_in_blocks(cx)?;
    require_unsealed(cx.flags)
}

/// Fails for files whose contents cannot be changed, wherever they are.
pub(super) fn require_changeable(fs: &Fs, inode: &Inode, flags: InodeFlags) -> Result<()> {
    require_key(fs, inode, flags)?;
    require_unsealed(flags)
}

/// Fails for files whose contents fs-verity protects.
pub(super) fn require_unsealed(flags: InodeFlags) -> Result<()> {
    match verity::is_protected(flags) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// Buffered read.
pub(super) fn read(
    cx: &FileContext<'_>,
    recent: &RecentFolios,
    on_miss: Miss<'_>,
    pos: Pos,
    buf: &mut (impl Target + ?Sized),
) -> Result<usize> {
    if cx.flags.contains(InodeFlags::INLINE_DATA) {
        let Some(part) = inline_part(cx, pos, buf.len())? else {
            return read(&cx.refreshed(), recent, on_miss, pos, buf);
        };
        buf.put(0, &part);
        return Ok(part.len());
    }
    require_data_in_blocks(cx)?;
    // Both data paths find cached blocks alike, and fill the cache by ranges: the records of the
    // buffer-head path hear of it.
    match extant_iomap::read(cx, recent, on_miss, pos, buf) {
        Ok(done) => Ok(done),
        Err(stopped) => partial(stopped.done, stopped.error),
    }
}

/// The number of bytes that a read of `len` bytes at `pos` finds, if all of them are zeros of a
/// hole; zero otherwise.
pub(super) fn hole_at(cx: &FileContext<'_>, pos: Pos, len: usize) -> Result<usize> {
    if cx.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(0);
    }
    require_data_in_blocks(cx)?;
    extant_iomap::hole_at(cx, pos, len)
}

/// The first `len` bytes at `pos` that are inside of the inode, or as many as there are; `None` if
/// the data has moved to a block since the operation began.
fn inline_part(cx: &FileContext<'_>, pos: Pos, len: usize) -> Result<Option<Vec<u8>>> {
    if verity::is_protected(cx.flags) {
        return Err(verity::unprotected(cx.inode));
    }
    let data = inline_data::read(cx.fs, cx.inode)?;
    Ok(data.map(|mut data| {
        data.drain(..at_most_usize(pos.get()).min(data.len()));
        data.truncate(len);
        data
    }))
}

/// Tries a buffered write of what is cached already, as one step and without the file's lock: below
/// the end of the file under the folio locks, or one that makes it longer within a cached block
/// under the EOF lock, with which `needs_only_copy` says whether the write has nothing else to do.
/// Returns the position; `None` if that cannot be, and nothing has changed then.
#[inline(always)]
pub(super) fn try_write_cached(
    cx: &FileContext<'_>,
    recent: &RecentFolios,
    at: WriteAt,
    bytes: &(impl Payload + ?Sized),
    needs_only_copy: impl FnOnce() -> bool,
) -> Option<u64> {
    if cx.data_path.kind != BufferedPath::Iomap {
        return None;
    }
    let (inode, state) = (cx.inode, cx.state);
    let len = bytes.len() as u64;
    let on_this_path = || state.data_path.get() == cx.data_path;
    let below_the_end = |pos: &u64| pos.saturating_add(len) <= inode.size();
    if let Some(pos) = at.position().filter(below_the_end) {
        let at = Pos::new(pos);
        // A holder of the range (a truncation, a longer write) or of the file's lock takes folios
        // one by one. From its first folio on, writes of this kind stay out of its part of the
        // folio. What it changed about the file before is seen by what is read after this look.
        let alone = || !range_lock::is_locked(inode, state, at, bytes.len()) && on_this_path();
        return extant_iomap::try_overwrite(cx, recent, at, bytes, alone).then_some(pos);
    }
    let (_eof, pos) = range_lock::try_lock_append(cx.fs, inode, state, at, len)?;
    let alone = needs_only_copy() && on_this_path();
    (alone && extant_iomap::try_extend(cx, recent, Pos::new(pos), bytes)).then_some(pos)
}

/// Buffered write. A write that runs out of space goes on where commits return some.
pub(super) fn write(
    cx: &FileContext<'_>,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize> {
    require_writable_data(cx)?;
    let written = match cx.data_path.kind {
        BufferedPath::Iomap => extant_iomap::write(cx, pos, len, source),
        BufferedPath::BufferHead => write_by_block(cx, pos, len, source),
    };
    match written {
        Ok(done) => Ok(done),
        Err(stopped) => partial(stopped.done, stopped.error),
    }
}

/// Writes the bytes `rest` of `source`, whose first byte goes to `pos`, into the cache. Returns how
/// many bytes are written then, those before `rest` included.
///
/// # Errors
/// Of the first byte, if nothing is written.
pub(super) fn write_rest(
    cx: &FileContext<'_>,
    pos: Pos,
    rest: Range<usize>,
    mut source: impl Source,
) -> Result<usize> {
    let Range {
        start: done,
        end: len,
    } = rest;
    if done >= len {
        return Ok(done);
    }
    let at = pos.plus(done as u64);
    match write(cx, at, len - done, &mut SourceTail::new(&mut source, done)) {
        Ok(more) => {
            debug_assert!(done + more <= len, "{done} and {more} of {len} bytes");
            Ok(done + more)
        }
        Err(error) if done == 0 => Err(error),
        // What did arrive counts; the next call meets the error again.
        Err(_) => Ok(done),
    }
}

/// [`write_rest`] of a writer that unlocks the front of its range as it goes on.
///
/// # Errors
/// As [`write_rest`].
pub(super) fn write_unlocking_front(
    cx: &FileContext<'_>,
    held: &mut FileRangeGuard<'_>,
    pos: Pos,
    rest: Range<usize>,
    source: impl Source,
) -> Result<usize> {
    write_rest(
        cx,
        pos,
        rest,
        FrontUnlockingSource::new(cx, source, pos, held),
    )
}

/// A source that unlocks, before each copy, the part of the range in front of it: what is copied
/// next follows what is in the cache already.
struct FrontUnlockingSource<'a, 'l, S> {
    source: S,
    /// Position of the source's first byte.
    pos: Pos,
    block_size: BlockSize,
    held: &'a mut FileRangeGuard<'l>,
}

impl<'a, 'l, S> FrontUnlockingSource<'a, 'l, S> {
    fn new(cx: &FileContext<'_>, source: S, pos: Pos, held: &'a mut FileRangeGuard<'l>) -> Self {
        let block_size = cx.fs.layout.block_size;
        Self {
            source,
            pos,
            block_size,
            held,
        }
    }
}

impl<S: Source> Source for FrontUnlockingSource<'_, '_, S> {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        // Bytes are asked for in order, once those before them are in the cache and dirty.
        let at = self.pos.plus(offset as u64);
        self.held.release_before(at, self.block_size);
        self.source.copy_at(offset, into)
    }
}

/// The buffer-head path finds space below a folio lock, where nothing may wait for a commit: it
/// stops there, and is called again without that lock.
fn write_by_block(
    cx: &FileContext<'_>,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize, Stopped<Error>> {
    let (mut done, mut retries) = (0, alloc::Retries::default());
    loop {
        let mut rest = SourceTail::new(source, done);
        let at = pos.plus(done as u64);
        match extant_bufferhead::write(cx, at, len - done, &mut rest) {
            Ok(more) => return Ok(done + more),
            Err(stopped) => {
                if stopped.done > 0 {
                    retries = alloc::Retries::default();
                }
                done += index(stopped.done);
                debug_assert!(done <= len, "{done} bytes of {len} are written");
                if !retries.should_retry_alloc(cx.fs, &stopped.error) {
                    return Err(Stopped {
                        done: done as u64,
                        error: stopped.error,
                    });
                }
            }
        }
    }
}

/// A view of cached bytes.
pub(super) fn view(
    cx: &FileContext<'_>,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
) -> Result<ReadView> {
    if cx.flags.contains(InodeFlags::INLINE_DATA) {
        return match inline_part(cx, pos, len)? {
            Some(part) => Ok(ReadView::of_copy(part)),
            None => view(&cx.refreshed(), readahead, pos, len),
        };
    }
    require_data_in_blocks(cx)?;
    // Both data paths keep their bytes in the same folios.
    extant_iomap::view(cx, readahead, pos, len).map_err(|stopped| stopped.error)
}

/// Changes bytes in place; on the buffer-head path, in a copy that is written.
pub(super) fn edit(
    cx: &FileContext<'_>,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
    change: &mut dyn FnMut(Pos, &mut [u8]),
) -> Result<usize> {
    require_writable_data(cx)?;
    if cx.data_path.kind == BufferedPath::Iomap {
        return match extant_iomap::edit(cx, readahead, pos, len, change) {
            Ok(done) => Ok(done),
            Err(stopped) => partial(stopped.done, stopped.error),
        };
    }
    let recent = RecentFolios::default();
    let mut piece = vec![0; len.min(EDIT_CHUNK_BYTES)];
    let mut done = 0;
    while done < len {
        let at = pos.plus(done as u64);
        let want = (len - done).min(EDIT_CHUNK_BYTES);
        let bytes = &mut piece[..want];
        let part = read(cx, &recent, Miss::Fill(readahead), at, bytes).and_then(|there| {
            debug_assert!(there <= want, "{there} bytes of {want} are read");
            let bytes = &mut bytes[..there];
            if !bytes.is_empty() {
                change(at, bytes);
            }
            write(cx, at, there, &mut &*bytes)
        });
        match part {
            Ok(0) => break,
            Ok(part) => done += part,
            Err(error) => return partial(done as u64, error),
        }
    }
    Ok(done)
}

/// Zeroes a range that has data; says whether anything changed.
pub(super) fn zero_range(cx: &FileContext<'_>, pos: Pos, len: u64) -> Result<bool> {
    require_writable_data(cx)?;
    let changed = extant_iomap::zero_range(cx, pos, len).map_err(|stopped| stopped.error)?;
    if changed && cx.data_path.journalled {
        // Before whatever makes the range part of the file.
        writeback_on_path(cx, WritebackControl::integrity(pos, pos.plus(len)))?;
    }
    Ok(changed)
}

/// Writes back `control`'s part of what is dirty by the file's path, and waits for it.
pub(super) fn writeback_on_path(cx: &FileContext<'_>, control: WritebackControl) -> Result<u64> {
    let pass = cx.state.address_space.writeback_pass();
    // A switch of the data path holds the pass, and may have come since `cx` was made: a flusher
    // holds no other lock of the file.
    let cx = &cx.refreshed();
    match cx.data_path.kind {
        BufferedPath::Iomap => extant_iomap::write_back(cx, &pass, control),
        BufferedPath::BufferHead => extant_bufferhead::write_back(cx, &pass, control),
    }
}

/// Some bytes done are a success; the next call meets the error again.
fn partial(done: u64, error: Error) -> Result<usize> {
    match usize::try_from(done) {
        Ok(done) if done > 0 => Ok(done),
        _ => Err(error),
    }
}
