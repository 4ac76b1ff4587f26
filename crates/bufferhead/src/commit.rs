//! Publishing a write: the blocks that it covered become uptodate and dirty. (Linux's
//! `block_commit_write`; a commit of the journal is something else.)

use std::ops::Range;

use extant_pagecache::FolioGuard;

use crate::ops::BufferOps;
use crate::record::BufferState;
use crate::ring::Ring;

/// Publishes `range` of a locked folio; `dirty` unless the journal has taken the bytes.
///
/// The walk ends after the range only if the folio was uptodate: otherwise only a complete walk can
/// tell that it has become uptodate.
pub(crate) fn commit<O: BufferOps + ?Sized>(
    ops: &O,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
    dirty: bool,
) {
    let whole = 0..guard.folio().len();
    let uptodate = guard.is_uptodate(whole.clone());
    let may_stop = uptodate && ops.stop_at_range_end();
    let size = ring.block();
    let mut partial = false;
    let mut visits = 0;
    let mut at = 0;
    let mut link = ring.head();
    loop {
        let (head, next) = ring.follow(link);
        visits += 1;
        if at + size <= range.start || at >= range.end {
            partial |= !head.is(BufferState::UPTODATE);
        } else {
            head.set(BufferState::UPTODATE);
            if dirty {
                head.set(BufferState::DIRTY);
            }
        }
        head.clear(BufferState::NEW);
        at += size;
        link = next;
        if link == ring.head() || (may_stop && at >= range.end) {
            break;
        }
    }
    ops.buffer_counters().commit_visits.add(visits);
    if !uptodate {
        guard.mark_uptodate(if partial { range.clone() } else { whole });
    }
    if dirty {
        guard.mark_dirty(range);
    }
}

/// Returns whether the block that holds byte `last` of the folio has written space.
pub(crate) fn has_written_space<O: BufferOps + ?Sized>(
    ops: &O,
    ring: &mut Ring,
    last: usize,
) -> bool {
    let mut written = false;
    let visits = ring.each_in(last..last + 1, |_, head| written = head.has_written_space());
    ops.buffer_counters().last_block_visits.add(visits);
    written
}
