//! Buffered writes, a folio at a time.

use std::ops::Range;
use std::sync::Arc;

use extant_iomap::{Source, Stopped, usable_after_short_copy};
use extant_pagecache::{Folio, FolioGuard};
use extant_units::{DevOff, PAGE_SIZE, Pos};

use crate::commit::{commit, has_written_space};
use crate::ops::{BufferOps, FolioWrite};
use crate::prepare::{clean_up, prepare};
use crate::record::{BufferHead, BufferState};
use crate::ring::Ring;

/// Writes `len` bytes of `source` at `pos`; returns the bytes written, fewer if the source ends
/// early. The caller excludes other writers of the range and truncation, has zeroed the range from
/// the old end of the file to `pos`, and has no handle open.
///
/// # Errors
/// The first error of the file system or the device, with the bytes written before it.
pub fn write<O: BufferOps + ?Sized>(
    ops: &O,
    pos: Pos,
    len: usize,
    source: &mut impl Source,
) -> Result<usize, Stopped<O::Error>> {
    let mut done = 0;
    while done < len {
        let at = pos.plus(done as u64);
        let step = write_folio(ops, at, len - done, &mut |into| source.copy_at(done, into));
        match step {
            Ok(Some(0)) => break,
            Ok(Some(copied)) => done += copied,
            // The folio was removed, or came under writeback, before it was locked.
            Ok(None) => {}
            Err(error) => {
                return Err(Stopped {
                    done: done as u64,
                    error,
                });
            }
        }
    }
    Ok(done)
}

/// Result of a write to a locked folio.
struct Written {
    copied: usize,
    last_block_written: bool,
    released: Option<Range<Pos>>,
}

/// Writes up to `len` bytes at `pos` into one folio; `None` if the caller must look the folio up
/// again.
fn write_folio<O: BufferOps + ?Sized>(
    ops: &O,
    pos: Pos,
    len: usize,
    copy: &mut impl FnMut(&mut [u8]) -> usize,
) -> Result<Option<usize>, O::Error> {
    let pages = ops.address_space();
    pages.throttle();
    let folio: Arc<Folio> = pages.get_or_create(pos, len as u64);
    pages.wait_stable(&folio);
    let from = folio.offset_of(pos);
    let mut range = from..folio.len().min(from + len);
    let size = pages.block_size().bytes();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a folio has 2048 blocks at most"
    )]
    let blocks = (range.end.div_ceil(size) - range.start / size) as u32;
    let started = ops.start_write(pos, blocks)?;
    let mut handle = started.map(|(handle, most)| {
        range.end = range.end.min(covered_end(range.start, most as usize, size));
        handle
    });
    let Some(mut guard) = pages.lock(&folio) else {
        return Ok(None);
    };
    if folio.is_under_writeback() {
        return Ok(None);
    }
    let old_size = ops.size();
    let shift = pages.block_size().log2();
    let mut ring = Ring::take(&mut guard, shift, ops.buffer_counters());
    let written = write_locked(ops, handle.as_mut(), &mut guard, &mut ring, range, copy);
    guard.put_private(ring);
    drop(guard);
    let (written, failed) = match written {
        Ok(written) => (written, None),
        Err((released, error)) => {
            let nothing = Written {
                copied: 0,
                last_block_written: false,
                released,
            };
            (nothing, Some(error))
        }
    };
    let wrote = FolioWrite {
        pos,
        end: pos.plus(written.copied as u64),
        old_size,
        last_block_written: written.last_block_written,
    };
    if let Some(range) = written.released {
        ops.undo_failed_write(handle.as_mut(), range.start, range.end);
    }
    let ended = ops.end_write(handle, wrote);
    if let Some(error) = failed {
        return Err(error);
    }
    ended?;
    Ok(Some(written.copied))
}

/// The end of the part of a write, from byte `start` of its folio on, that a handle with credits
/// for `most` blocks of `size` bytes covers. The rest is written under the next handle, from a
/// page's start on: what a write puts into one page is in one transaction, if that can hold a page.
fn covered_end(start: usize, most: usize, size: usize) -> usize {
    let covered = (start / size + most.max(1)) * size;
    let page = covered / PAGE_SIZE * PAGE_SIZE;
    if page > start { page } else { covered }
}

/// An error, and the range whose space is to be released.
type Failed<E> = (Option<Range<Pos>>, E);

/// Prepares, copies and publishes. The size in memory is raised before the folio is unlocked, or
/// writeback would zero the bytes past the old end.
fn write_locked<O: BufferOps + ?Sized>(
    ops: &O,
    mut handle: Option<&mut O::Handle>,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
    copy: &mut impl FnMut(&mut [u8]) -> usize,
) -> Result<Written, Failed<O::Error>> {
    if let Err(error) = prepare(ops, handle.as_deref_mut(), guard, ring, range.clone()) {
        return Err((undo(ops, handle, guard, ring, range), error));
    }
    let mut copied = copy(&mut guard.bytes_mut()[range.clone()]);
    if copied < range.len() {
        copied = usable_after_short_copy(guard, ring.block(), range.start, copied);
    }
    let mut released = None;
    if copied < range.len() {
        let rest = range.start + copied..range.end;
        released = undo(ops, handle.as_deref_mut(), guard, ring, rest);
    }
    let written = range.start..range.start + copied;
    let (mut converted, mut last_block_written) = (false, false);
    if copied > 0 {
        if let Some(handle) = handle.as_deref_mut() {
            let folio = guard.folio();
            let (start, end) = (folio.pos_of(written.start), folio.pos_of(written.end));
            match ops.convert_after_copy(guard.locked(), handle, start, end) {
                Ok(true) => {
                    converted = true;
                    ring.each_in(written.clone(), |_, head| {
                        head.clear(BufferState::UNWRITTEN)
                    });
                }
                Ok(false) => {}
                Err(error) => return Err((undo(ops, Some(handle), guard, ring, written), error)),
            }
        }
        commit(ops, guard, ring, written.clone(), !ops.is_data_journalled());
        if ops.is_data_journalled() {
            let blocks = blocks_of(guard, ring, written.clone(), |_| true);
            if let Err(error) = ops.journal_data(guard.locked(), handle, &blocks) {
                return Err((released, error));
            }
        }
        let end = guard.folio().pos_of(written.end).get();
        let grows = end > ops.size();
        if grows || converted {
            last_block_written = has_written_space(ops, ring, written.end - 1);
        }
        if grows {
            ops.raise_size(guard.locked(), end);
        }
        guard.folio().mark_referenced();
    }
    Ok(Written {
        copied,
        last_block_written,
        released,
    })
}

/// [`clean_up`]; where data is logged, zeros that it left in space that counts as written are
/// logged with that space.
fn undo<O: BufferOps + ?Sized>(
    ops: &O,
    handle: Option<&mut O::Handle>,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
) -> Option<Range<Pos>> {
    let released = clean_up(ops, guard, ring, range.clone());
    if ops.is_data_journalled() && handle.is_some() {
        let zeroed = |head: &BufferHead| head.is(BufferState::DIRTY) && head.has_written_space();
        let blocks = blocks_of(guard, ring, range, zeroed);
        // The blocks stay dirty: if this fails, writeback logs them later.
        let _ = ops.journal_data(guard.locked(), handle, &blocks);
    }
    released
}

/// The blocks that `range` touches and that `which` accepts, each with its device address and its
/// bytes.
fn blocks_of<'a>(
    guard: &'a FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
    which: impl Fn(&BufferHead) -> bool,
) -> Vec<(DevOff, &'a [u8])> {
    let size = ring.block();
    let bytes = guard.bytes();
    let mut blocks = Vec::with_capacity(range.len() / size + 2);
    ring.each_in(range, |at, head| {
        if let Some(device) = head.at().filter(|_| which(head)) {
            blocks.push((device, &bytes[at..at + size]));
        }
    });
    blocks
}

#[cfg(test)]
mod tests {
    use super::covered_end;

    #[test]
    fn handles_end_at_pages_where_they_can() {
        assert_eq!(covered_end(0, 9, 1024), 8192, "two pages and a block");
        assert_eq!(covered_end(0, 4, 1024), 4096);
        assert_eq!(covered_end(3000, 4, 1024), 4096, "from within a page");
        assert_eq!(covered_end(4096, 3, 1024), 7168, "less than a page");
        assert_eq!(covered_end(4096, 0, 1024), 5120, "a block at least");
        assert_eq!(covered_end(100, 3, 4096), 12288);
        assert_eq!(covered_end(65536, 1, 65536), 131_072);
    }
}
