//! Zeroing parts of files in the cache.
//!
//! Only what has data is zeroed: holes stay holes, and unwritten space is touched only where the
//! cache holds newer data for it. Over a hole the cache may hold data that got no space and was
//! lost: that becomes zeros as well, which are as clean as the hole. Zeroing never allocates.
//!
//! # Concurrency
//! Writeback converts unwritten blocks, and their folios may be dropped then, at any moment. So of
//! unwritten space the cache is looked at after the map, and the mapping is checked after that
//! look: if it is still true, what was not cached was not written. A stale one is asked for again.
//! The model `zeroing_beside_writeback_and_drops` tries it.

use std::ops::Range;

use extant_pagecache::FolioGuard;
use extant_units::{Pos, index};

use crate::fill::read_block;
use crate::iter::{Stopped, apply};
use crate::map::{Iomap, IomapKind};
use crate::ops::{IomapOp, IomapOps, Outcome};
use crate::write::prepare;

/// Zeroes `len` bytes at `pos`; returns whether any byte changed (and is dirty now). The caller
/// excludes writers from the range, and has no handle open.
///
/// # Errors
/// The first error of the file system or the device, with the bytes processed before it.
pub fn zero_range<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    len: u64,
) -> Result<bool, Stopped<O::Error>> {
    let mut changed = false;
    apply(ops, IomapOp::Zero, pos, len, |map, at, part| {
        let (outcome, dirtied) = match map.kind {
            IomapKind::Hole | IomapKind::Unwritten(_) => zero_cached(ops, map, at, part),
            IomapKind::Mapped(_) | IomapKind::Delalloc => zero_mapped(ops, map, at, part)?,
        };
        changed |= dirtied;
        Ok(outcome)
    })?;
    Ok(changed)
}

/// Zeroes what the cache holds over a hole or unwritten space. What is not cached is zero already,
/// unless the mapping has become stale.
fn zero_cached<O: IomapOps + ?Sized>(ops: &O, map: &Iomap, pos: Pos, len: u64) -> (Outcome, bool) {
    let pages = ops.address_space();
    let end = pos.plus(len);
    let has_space = map.has_space();
    let mut at = pos;
    let mut changed = false;
    while at < end
        && let Some(folio) = pages.next(at)
        && folio.start() < end
    {
        let Some(mut guard) = pages.lock_stable(&folio) else {
            continue;
        };
        // Also of what is not cached before this folio.
        if !ops.is_valid(guard.locked(), map) {
            return (Outcome::stale(at.since(pos)), changed);
        }
        let range = folio.offset_of(at)..folio.offset_of(end);
        changed |= zero_uptodate(&mut guard, range, has_space);
        at = folio.end();
    }
    if at < end && !ops.is_current(map) {
        return (Outcome::stale(at.since(pos)), changed);
    }
    (Outcome::done(len), changed)
}

/// Zeroes the part of `range` that is uptodate; blocks that were not zero become dirty if the range
/// has space. Returns whether any is dirty for that.
fn zero_uptodate(guard: &mut FolioGuard<'_>, range: Range<usize>, has_space: bool) -> bool {
    let mut changed = false;
    let mut at = range.start;
    while let Some(from) = guard.next_uptodate(at, true)
        && from < range.end
    {
        let missing = guard.next_uptodate(from, false).unwrap_or(range.end);
        let to = missing.min(range.end);
        debug_assert!(from < to && guard.is_uptodate(from..to), "J3: {from}..{to}");
        if guard.bytes()[from..to].iter().any(|&byte| byte != 0) {
            guard.bytes_mut()[from..to].fill(0);
            if has_space {
                guard.mark_dirty(from..to);
                changed = true;
            }
        }
        at = to;
    }
    changed
}

/// Zeroes a range that has data, making folios where there are none.
fn zero_mapped<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    pos: Pos,
    len: u64,
) -> Result<(Outcome, bool), Stopped<O::Error>> {
    let pages = ops.address_space();
    let mut outcome = Outcome::default();
    let mut changed = false;
    while outcome.done < len {
        let at = pos.plus(outcome.done);
        pages.throttle();
        let folio = pages.get_or_create(at, len - outcome.done);
        let Some(mut guard) = pages.lock_stable(&folio) else {
            continue;
        };
        if !ops.is_valid(guard.locked(), map) {
            outcome.stale = true;
            break;
        }
        let from = folio.offset_of(at);
        let to = folio.len().min(from + index(len - outcome.done));
        if !already_zero(ops, map, &mut guard, from..to).map_err(Stopped::after(outcome.done))? {
            prepare(ops, map, &mut guard, from, to).map_err(Stopped::after(outcome.done))?;
            guard.bytes_mut()[from..to].fill(0);
            guard.mark_uptodate(from..to);
            guard.mark_dirty(from..to);
            changed = true;
        }
        outcome.done += (to - from) as u64;
    }
    Ok((outcome, changed))
}

/// Returns whether a part of one block that is not cached is zero on the device already: the usual
/// case for the rest of the block at the end of a file. If so, the block is uptodate afterwards.
fn already_zero<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    guard: &mut FolioGuard<'_>,
    range: Range<usize>,
) -> Result<bool, O::Error> {
    let size = ops.address_space().block_size().bytes();
    let block = range.start & !(size - 1);
    if range.end > block + size || guard.is_uptodate(range.clone()) {
        return Ok(false);
    }
    read_block(ops, map, guard, block)?;
    let zero = guard.bytes()[range].iter().all(|&byte| byte == 0);
    if zero {
        guard.mark_uptodate(block..block + size);
    }
    Ok(zero)
}
