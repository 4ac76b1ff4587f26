//! Preparing a write: every block of the range has space, and the blocks that it covers only partly
//! have their old content.

use std::ops::Range;

use extant_iomap::{DeviceFault, DeviceRequest};
use extant_pagecache::FolioGuard;
use extant_units::{DevOff, Pos};

use crate::ops::BufferOps;
use crate::record::BufferState;
use crate::ring::Ring;

/// The blocks at the two ends of a range whose old content a write needs.
#[derive(Default)]
struct Edges {
    blocks: [Option<(usize, DevOff)>; 2],
}

impl Edges {
    fn add(&mut self, block: usize, at: DevOff) {
        let slot = usize::from(self.blocks[0].is_some());
        debug_assert!(self.blocks[slot].is_none(), "a range has two ends");
        self.blocks[slot] = Some((block, at));
    }
}

/// Prepares `range` of a locked folio. On an error the caller cleans up ([`clean_up`]).
///
/// The walk begins at the head. It may end after the range only if the folio was uptodate when it
/// began: then no record after the range has news.
pub(crate) fn prepare<O: BufferOps + ?Sized>(
    ops: &O,
    mut handle: Option<&mut O::Handle>,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
) -> Result<(), O::Error> {
    let counters = ops.buffer_counters();
    let uptodate = guard.is_uptodate(0..guard.folio().len());
    let may_stop = uptodate && ops.stop_at_range_end();
    let start = guard.folio().start();
    let size = ring.block();
    let mut edges = Edges::default();
    let mut visits = 0;
    let mut at = 0;
    let mut link = ring.head();
    let mut failed = None;
    loop {
        if may_stop && at >= range.end {
            break;
        }
        let (head, next) = ring.follow(link);
        visits += 1;
        let end = at + size;
        if end <= range.start || at >= range.end {
            if uptodate {
                head.set(BufferState::UPTODATE);
            }
        } else {
            head.clear(BufferState::NEW);
            if !head.is(BufferState::MAPPED) {
                counters.block_maps.bump();
                let pos = start.plus(at as u64);
                match ops.map_block(guard.locked(), handle.as_deref_mut(), pos) {
                    Ok(map) => head.map(map),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            if uptodate {
                head.set(BufferState::UPTODATE);
            } else if !head.is(BufferState::UPTODATE) && (at < range.start || end > range.end) {
                match head.at() {
                    Some(device) if head.has_written_space() && !head.is(BufferState::NEW) => {
                        edges.add(at, device);
                    }
                    _ => zero_around(guard.bytes_mut(), at..end, &range),
                }
            }
        }
        at = end;
        link = next;
        if link == ring.head() {
            break;
        }
    }
    counters.begins.bump();
    counters.begin_visits.add(visits);
    failed.map_or_else(|| read_edges(ops, guard, ring, &edges), Err)
}

/// Zeroes the bytes of `block` outside of `range`.
fn zero_around(bytes: &mut [u8], block: Range<usize>, range: &Range<usize>) {
    if block.start < range.start {
        bytes[block.start..range.start.min(block.end)].fill(0);
    }
    if block.end > range.end {
        bytes[range.end.max(block.start)..block.end].fill(0);
    }
}

/// Reads the edge blocks. Past the end of the file the device may hold anything: that part is
/// zeroed.
fn read_edges<O: BufferOps + ?Sized>(
    ops: &O,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    edges: &Edges,
) -> Result<(), O::Error> {
    let size = ring.block();
    for &(block, at) in edges.blocks.iter().flatten() {
        ops.buffer_counters().edge_reads.bump();
        let end = guard.folio().offset_of(Pos::new(ops.size()));
        let pos = guard.folio().pos_of(block);
        let bytes = &mut guard.bytes_mut()[block..block + size];
        ops.device().read_at(at, bytes).map_err(|source| {
            O::Error::from(DeviceFault {
                request: DeviceRequest::Read,
                at,
                len: size as u64,
                source,
            })
        })?;
        if ops.is_encoded() {
            ops.decode(pos, bytes)?;
        }
        if end < block + size {
            // The whole block if the file ends before it.
            bytes[end.saturating_sub(block)..].fill(0);
        }
        guard.mark_uptodate(block..block + size);
        ring.each_in(block..block + 1, |_, head| head.set(BufferState::UPTODATE));
    }
    Ok(())
}

/// Cleans up after a write that failed or was short. The blocks of `range` whose space was made for
/// the write become dirty below the end of the file, as zeros or with what the folio held; past the
/// end they forget their space. Returns the range whose space the caller releases, if any.
pub(crate) fn clean_up<O: BufferOps + ?Sized>(
    ops: &O,
    guard: &mut FolioGuard<'_>,
    ring: &mut Ring,
    range: Range<usize>,
) -> Option<Range<Pos>> {
    let file_end = guard.folio().offset_of(Pos::new(ops.size()));
    let size = ring.block();
    let mut before: Vec<(usize, bool)> = Vec::new();
    let mut released: Option<Range<usize>> = None;
    let visits = ring.each_in(range, |at, head| {
        if !head.is(BufferState::NEW) {
            return;
        }
        head.clear(BufferState::NEW);
        if at < file_end {
            before.push((at, head.is(BufferState::UPTODATE)));
            head.set(BufferState::UPTODATE | BufferState::DIRTY);
        } else {
            head.unmap();
            let start = released.as_ref().map_or(at, |range| range.start);
            released = Some(start..at + size);
        }
    });
    ops.buffer_counters().cleanup_visits.add(visits);
    for (at, uptodate) in before {
        if !uptodate {
            guard.bytes_mut()[at..at + size].fill(0);
            guard.mark_uptodate(at..at + size);
        }
        guard.mark_dirty(at..at + size);
    }
    let folio = guard.folio();
    released.map(|range| folio.pos_of(range.start)..folio.pos_of(range.end))
}
