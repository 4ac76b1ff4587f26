//! Buffered reads.
//!
//! Each page is read at one moment, as in Linux: what is asked of it is copied under the folio's
//! shared lock, and a page that the cache has in part is filled first. A range that is neither
//! cached nor stored is answered with zeros, without making folios for it: by one look for each
//! page, whatever the number of buffers.

use std::ops::Range;

use extant_pagecache::{InvalidateShared, Readahead, RecentFolios};
use extant_units::{PAGE_SHIFT, PAGE_SIZE, PageIdx, Pos, index};

use crate::buffers::Target;
use crate::fill::{fill, read_fault};
use crate::fill_lock::lock_for_fill;
use crate::iter::Stopped;
use crate::map::IomapKind;
use crate::ops::{IomapOp, IomapOps, Outcome};

/// The way of a read to bytes that are not cached.
#[derive(Clone, Copy)]
pub enum Miss<'a> {
    /// Fills the cache, and reads ahead.
    Fill(&'a Readahead),
    /// Reads from the device straight into the caller's buffer, for callers that keep the bytes in
    /// a cache of their own. A stored block that is written meanwhile may be torn.
    Bypass(&'a Readahead),
}

/// Reads into `buf` from `pos`, up to the end of the file; returns the bytes read.
///
/// # Errors
/// The first error of the file system or the device, with the bytes read before it.
pub fn read<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    on_miss: Miss<'_>,
    pos: Pos,
    buf: &mut (impl Target + ?Sized),
) -> Result<usize, Stopped<O::Error>> {
    let mut done = 0;
    while done < buf.len() {
        let at = pos.plus(done as u64);
        // Nothing is left at the end and past it.
        let left = ops.size().saturating_sub(at.get());
        let want = index(left.min((buf.len() - done) as u64));
        if want == 0 {
            break;
        }
        let copied = copy_cached(ops, recent, at, want, |bytes| buf.put(done, bytes));
        if copied > 0 {
            done += copied;
            if done < buf.len() && !is_page_start(pos.plus(done as u64)) {
                // The file ended here. It may have grown since, but the page has been looked at.
                break;
            }
            continue;
        }
        let (Miss::Fill(readahead) | Miss::Bypass(readahead)) = on_miss;
        if let Miss::Bypass(_) = on_miss
            && !ops.checks_fills()
            && !ops.is_encoded()
        {
            let part = buf.part(done);
            let contiguous = part.len().min(want);
            let read = read_uncached(ops, at, want, &mut part[..contiguous]);
            let read = read.map_err(Stopped::after(done as u64))?;
            if read > 0 {
                done += read;
                continue;
            }
            // A folio has part of the bytes, the data is nowhere else, a page is not read at once,
            // or fills are checked now: through the cache.
        }
        let zeros = miss(ops, readahead, at, want).map_err(Stopped::after(done as u64))?;
        put_zeros(buf, done, zeros);
        done += zeros;
    }
    if let Miss::Fill(readahead) = on_miss
        && done > 0
    {
        read_ahead(ops, readahead, pos.plus(done as u64));
    }
    Ok(done)
}

/// Reads from the device what no folio holds of the `want` bytes at `pos`, up to the end of `out`,
/// the next folio and the end of the mapping. Returns the number of bytes, zero if a folio is there
/// or the first page would be cut. The fill lock keeps the blocks from moving meanwhile. The cache
/// is looked at before the map, so that what the map calls empty was not in a folio, and after it.
fn read_uncached<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    want: usize,
    out: &mut [u8],
) -> Result<usize, O::Error> {
    let end = pos.plus(out.len() as u64);
    let Some(lock) = lock_for_fill(ops, pos..end, Some(pos)) else {
        debug_assert!(false, "a lock of what is needed is waited for");
        return Ok(0);
    };
    if ops.checks_fills() {
        // The file was sealed while this waited for the lock.
        return Ok(0);
    }
    let locked = lock.range.end.since(pos);
    let len = uncached(ops, &lock.invalidate, pos, locked.min(out.len() as u64));
    if len == 0 {
        return Ok(0);
    }
    ops.counters().begins.bump();
    let map = ops.begin(IomapOp::Read, pos, len)?;
    // Blocks may have become written before their data is on the device, with that in a folio which
    // was not there before: so the cache is looked at after the map, too.
    let clear = uncached(ops, &lock.invalidate, pos, len);
    let read = match map.kind {
        IomapKind::Delalloc => 0,
        IomapKind::Hole | IomapKind::Unwritten(_) | IomapKind::Mapped(_) => {
            whole_pages(pos, index(map.clamp(pos, clear)), want)
        }
    };
    let out = &mut out[..read];
    let result = match (&map.kind, map.device_at(pos)) {
        (IomapKind::Mapped(_), Some(at)) if read > 0 => {
            ops.counters().uncached_reads.bump();
            let result = ops.device().read_at(at, out);
            result.map_err(|source| read_fault(at, read as u64, source))
        }
        _ => {
            out.fill(0);
            Ok(())
        }
    };
    let outcome = Outcome::done(if result.is_ok() { read as u64 } else { 0 });
    ops.end(IomapOp::Read, &map, pos, map.clamp(pos, len), outcome)?;
    result.map(|()| read)
}

/// Calls `copy` with the bytes that the folio at `pos` has of the `len` bytes from `pos` on, up to
/// the first page that it has in part. Returns their number, zero if that is the page of `pos`.
#[inline]
fn copy_cached<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    len: usize,
    copy: impl FnOnce(&[u8]),
) -> usize {
    let pages = ops.address_space();
    let copied = recent.with_folio(pages, pos.page(), |folio| {
        let guard = pages.read(folio)?;
        let from = folio.offset_of(pos);
        // What lies behind the end is no part of the file: a truncation clears it later.
        let end = folio.offset_of(Pos::new(ops.size()));
        let mut to = folio.len().min(from + len).min(end);
        if to <= from {
            return None;
        }
        if !guard.is_uptodate(from..to) {
            let missing = guard.next_uptodate(from, false).unwrap_or(to).min(to);
            to = missing & !(PAGE_SIZE - 1);
            if to <= from {
                return None;
            }
            debug_assert!(guard.is_uptodate(from..to), "J3: {from}..{to}");
        }
        copy(&guard.bytes()[from..to]);
        folio.mark_referenced();
        Some(to - from)
    });
    // No folio, or one that has left the address space: not cached.
    copied.flatten().unwrap_or(0)
}

/// Handles a miss at `pos`, the first of `want` bytes. If nothing is stored there, returns the
/// number of bytes that are zero; otherwise fills the cache and returns none.
fn miss<O: IomapOps + ?Sized>(
    ops: &O,
    readahead: &Readahead,
    pos: Pos,
    want: usize,
) -> Result<usize, O::Error> {
    if ops.size() <= pos.get() {
        // Cut off meanwhile: the caller sees that.
        return Ok(0);
    }
    let zeros = zeros_at(ops, pos, want)?;
    if zeros > 0 {
        return Ok(zeros);
    }
    let first = pos.page().get();
    let last = pos.plus(want as u64 - 1).page().get();
    let window = readahead.miss(first, last - first + 1, ops.address_space().max_order());
    fill(ops, window, Some(needed_at(pos, want)))?;
    Ok(0)
}

/// The first of `want` bytes at `pos` that are copied at one moment: those of the first page.
pub(crate) fn needed_at(pos: Pos, want: usize) -> Range<Pos> {
    let left = PAGE_SIZE - (index(pos.get() & (PAGE_SIZE as u64 - 1)));
    pos..pos.plus(want.min(left) as u64)
}

/// Returns whether a page begins at `pos`.
pub(crate) fn is_page_start(pos: Pos) -> bool {
    pos.get() & (PAGE_SIZE as u64 - 1) == 0
}

/// As many of the `found` bytes at `pos`, of which `want` are asked for, as lie in pages that are
/// answered whole. The rest of a cut page would be looked at a second time, and a write to all of
/// it may come in between.
fn whole_pages(pos: Pos, found: usize, want: usize) -> usize {
    if found >= want {
        return found;
    }
    let over = pos.plus(found as u64).get() & ((1 << PAGE_SHIFT) - 1);
    // None if they end in their first page.
    found.saturating_sub(index(over))
}

/// Puts `len` zeros at byte `offset` of `buf`.
fn put_zeros(buf: &mut (impl Target + ?Sized), offset: usize, len: usize) {
    let mut done = 0;
    while done < len {
        let part = buf.part(offset + done);
        let here = part.len().min(len - done);
        debug_assert!(here > 0, "zeros beyond the end of the target");
        if here == 0 {
            return;
        }
        part[..here].fill(0);
        done += here;
    }
}

/// The number of bytes that a read of `len` bytes at `pos` finds, if all of them are zero because
/// neither the cache nor the device has them; zero otherwise.
///
/// # Errors
/// The file system has no mapping for them.
pub fn hole_at<O: IomapOps + ?Sized>(ops: &O, pos: Pos, len: usize) -> Result<usize, O::Error> {
    let left = ops.size().saturating_sub(pos.get());
    let want = index(left.min(len as u64));
    if want == 0 {
        return Ok(0);
    }
    let zeros = zeros_at(ops, pos, want)?;
    debug_assert!(zeros <= want, "{zeros} of {want} bytes");
    Ok(if zeros == want { want } else { 0 })
}

/// The number of the `want` bytes at `pos` that are zero because neither the cache nor the device
/// has them: whole pages of them.
pub(crate) fn zeros_at<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    want: usize,
) -> Result<usize, O::Error> {
    let len = want as u64;
    let blocks_stay = ops.address_space().invalidate_lock().read();
    if ops.checks_fills() {
        // Asked under the lock: the file may be sealed while this waits for it.
        return Ok(0);
    }
    let clear = uncached(ops, &blocks_stay, pos, len);
    if clear == 0 {
        return Ok(0);
    }
    ops.counters().begins.bump();
    let map = ops.begin(IomapOp::Read, pos, len)?;
    let zeros = match map.kind {
        IomapKind::Hole | IomapKind::Unwritten(_) => map.clamp(pos, clear),
        IomapKind::Delalloc | IomapKind::Mapped(_) => 0,
    };
    let outcome = Outcome::done(zeros);
    ops.end(IomapOp::Read, &map, pos, map.clamp(pos, len), outcome)?;
    Ok(whole_pages(pos, index(zeros), want))
}

/// The number of the `len` bytes at `pos` that come before the first folio and the end of the file.
/// Asked for before the mapping, under the invalidate lock: data that was written before this and
/// has no folio any more is on the device, and in the map. A truncation sets the size and drops the
/// folios under that lock.
fn uncached<O: IomapOps + ?Sized>(
    ops: &O,
    _blocks_stay: &InvalidateShared<'_>,
    pos: Pos,
    len: u64,
) -> u64 {
    let len = len.min(ops.size().saturating_sub(pos.get()));
    match ops.address_space().next(pos) {
        // None of them if the folio begins before `pos`.
        Some(folio) => len.min(folio.start().distance_from(pos).unwrap_or(0)),
        None => len,
    }
}

/// Reads the next window if the reader has come close to the end of the last one.
fn read_ahead<O: IomapOps + ?Sized>(ops: &O, readahead: &Readahead, end: Pos) {
    let page = end.get().div_ceil(1 << PAGE_SHIFT);
    if !readahead.wants_more(page) {
        readahead.hit(page);
        return;
    }
    let pages = ops.address_space();
    let marked = readahead
        .marker()
        .and_then(|page| pages.get(PageIdx::new(page)));
    let order = marked.map_or(0, |folio| folio.order());
    let Some(window) = readahead.advance(page, order, pages.max_order()) else {
        return;
    };
    // The caller has not asked for these bytes: a read that does meets the error.
    let _ = fill(ops, window, None);
}
