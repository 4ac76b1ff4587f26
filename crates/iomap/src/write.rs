//! Buffered writes.
//!
//! Where a folio is cached and the blocks of the range are uptodate and have space, the map is not asked at all: [`overwrite`] does
//! that for a write to one folio or a few, with no other lock than theirs, and [`write()`] for each folio on its way.
//! Otherwise the range is mapped, and each folio is locked *before* the mapping's cookie is checked. Only
//! the blocks at the edges of a range can need their old content.

use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, RecentFolios};
use extant_units::{PAGE_SIZE, Pos};

use crate::fill::{fill_block, has_space};
use crate::index;
use crate::iter::{Step, Stopped, apply};
use crate::map::Iomap;
use crate::ops::{IomapOp, IomapOps};
use crate::vectored::Payload;

/// Where written bytes come from.
pub trait Source {
    /// Copies bytes from `offset` of the source to `into`; returns how many could be had. Called with
    /// a folio locked: must not touch the same file system.
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize;
}

impl Source for &[u8] {
    #[inline]
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        let rest = self.get(offset..).unwrap_or(&[]);
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        len
    }
}

/// Overwrites `bytes.len()` bytes at `pos`, below the end of the file, if one folio or a few have all of them, uptodate and with space; says
/// whether it did. Otherwise nothing has changed.
///
/// The caller needs no lock against other writers: the locks of all these folios, held at once, make the write one step. `alone` is asked with
/// them held, and says whether nobody holds a lock that keeps writers away: whoever does may look at one folio after the other.
#[inline]
pub fn overwrite<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    alone: impl Fn() -> bool,
) -> bool {
    let end = pos.saturating_add(bytes.len() as u64);
    let allowed = || end.get() <= ops.size() && alone();
    match put(ops, recent, pos, bytes, allowed) {
        Put::Done => true,
        Put::Spans => put_in_several(ops, recent, pos, bytes, allowed),
        Put::Not => false,
    }
}

/// As [`overwrite`] for a write to one folio that makes the file longer, within blocks that are there. The caller keeps others who write to these blocks, or
/// change the size, away; `pos` is not behind the end of the file.
#[inline]
pub fn extend<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
) -> bool {
    matches!(put(ops, recent, pos, bytes, || true), Put::Done)
}

/// What became of a write to one folio.
enum Put {
    Done,
    /// One folio has only the first of the bytes.
    Spans,
    Not,
}

/// Writes to one folio, if that is all that has to be done.
#[inline]
fn put<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    allowed: impl FnOnce() -> bool,
) -> Put {
    let pages = ops.address_space();
    let end = pos.saturating_add(bytes.len() as u64);
    let written = recent.with_folio(pages, pos.page(), |folio| {
        if end > folio.end() {
            return Err(Put::Spans);
        }
        let mut guard = pages.lock_stable(folio).ok_or(Put::Not)?;
        let from = folio.offset_of(pos);
        let range = from..from + bytes.len();
        if !guard.can_overwrite(range.clone()) || !allowed() {
            return Err(Put::Not);
        }
        let copied = bytes
            .source()
            .copy_at(0, &mut guard.bytes_mut()[range.clone()]);
        debug_assert_eq!(copied, bytes.len());
        folio.mark_referenced();
        let dirtied = guard.mark_dirty(range);
        if end.get() > ops.size() {
            ops.raise_size(end.get());
        }
        Ok(dirtied)
    });
    match written {
        Some(Ok(dirtied)) => {
            ops.counters().overwrites.bump();
            if dirtied {
                pages.throttle();
            }
            Put::Done
        }
        Some(Err(put)) => put,
        None => Put::Not,
    }
}

/// Overwrites in several folios at once. Their locks are only tried: whoever has one may be waiting for another.
fn put_in_several<O: IomapOps + ?Sized>(
    ops: &O,
    recent: &RecentFolios,
    pos: Pos,
    bytes: &(impl Payload + ?Sized),
    allowed: impl FnOnce() -> bool,
) -> bool {
    let pages = ops.address_space();
    let end = pos.saturating_add(bytes.len() as u64);
    let written = recent.with_folios(pages, pos, end, |folios| {
        let mut guards = [const { None }; RecentFolios::MAX_FOLIOS];
        for (&folio, place) in folios.iter().zip(&mut guards) {
            let guard = pages.try_lock_stable(folio)?;
            let range = folio.offset_of(pos)..folio.offset_of(end);
            if !guard.can_overwrite(range.clone()) {
                return None;
            }
            *place = Some((guard, range));
        }
        if !allowed() {
            return None;
        }
        let mut source = bytes.source();
        let (mut done, mut dirtied) = (0, false);
        for (guard, range) in guards.iter_mut().flatten() {
            done += source.copy_at(done, &mut guard.bytes_mut()[range.clone()]);
            guard.folio().mark_referenced();
            dirtied |= guard.mark_dirty(range.clone());
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

/// Writes `len` bytes of `source` at `pos`; returns the bytes written, fewer if the source runs dry. The caller keeps other
/// writers, and truncation, away from the range and has zeroed the space between the old end of the file and `pos`.
///
/// # Errors
/// The first error of the file system or the device, with the bytes written before it.
pub fn write<O: IomapOps + ?Sized>(
    ops: &O,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize, Stopped<O::Error>> {
    let mut writer = Writer { ops, pos, source };
    let mut done = 0;
    while done < len {
        ops.address_space().throttle();
        let quick = writer.overwrite(done, len - done);
        if quick > 0 {
            done += quick;
            continue;
        }
        let at = pos.saturating_add(done as u64);
        let mapped = apply(
            ops,
            IomapOp::Write,
            at,
            (len - done) as u64,
            |map, at, part| writer.write_mapped(map, at, index(part)),
        );
        let mapped = mapped.map_err(|stopped| Stopped {
            done: stopped.done + done as u64,
            error: stopped.error,
        })?;
        if mapped == 0 {
            break;
        }
        done += index(mapped);
    }
    Ok(done)
}

struct Writer<'a, O: ?Sized, S> {
    ops: &'a O,
    /// The position of the source's first byte.
    pos: Pos,
    source: &'a mut S,
}

impl<O: IomapOps + ?Sized, S: Source> Writer<'_, O, S> {
    /// Writes into one folio without asking for a mapping, if that can be.
    #[inline]
    fn overwrite(&mut self, done: usize, len: usize) -> usize {
        let pages = self.ops.address_space();
        let at = self.pos.saturating_add(done as u64);
        let Some(folio) = pages.get(at.page()) else {
            return 0;
        };
        let Some(mut guard) = pages.lock_stable(&folio) else {
            return 0;
        };
        let from = folio.offset_of(at);
        let to = folio.len().min(from + len);
        if !guard.can_overwrite(from..to) {
            return 0;
        }
        let copied = self.source.copy_at(done, &mut guard.bytes_mut()[from..to]);
        if copied > 0 {
            self.ops.counters().overwrites.bump();
            self.publish(&mut guard, from, from + copied);
        }
        copied
    }

    /// Writes `len` bytes at `at` under `map`, folio by folio.
    fn write_mapped(
        &mut self,
        map: &Iomap,
        at: Pos,
        len: usize,
    ) -> Result<Step, Stopped<O::Error>> {
        let pages = self.ops.address_space();
        let old_size = self.ops.size();
        let mut step = Step::default();
        let mut chunk = usize::MAX;
        let mut first = true;
        while index(step.done) < len {
            let pos = at.saturating_add(step.done);
            let want = len - index(step.done);
            if !std::mem::take(&mut first) {
                pages.throttle();
            }
            let folio: Arc<Folio> = pages.get_or_create(pos, want as u64);
            let Some(mut guard) = pages.lock_stable(&folio) else {
                continue;
            };
            if !self.ops.is_valid(map) {
                step.stale = true;
                break;
            }
            let from = folio.offset_of(pos);
            let to = folio.len().min(from + want.min(chunk));
            prepare(self.ops, map, &mut guard, from, to).map_err(Stopped::after(step.done))?;
            let offset = index(pos.distance_from(self.pos).unwrap_or(0));
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
            if has_space(map) && map.offset <= folio.start() && map.end() >= folio.end() {
                guard.set_backed();
            }
            guard.mark_uptodate(from..from + copied);
            self.publish(&mut guard, from, from + copied);
            step.done += copied as u64;
        }
        step.size_changed = self.ops.size() > old_size;
        Ok(step)
    }

    /// Makes the bytes `[from, to)` of a folio part of the file.
    #[inline]
    fn publish(&self, guard: &mut FolioGuard<'_>, from: usize, to: usize) {
        guard.mark_dirty(from..to);
        guard.folio().mark_referenced();
        let end = guard.folio().pos_of(to).get();
        if end > self.ops.size() {
            self.ops.raise_size(end);
        }
    }
}

/// How many of `copied` bytes at `from` count after a source ran dry: a block that was to be covered wholly and holds part new,
/// part nothing does not. Blocks before it are part of the file now: some of them may have been uptodate, and hold the new bytes.
pub fn usable_after_short_copy(
    guard: &FolioGuard<'_>,
    block: usize,
    from: usize,
    copied: usize,
) -> usize {
    let stop = from + copied;
    let last = stop & !(block - 1);
    if stop == last || guard.is_uptodate(last..stop) {
        return copied;
    }
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
