//! Buffered writes.
//!
//! [`try_overwrite`] and [`try_extend`] are the fast paths: where a folio or a few are cached, the
//! blocks of the range have space, and those at its edges are uptodate or changed as wholes, they
//! write under no other lock than those of the folios, and do not ask the block map. [`write()`]
//! maps the range, and locks each folio *before* it checks the mapping's cookie. Only the blocks at
//! the edges of a range can need their old content.
//!
//! # Invariants
//! * No bytes are copied through a stale mapping (J17).
//! * Bytes that a short copy left in uptodate blocks are part of the file: the cache shows nothing
//!   that is neither written nor dirty.

use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, RecentFolios, SEQUENTIAL_FOLIO_BYTES};
use extant_units::{PAGE_SIZE, Pos, index};

use crate::buffers::{Payload, Source};
use crate::fill::fill_block;
use crate::iter::{Stopped, apply};
use crate::map::Iomap;
use crate::ops::{IomapOp, IomapOps, Outcome};

/// The fast path of an overwrite: writes `bytes` at `pos`, below the end of the file, if one folio
/// or a few have all of the range, with space and with the content around it. Returns whether it
/// did; otherwise nothing has changed.
///
/// The caller needs no lock against other writers: the locks of all these folios, held at once,
/// make the write one step. `is_unlocked` is called with them held, and returns whether no thread
/// holds a lock that excludes writers from the range: such a thread may look at one folio after the
/// other.
#[inline]
pub fn try_overwrite<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    is_unlocked: impl Fn() -> bool,
) -> bool {
    // A position that no file can have fails the comparison with the size.
    let end = pos.saturating_add(bytes.len() as u64);
    // The size after the question: a truncation that has ended before it is seen.
    let allowed = || is_unlocked() && end.get() <= ops.size();
    match write_one_folio(ops, recent, pos, bytes, allowed) {
        FastWrite::Done => true,
        FastWrite::Spans => write_several_folios(ops, recent, pos, bytes, allowed),
        FastWrite::Not => false,
    }
}

/// The fast path of an append: as [`try_overwrite`], to one folio, for a write that makes the file
/// longer within blocks that have space. The caller excludes other writers of these blocks and
/// changes of the size; `pos` is not past the end of the file.
#[inline]
pub fn try_extend<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
) -> bool {
    debug_assert!(pos.get() <= ops.size(), "no gap before the write");
    let done = write_one_folio(ops, recent, pos, bytes, || true);
    matches!(done, FastWrite::Done)
}

/// The outcome of the fast path on one folio.
enum FastWrite {
    Done,
    /// One folio has only the first of the bytes.
    Spans,
    Not,
}

/// Writes to one folio, if nothing but that is to be done.
#[inline]
fn write_one_folio<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    allowed: impl FnOnce() -> bool,
) -> FastWrite {
    let pages = ops.address_space();
    // A position that no file can have is in no folio.
    let end = pos.saturating_add(bytes.len() as u64);
    let written = recent.with_folio(pages, pos.page(), |folio| {
        if end > folio.end() {
            return Err(FastWrite::Spans);
        }
        let mut guard = pages.lock_stable(folio).ok_or(FastWrite::Not)?;
        let from = folio.offset_of(pos);
        let range = from..from + bytes.len();
        let how = guard.can_overwrite(range.clone()).ok_or(FastWrite::Not)?;
        if !allowed() {
            return Err(FastWrite::Not);
        }
        let copied = bytes
            .source()
            .copy_at(0, &mut guard.bytes_mut()[range.clone()]);
        debug_assert_eq!(copied, bytes.len());
        folio.mark_referenced();
        let dirtied = guard.overwritten(range, how);
        if end.get() > ops.size() {
            ops.raise_size(guard.locked(), end.get());
        }
        Ok(dirtied)
    });
    match written {
        Some(Ok(dirtied)) => {
            ops.counters().overwrites.bump();
            if dirtied {
                pages.throttle();
            }
            FastWrite::Done
        }
        Some(Err(not_done)) => not_done,
        None => FastWrite::Not,
    }
}

/// Overwrites several folios at once. Their locks are only tried: a thread that holds one may wait
/// for another of them.
fn write_several_folios<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    allowed: impl FnOnce() -> bool,
) -> bool {
    let pages = ops.address_space();
    // A position that no file can have is in no folio.
    let end = pos.saturating_add(bytes.len() as u64);
    let written = recent.with_folios(pages, pos, end, |folios| {
        let mut guards = [const { None }; RecentFolios::MAX_FOLIOS];
        for (&folio, slot) in folios.iter().zip(&mut guards) {
            let guard = pages.try_lock_stable(folio)?;
            let range = folio.offset_of(pos)..folio.offset_of(end);
            let how = guard.can_overwrite(range.clone())?;
            *slot = Some((guard, range, how));
        }
        if !allowed() {
            return None;
        }
        let mut source = bytes.source();
        let (mut done, mut dirtied) = (0, false);
        for (guard, range, how) in guards.iter_mut().flatten() {
            done += source.copy_at(done, &mut guard.bytes_mut()[range.clone()]);
            guard.folio().mark_referenced();
            dirtied |= guard.overwritten(range.clone(), *how);
        }
        debug_assert_eq!(done, bytes.len());
        ops.counters().overwrites.add(folios.len() as u64);
        Some(dirtied)
    });
    let Some(dirtied) = written.flatten() else {
        return false;
    };
    if dirtied {
        pages.throttle();
    }
    true
}

/// Writes `len` bytes of `source` at `pos`; returns the bytes written, fewer if the source ends
/// early. The caller excludes other writers of the range and truncation, and has zeroed the range
/// from the old end of the file to `pos`.
///
/// # Errors
/// The first error of the file system or the device, with the bytes written before it.
pub fn write<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize, Stopped<O::Error>> {
    let mut writer = Writer {
        ops,
        pos,
        is_small: ops.folios_may_grow() && (len as u64) < SEQUENTIAL_FOLIO_BYTES,
        source,
    };
    let mapped = apply(ops, IomapOp::Write, pos, len as u64, |map, at, part| {
        writer.write_mapped(map, at, index(part))
    });
    mapped.map(index)
}

struct Writer<'a, O: ?Sized, S> {
    ops: &'a O,
    /// The position of the source's first byte.
    pos: Pos,
    /// The write may be one of many that fill a folio.
    is_small: bool,
    source: &'a mut S,
}

impl<O: IomapOps + ?Sized, S: Source> Writer<'_, O, S> {
    /// Writes `len` bytes at `at` under `map`, folio by folio.
    fn write_mapped(
        &mut self,
        map: &Iomap,
        at: Pos,
        len: usize,
    ) -> Result<Outcome, Stopped<O::Error>> {
        let pages = self.ops.address_space();
        let mut outcome = Outcome::default();
        // The most bytes that are copied at once; less after a short copy.
        let mut chunk = usize::MAX;
        while index(outcome.done) < len {
            let pos = at.plus(outcome.done);
            let want = len - index(outcome.done);
            pages.throttle();
            let folio: Arc<Folio> = if self.is_small {
                pages.get_or_create_in_order(pos, want as u64)
            } else {
                pages.get_or_create(pos, want as u64)
            };
            let Some(mut guard) = pages.lock_stable(&folio) else {
                continue;
            };
            if !self.ops.is_valid(guard.locked(), map) {
                outcome.stale = true;
                break;
            }
            let from = folio.offset_of(pos);
            let to = folio.len().min(from + want.min(chunk));
            prepare(self.ops, map, &mut guard, from, to).map_err(Stopped::after(outcome.done))?;
            let offset = index(pos.since(self.pos));
            let mut copied = self
                .source
                .copy_at(offset, &mut guard.bytes_mut()[from..to]);
            if copied < to - from {
                copied = usable_after_short_copy(&guard, pages.block_size().bytes(), from, copied);
            }
            if copied == 0 {
                if to - from <= PAGE_SIZE {
                    break;
                }
                chunk = ((to - from) / 2).max(PAGE_SIZE);
                continue;
            }
            debug_assert!(map.has_space(), "a mapping for writes has space: {map:?}");
            if map.has_space() {
                guard.set_backed(folio.offset_of(map.offset)..folio.offset_of(map.end()));
            }
            guard.mark_uptodate(from..from + copied);
            self.publish(&mut guard, from, from + copied);
            outcome.done += copied as u64;
        }
        Ok(outcome)
    }

    /// Makes the bytes `[from, to)` of a folio part of the file.
    #[inline]
    fn publish(&self, guard: &mut FolioGuard<'_>, from: usize, to: usize) {
        guard.mark_dirty(from..to);
        guard.folio().mark_referenced();
        let end = guard.folio().pos_of(to).get();
        if end > self.ops.size() {
            self.ops.raise_size(guard.locked(), end);
        }
    }
}

/// The number of `copied` bytes at `from` that become part of the file after a source ended early.
/// A block that was to be covered wholly, and is partly new and partly undefined, does not. The
/// blocks before it do: some may have been uptodate, and hold the new bytes already.
pub fn usable_after_short_copy(
    guard: &FolioGuard<'_>,
    block: usize,
    from: usize,
    copied: usize,
) -> usize {
    let stop = from + copied;
    let last = stop & !(block - 1);
    debug_assert!(
        block.is_power_of_two() && stop - last < block,
        "{last} starts a block"
    );
    if stop == last || guard.is_uptodate(last..stop) {
        return copied;
    }
    // Nothing if the copy ended in its first block.
    last.saturating_sub(from)
}

/// Makes the blocks at the edges of `[from, to)` uptodate where the range covers them only partly.
pub(crate) fn prepare<O: IomapOps + ?Sized>(
    ops: &O,
    map: &Iomap,
    guard: &mut FolioGuard<'_>,
    from: usize,
    to: usize,
) -> Result<(), O::Error> {
    if guard.is_uptodate(from..to) {
        return Ok(());
    }
    let mask = ops.address_space().block_size().bytes() - 1;
    for edge in [from, to] {
        // An edge at a block's boundary cuts no block.
        let block = edge & !mask;
        if edge != block && !guard.is_uptodate(block..block + 1) {
            fill_block(ops, map, guard, block)?;
        }
    }
    Ok(())
}
