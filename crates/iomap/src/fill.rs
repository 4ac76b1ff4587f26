//! Filling folios from the device.
//!
//! [`fill`] makes a window of folios uptodate. It issues one device read for each contiguous run on
//! the device, scattered straight into the folios. [`fill_block`] makes one block uptodate, for a
//! write that covers it only partly.
//!
//! # Invariants
//! * A block becomes uptodate only after all of its bytes are in the folio. Bytes past the end of
//!   the file are zeroed before that (J31).
//!
//! # Locks
//! `fill` locks its range against direct writes where the file has any ([`crate::FillGuard`]),
//! takes the invalidate lock shared, so that no block of the window moves, makes the
//! folios, locks them in ascending order, and maps and reads with all of them locked.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, Window};
use extant_units::{DevOff, PAGE_SHIFT, PageIdx, Pos, index};

use crate::fill_lock::lock_for_fill;
use crate::map::{Iomap, IomapKind};
use crate::ops::{DeviceFault, DeviceRequest, IomapOp, IomapOps, Outcome};

/// A part of one folio that one device read fills.
struct FillPart {
    /// Index of the folio's guard.
    folio: usize,
    bytes: Range<usize>,
    pos: Pos,
    from: DevOff,
}

/// Makes the window's blocks below the file's end uptodate. The folio of the bytes `needed`, which
/// are in the first page, is waited for; the rest of the window is given up where memory is short.
/// Returns an error only if it concerns the needed bytes.
pub(crate) fn fill<O: IomapOps + ?Sized>(
    ops: &O,
    window: Window,
    needed: Option<Range<Pos>>,
) -> Result<(), O::Error> {
    let pages = ops.address_space();
    let first = needed.as_ref().map(|needed| needed.start);
    let Some(lock) = lock_for_fill(ops, bytes_of(window, first, ops.size()), first) else {
        return Ok(());
    };
    let window = clip(window, &lock.range);
    let size = ops.size();
    let folios = make_folios(ops, window, needed.is_some(), size);
    let mut guards: Vec<FolioGuard<'_>> = folios
        .iter()
        .filter_map(|folio| pages.lock(folio))
        .collect();
    // A file that ends in the last block there can be has no position to round up to.
    let limit = pages.block_size().round_up(Pos::new(size));
    let limit = limit.unwrap_or(Pos::MAX).min(lock.range.end);
    // The end of the file may have moved before the folios were locked, and data that was written
    // there may be on the device by now. From here on a thread that moves the end over these blocks
    // waits for their folio.
    let end = ops.size();
    let (parts, mut failed) = plan(ops, &mut guards, lock.range.start..limit);
    let read = read_parts(ops, &mut guards, parts, &mut failed);
    for part in read {
        let guard = &mut guards[part.folio];
        zero_past(guard, part.bytes.clone(), end);
        if let Err(error) = finish(ops, guard, part.bytes) {
            failed.get_or_insert(error);
        }
    }
    let (Some(error), Some(needed)) = (failed, needed) else {
        return Ok(());
    };
    // A reader that lacks any of them would come back for them. What was cut off it does not need.
    let end = needed.end.min(limit).max(needed.start);
    let served = guards.iter().any(|guard| {
        let folio = guard.folio();
        folio.start() <= needed.start
            && needed.start < folio.end()
            && guard.is_uptodate(folio.offset_of(needed.start)..folio.offset_of(end))
    });
    if served { Ok(()) } else { Err(error) }
}

/// The bytes of a window, up to the end of a file of `size` bytes and at least to the needed byte.
fn bytes_of(window: Window, needed: Option<Pos>, size: u64) -> Range<Pos> {
    // A window may reach past the last page there can be: positions stop at the largest. Without
    // a needed byte, the window's first one is the least.
    let page = |index: u64| PageIdx::new(index).pos().unwrap_or(Pos::MAX);
    let least = needed.unwrap_or(page(window.start)).saturating_add(1);
    page(window.start)..page(window.end()).min(Pos::new(size)).max(least)
}

/// The part of a window that `range` touches; no pages if it touches none.
fn clip(window: Window, range: &Range<Pos>) -> Window {
    let first = range.start.get() >> PAGE_SHIFT;
    let start = window.start.max(first).min(window.end());
    let end = range.end.get().div_ceil(1 << PAGE_SHIFT).min(window.end());
    Window {
        start,
        // No pages if the range ends before the window starts.
        pages: end.saturating_sub(start),
        order: window.order,
    }
}

/// The folios of the window, ascending; missing ones are made.
fn make_folios<O: IomapOps + ?Sized>(
    ops: &O,
    window: Window,
    needed: bool,
    size: u64,
) -> Vec<Arc<Folio>> {
    let pages = ops.address_space();
    let end = window.end().min(size.div_ceil(1 << PAGE_SHIFT));
    let mut folios: Vec<Arc<Folio>> = Vec::new();
    let mut at = window.start;
    while at < end {
        let page = PageIdx::new(at);
        let order = window.order.min((end - at).ilog2());
        let folio = pages.get(page).or_else(|| {
            let made = pages.create(page, order, needed && folios.is_empty());
            // Another thread made one, or the smallest folio begins before this page.
            made.or_else(|| pages.get(page))
        });
        match folio {
            Some(folio) => {
                at = folio.index().get() + (1 << folio.order());
                folios.push(folio);
            }
            // Made and removed meanwhile: look again.
            None if needed && folios.is_empty() => {}
            None => break,
        }
    }
    folios
}

/// Splits the blocks of `range` that are missing into device reads; blocks that read as zero are
/// filled at once. Stops at the first mapping error.
fn plan<O: IomapOps + ?Sized>(
    ops: &O,
    guards: &mut [FolioGuard<'_>],
    range: Range<Pos>,
) -> (Vec<FillPart>, Option<O::Error>) {
    let mut parts = Vec::new();
    let mut map: Option<Iomap> = None;
    for (number, guard) in guards.iter_mut().enumerate() {
        let folio = guard.folio();
        let stop = folio.offset_of(range.end);
        let mut at = folio.offset_of(range.start);
        while let Some(from) = guard.next_uptodate(at, false)
            && from < stop
        {
            let pos = folio.pos_of(from);
            let here = match map.take() {
                Some(map) if map.clamp(pos, 1) > 0 => map,
                _ => match look_up(ops, pos, range.end) {
                    Ok(map) => map,
                    Err(error) => return (parts, Some(error)),
                },
            };
            let to = from + index(here.clamp(pos, (stop - from) as u64));
            debug_assert!(to > from, "a mapping covers the first byte asked for");
            if to == from {
                return (parts, None);
            }
            if here.has_space() {
                guard.set_backed(folio.offset_of(here.offset)..folio.offset_of(here.end()));
            }
            let mut add = |bytes: Range<usize>, from| {
                parts.push(FillPart {
                    folio: number,
                    pos: folio.pos_of(bytes.start),
                    bytes,
                    from,
                });
            };
            if let Err(error) = fill_zeros(ops, guard, &here, from..to, &mut add) {
                return (parts, Some(error));
            }
            at = to;
            map = Some(here);
        }
    }
    (parts, None)
}

/// The mapping at `pos`, for a look at what is there up to `limit`.
pub(crate) fn look_up<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    limit: Pos,
) -> Result<Iomap, O::Error> {
    let len = limit.since(pos);
    ops.counters().begins.bump();
    let map = ops.begin(IomapOp::Read, pos, len)?;
    let outcome = Outcome::done(map.clamp(pos, len));
    ops.end(IomapOp::Read, &map, pos, outcome.done, outcome)?;
    Ok(map)
}

/// Fills the missing blocks of `bytes` that read as zero, and calls `add` with the others and where
/// the device has them.
fn fill_zeros<O: IomapOps + ?Sized>(
    ops: &O,
    guard: &mut FolioGuard<'_>,
    map: &Iomap,
    bytes: Range<usize>,
    add: &mut impl FnMut(Range<usize>, DevOff),
) -> Result<(), O::Error> {
    let mut at = bytes.start;
    while let Some(from) = guard.next_uptodate(at, false)
        && from < bytes.end
    {
        let known = guard.next_uptodate(from, true).unwrap_or(bytes.end);
        let to = known.min(bytes.end);
        debug_assert!(from < to, "a part to fill is not empty");
        at = to;
        let pos = guard.folio().pos_of(from);
        if let (IomapKind::Mapped(_), Some(device)) = (&map.kind, map.device_at(pos)) {
            add(from..to, device);
            continue;
        }
        guard.bytes_mut()[from..to].fill(0);
        finish(ops, guard, from..to)?;
    }
    Ok(())
}

/// Marks whole blocks of a folio uptodate, which are there, but those that the file system refuses.
///
/// # Errors
/// Of the first of these.
fn finish<O: IomapOps + ?Sized>(
    ops: &O,
    guard: &mut FolioGuard<'_>,
    bytes: Range<usize>,
) -> Result<(), O::Error> {
    if !ops.checks_fills() {
        guard.mark_uptodate(bytes);
        return Ok(());
    }
    let len = ops.address_space().block_size().bytes();
    let mut refused = Ok(());
    for from in bytes.step_by(len) {
        let block = from..from + len;
        let pos = guard.folio().pos_of(from);
        match ops.check_filled(pos, &guard.bytes()[block.clone()]) {
            Ok(()) => guard.mark_uptodate(block),
            error => refused = refused.and(error),
        }
    }
    refused
}

/// Reads all parts, one vectored read for each run on the device; returns the parts that were read.
fn read_parts<O: IomapOps + ?Sized>(
    ops: &O,
    guards: &mut [FolioGuard<'_>],
    parts: Vec<FillPart>,
    failed: &mut Option<O::Error>,
) -> Vec<FillPart> {
    let mut done = Vec::with_capacity(parts.len());
    let mut run: Vec<FillPart> = Vec::new();
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    let mut parts = parts.into_iter().peekable();
    for (number, guard) in guards.iter_mut().enumerate() {
        let mut rest = guard.bytes_mut();
        let mut cut = 0;
        while let Some(part) = parts.next_if(|part| part.folio == number) {
            let joins = run.last().is_none_or(|last| {
                last.from.checked_add(last.bytes.len() as u64) == Some(part.from)
            });
            if !joins {
                submit(ops, &mut run, &mut slices, &mut done, failed);
            }
            let (_, tail) = rest.split_at_mut(part.bytes.start - cut);
            let (mine, tail) = tail.split_at_mut(part.bytes.len());
            rest = tail;
            cut = part.bytes.end;
            slices.push(IoSliceMut::new(mine));
            run.push(part);
        }
    }
    submit(ops, &mut run, &mut slices, &mut done, failed);
    done
}

/// Reads the parts of `run`, which `slices` has the memory of, and moves them to `done`.
fn submit<O: IomapOps + ?Sized>(
    ops: &O,
    run: &mut Vec<FillPart>,
    slices: &mut Vec<IoSliceMut<'_>>,
    done: &mut Vec<FillPart>,
    failed: &mut Option<O::Error>,
) {
    let Some(first) = run.first() else { return };
    let at = first.from;
    let len = run.iter().map(|part| part.bytes.len() as u64).sum();
    ops.counters().fill_reads.bump();
    ops.counters().fill_bytes.add(len);
    let read = ops.device().read_vectored_at(at, slices);
    let read = read.map_err(|source| read_fault(at, len, source));
    match read.and_then(|()| decode_all(ops, run, slices)) {
        Ok(()) => done.append(run),
        Err(error) => {
            run.clear();
            failed.get_or_insert(error);
        }
    }
    slices.clear();
}

/// Turns what was read of the parts of `run`, each in its slice, into the file's bytes.
fn decode_all<O: IomapOps + ?Sized>(
    ops: &O,
    run: &[FillPart],
    slices: &mut [IoSliceMut<'_>],
) -> Result<(), O::Error> {
    if !ops.is_encoded() {
        return Ok(());
    }
    let mut parts = run.iter().zip(slices);
    parts.try_for_each(|(part, bytes)| ops.decode(part.pos, bytes))
}

/// The device could not read `len` bytes.
pub(crate) fn read_fault<E: From<DeviceFault>>(at: DevOff, len: u64, source: std::io::Error) -> E {
    E::from(DeviceFault {
        request: DeviceRequest::Read,
        at,
        len,
        source,
    })
}

/// Zeroes the part of `bytes` that lies past the end of a file of `size` bytes: the device may hold
/// anything there.
fn zero_past(guard: &mut FolioGuard<'_>, bytes: Range<usize>, size: u64) {
    let end = guard.folio().offset_of(Pos::new(size));
    if end < bytes.end {
        guard.bytes_mut()[end.max(bytes.start)..bytes.end].fill(0);
    }
}

/// Reads the block at `offset` of a locked folio, which `map` covers, from the device into the
/// folio. The caller marks it uptodate.
pub(crate) fn read_block<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    guard: &mut FolioGuard<'_>,
    offset: usize,
) -> Result<(), O::Error> {
    let pos = guard.folio().pos_of(offset);
    let len = ops.address_space().block_size().bytes();
    let out = &mut guard.bytes_mut()[offset..offset + len];
    if let (IomapKind::Mapped(_), Some(at), false) = (&map.kind, map.device_at(pos), map.new) {
        ops.counters().edge_reads.bump();
        let read = ops.device().read_at(at, out);
        read.map_err(|source| read_fault(at, len as u64, source))?;
        return match ops.is_encoded() {
            true => ops.decode(pos, out),
            false => Ok(()),
        };
    }
    out.fill(0);
    Ok(())
}

/// Makes the block at `offset` of a locked folio uptodate, for a write that covers it only partly.
/// `map` covers the block.
pub(crate) fn fill_block<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    guard: &mut FolioGuard<'_>,
    offset: usize,
) -> Result<(), O::Error> {
    let size = ops.size();
    let block = offset..offset + ops.address_space().block_size().bytes();
    if guard.folio().pos_of(offset).get() >= size {
        // Past the end there is nothing to preserve.
        guard.bytes_mut()[block.clone()].fill(0);
    } else {
        read_block(ops, map, guard, offset)?;
        zero_past(guard, block.clone(), size);
    }
    guard.mark_uptodate(block);
    Ok(())
}
