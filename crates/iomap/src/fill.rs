//! Filling folios from the device.
//!
//! [`fill`] makes a window of folios uptodate with as few device reads as there are separate runs on the device, each
//! scattered straight into the folios. [`fill_block`] does the same for one block, for a write that
//! covers it only partly.
//!
//! # Locks
//! `fill` holds what it reads where that is needed ([`crate::FillGuard`]), takes the invalidate lock shared (so that no block of the window can
//! be taken away), makes the folios, locks them in ascending order, and maps and reads with all of them locked.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, Window};
use extant_units::{DevOff, PAGE_SHIFT, PageIdx, Pos};

use crate::hold::enter;
use crate::index;
use crate::map::{Iomap, IomapFlags, IomapKind};
use crate::ops::{DeviceFault, IomapOp, IomapOps, Outcome};

/// A part of one folio that one device read fills.
struct Piece {
    folio: usize,
    bytes: Range<usize>,
    from: DevOff,
}

/// Makes the window's blocks below the file's end uptodate. If its first page is `needed`, that page's folio is
/// waited for; the rest of the window is given up where memory is short. An error is returned only if it concerns
/// the needed byte.
pub(crate) fn fill<O: IomapOps + ?Sized>(
    ops: &O,
    window: Window,
    needed: Option<Pos>,
) -> Result<(), O::Error> {
    let pages = ops.address_space();
    let Some(entered) = enter(ops, bytes_of(window, needed, ops.size()), needed) else {
        return Ok(());
    };
    let window = clip(window, &entered.range);
    let size = ops.size();
    let folios = make_folios(ops, window, needed.is_some(), size);
    let mut guards: Vec<FolioGuard<'_>> = folios
        .iter()
        .filter_map(|folio| pages.lock(folio))
        .collect();
    let limit = pages.block_size().round_up(Pos::new(size));
    let limit = limit.unwrap_or(Pos::MAX).min(entered.range.end);
    // The end may have moved until the folios were locked, and what was written there may be on the device by now. From here on whoever
    // moves it over these blocks waits for their folio.
    let end = ops.size();
    let (pieces, mut failed) = plan(ops, &mut guards, entered.range.start..limit);
    let read = read_pieces(ops, &mut guards, pieces, &mut failed);
    for piece in read {
        let guard = &mut guards[piece.folio];
        zero_past(guard, piece.bytes.clone(), end);
        guard.mark_uptodate(piece.bytes);
    }
    let (Some(error), Some(needed)) = (failed, needed) else {
        return Ok(());
    };
    let served = guards.iter().any(|guard| {
        let at = guard.folio().offset_of(needed);
        guard.folio().start() <= needed
            && needed < guard.folio().end()
            && guard.is_uptodate(at..at + 1)
    });
    if served { Ok(()) } else { Err(error) }
}

/// The bytes of a window, up to the end of a file of `size` bytes and at least to the needed one.
fn bytes_of(window: Window, needed: Option<Pos>, size: u64) -> Range<Pos> {
    let page = |index: u64| PageIdx::new(index).pos().unwrap_or(Pos::MAX);
    let least = needed.unwrap_or(page(window.start)).saturating_add(1);
    page(window.start)..page(window.end()).min(Pos::new(size)).max(least)
}

/// The part of a window that `range` touches; if that is a part of it at all.
fn clip(window: Window, range: &Range<Pos>) -> Window {
    let first = range.start.get() >> PAGE_SHIFT;
    let start = window.start.max(first).min(window.end());
    let end = range.end.get().div_ceil(1 << PAGE_SHIFT).min(window.end());
    Window {
        start,
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
            // Somebody else was faster, or the smallest folio begins before this page.
            made.or_else(|| pages.get(page))
        });
        match folio {
            Some(folio) => {
                at = folio.index().get() + (1 << folio.order());
                folios.push(folio);
            }
            // It came and went: look again.
            None if needed && folios.is_empty() => {}
            None => break,
        }
    }
    folios
}

/// Splits what is missing within `range` into device reads; what reads as zero is filled at once. Stops at the first
/// mapping error.
fn plan<O: IomapOps + ?Sized>(
    ops: &O,
    guards: &mut [FolioGuard<'_>],
    range: Range<Pos>,
) -> (Vec<Piece>, Option<O::Error>) {
    let mut pieces = Vec::new();
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
                    Err(error) => return (pieces, Some(error)),
                },
            };
            let to = from + index(here.clamp(pos, (stop - from) as u64));
            if to == from {
                return (pieces, None);
            }
            if has_space(&here) && here.offset <= folio.start() && here.end() >= folio.end() {
                guard.set_backed();
            }
            add_pieces(guard, number, &here, from..to, &mut pieces);
            at = to;
            map = Some(here);
        }
    }
    (pieces, None)
}

fn look_up<O: IomapOps + ?Sized>(ops: &O, pos: Pos, limit: Pos) -> Result<Iomap, O::Error> {
    let len = limit.distance_from(pos).unwrap_or(0);
    ops.counters().begins.bump();
    let map = ops.begin(IomapOp::Read, pos, len)?;
    let outcome = Outcome {
        done: map.clamp(pos, len),
        ..Outcome::default()
    };
    ops.end(IomapOp::Read, &map, pos, outcome.done, outcome)?;
    Ok(map)
}

/// Whether a write to `map`'s range needs no more space.
pub(crate) fn has_space(map: &Iomap) -> bool {
    let kind = matches!(
        map.kind,
        IomapKind::Mapped(_) | IomapKind::Unwritten(_) | IomapKind::Delalloc
    );
    kind && !map.flags.contains(IomapFlags::SHARED)
}

/// Fills the missing blocks of `bytes` that read as zero or are inline, and adds reads for the others.
fn add_pieces(
    guard: &mut FolioGuard<'_>,
    folio: usize,
    map: &Iomap,
    bytes: Range<usize>,
    pieces: &mut Vec<Piece>,
) {
    let mut at = bytes.start;
    while let Some(from) = guard.next_uptodate(at, false)
        && from < bytes.end
    {
        let known = guard.next_uptodate(from, true).unwrap_or(bytes.end);
        let to = known.min(bytes.end);
        at = to;
        let pos = guard.folio().pos_of(from);
        if let (IomapKind::Mapped(_), Some(device)) = (&map.kind, map.device_at(pos)) {
            pieces.push(Piece {
                folio,
                bytes: from..to,
                from: device,
            });
            continue;
        }
        fill_without_device(map, pos, &mut guard.bytes_mut()[from..to]);
        guard.mark_uptodate(from..to);
    }
}

/// What `map` holds from `pos` on, for kinds that are not on the device.
fn fill_without_device(map: &Iomap, pos: Pos, out: &mut [u8]) {
    out.fill(0);
    if let IomapKind::Inline(inline) = &map.kind {
        let skip = index(pos.distance_from(map.offset).unwrap_or(0));
        let rest = inline.get(skip..).unwrap_or(&[]);
        let len = rest.len().min(out.len());
        out[..len].copy_from_slice(&rest[..len]);
    }
}

/// Reads all pieces, one vectored read for each run on the device; returns those that were read.
fn read_pieces<O: IomapOps + ?Sized>(
    ops: &O,
    guards: &mut [FolioGuard<'_>],
    pieces: Vec<Piece>,
    failed: &mut Option<O::Error>,
) -> Vec<Piece> {
    let mut done = Vec::with_capacity(pieces.len());
    let mut run: Vec<Piece> = Vec::new();
    let mut slices: Vec<IoSliceMut<'_>> = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    for (number, guard) in guards.iter_mut().enumerate() {
        let mut rest = guard.bytes_mut();
        let mut cut = 0;
        while let Some(piece) = pieces.next_if(|piece| piece.folio == number) {
            let joins = run.last().is_none_or(|last| {
                last.from.checked_add(last.bytes.len() as u64) == Some(piece.from)
            });
            if !joins {
                submit(ops, &mut run, &mut slices, &mut done, failed);
            }
            let (_, tail) = rest.split_at_mut(piece.bytes.start - cut);
            let (mine, tail) = tail.split_at_mut(piece.bytes.len());
            rest = tail;
            cut = piece.bytes.end;
            slices.push(IoSliceMut::new(mine));
            run.push(piece);
        }
    }
    submit(ops, &mut run, &mut slices, &mut done, failed);
    done
}

fn submit<O: IomapOps + ?Sized>(
    ops: &O,
    run: &mut Vec<Piece>,
    slices: &mut Vec<IoSliceMut<'_>>,
    done: &mut Vec<Piece>,
    failed: &mut Option<O::Error>,
) {
    let Some(first) = run.first() else { return };
    let at = first.from;
    let len = run.iter().map(|piece| piece.bytes.len() as u64).sum();
    ops.counters().fill_reads.bump();
    ops.counters().fill_bytes.add(len);
    match ops.device().read_vectored_at(at, slices) {
        Ok(()) => done.append(run),
        Err(source) => {
            run.clear();
            failed.get_or_insert_with(|| read_fault(at, len, source));
        }
    }
    slices.clear();
}

/// The device could not read `len` bytes.
pub(crate) fn read_fault<E: From<DeviceFault>>(at: DevOff, len: u64, source: std::io::Error) -> E {
    E::from(DeviceFault {
        what: "read",
        at,
        len,
        source,
    })
}

/// Zeroes the part of `bytes` that lies past the end of a file of `size` bytes: what the device holds
/// there is nobody's.
fn zero_past(guard: &mut FolioGuard<'_>, bytes: Range<usize>, size: u64) {
    let end = guard.folio().offset_of(Pos::new(size));
    if end < bytes.end {
        guard.bytes_mut()[end.max(bytes.start)..bytes.end].fill(0);
    }
}

/// The block at `offset` of a locked folio, as it is on the device, into the folio. `map` covers it. The caller marks
/// it uptodate.
pub(crate) fn read_block<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    guard: &mut FolioGuard<'_>,
    offset: usize,
) -> Result<(), O::Error> {
    let pos = guard.folio().pos_of(offset);
    let len = ops.address_space().block_size().bytes();
    let out = &mut guard.bytes_mut()[offset..offset + len];
    let new = map.flags.contains(IomapFlags::NEW);
    if let (IomapKind::Mapped(_), Some(at), false) = (&map.kind, map.device_at(pos), new) {
        ops.counters().edge_reads.bump();
        return ops
            .device()
            .read_at(at, out)
            .map_err(|source| read_fault(at, len as u64, source));
    }
    fill_without_device(map, pos, out);
    Ok(())
}

/// Makes the block at `offset` of a locked folio uptodate, for a write that covers it only partly. `map` covers it.
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
