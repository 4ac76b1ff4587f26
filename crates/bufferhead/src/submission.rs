//! The parts of a writeback pass: locked folios, their dirty blocks, and the submissions made of
//! them.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use extant_iomap::{Ioend, IoendKind, Iomap, IomapKind, write_ioend};
use extant_pagecache::{Folio, FolioGuard, FolioRef};
use extant_units::{DevOff, Pos};

use crate::ops::{BlockLocation, BlockMap, BufferWriteback};
use crate::record::BufferState;
use crate::ring::MAX_RUN;
use crate::ring::Ring;

/// A dirty block of a group.
pub(crate) struct DirtyBlock {
    /// Index of the folio in its group.
    pub(crate) folio: usize,
    pub(crate) offset: usize,
    pub(crate) pos: Pos,
    /// Offset on the device, if it has space there.
    pub(crate) at: Option<DevOff>,
    pub(crate) unwritten: bool,
}

impl DirtyBlock {
    /// Returns whether it can be written without an allocation or a conversion.
    pub(crate) fn has_written_space(&self) -> bool {
        self.at.is_some() && !self.unwritten
    }
}

/// A locked folio of a group, with its ring taken out.
pub(crate) struct LockedFolio<'a> {
    pub(crate) folio: &'a Arc<Folio>,
    /// Its index in the list of folios that the pass works on.
    pub(crate) number: usize,
    pub(crate) guard: FolioGuard<'a>,
    pub(crate) ring: Box<Ring>,
    /// Bytes below this are the file's, in whole blocks.
    pub(crate) limit: usize,
}

/// Parts of folios, contiguous on the device and in the file.
struct Submission {
    ioend: Ioend,
    parts: Vec<(usize, Range<usize>)>,
}

/// Writes `blocks`, all of which have their space, and completes them if `completes`. Other dirty
/// blocks of their folios stay dirty. Returns the first error; it is recorded in the address space.
pub(crate) fn write<O: BufferWriteback + ?Sized>(
    ops: &O,
    group: Vec<LockedFolio<'_>>,
    blocks: &[DirtyBlock],
    completes: bool,
) -> Option<O::Error> {
    let size = ops.address_space().block_size().bytes();
    let mut submissions: Vec<Submission> = Vec::new();
    for block in blocks {
        add(&mut submissions, block, size);
    }
    let mut folios = Vec::with_capacity(group.len());
    let mut shared: Vec<FolioRef<'_>> = Vec::with_capacity(group.len());
    let mut parts = blocks.chunk_by(|a, b| a.folio == b.folio).peekable();
    for (number, mut held) in group.into_iter().enumerate() {
        let part = parts.next_if(|part| part[0].folio == number);
        // A folio may be locked only for blocks past the end of the file, and have none to write.
        held.start_writeback(part.unwrap_or_default(), size);
        held.guard.put_private(held.ring);
        folios.push(held.folio);
        shared.push(held.guard.downgrade());
    }
    debug_assert!(parts.next().is_none(), "every block has its folio");
    let mut failed = None;
    let mut fail = |error: O::Error| {
        ops.address_space().errors().record(O::fault_of(&error));
        failed.get_or_insert(error);
    };
    submissions.retain(|submission| match submission.submit(ops, &shared) {
        Ok(()) => true,
        Err(error) => {
            fail(error);
            false
        }
    });
    drop(shared);
    ops.data_io_ends();
    for submission in submissions.iter().filter(|_| completes) {
        if let Err(error) = ops.complete(&submission.ioend) {
            fail(error);
        }
    }
    finish(ops, &folios, &submissions);
    failed
}

/// Marks the records of what was converted as written, and ends the writeback of the folios.
fn finish<O: BufferWriteback + ?Sized>(
    ops: &O,
    folios: &[&Arc<Folio>],
    submissions: &[Submission],
) {
    let pages = ops.address_space();
    let shift = pages.block_size().log2();
    let converted = submissions
        .iter()
        .filter(|submission| submission.ioend.kind == IoendKind::Unwritten)
        .flat_map(|submission| &submission.parts);
    let mut converted = converted.peekable();
    for (number, folio) in folios.iter().enumerate() {
        let Some(mut guard) = pages.lock(folio) else {
            continue;
        };
        let mut ring = Ring::take(&mut guard, shift, ops.buffer_counters());
        while let Some((_, bytes)) = converted.next_if(|(of, _)| *of <= number) {
            ring.each_in(bytes.clone(), |_, head| head.clear(BufferState::UNWRITTEN));
        }
        ring.each(|head| head.clear(BufferState::ASYNC_WRITE));
        guard.put_private(ring);
    }
    pages.end_writeback(folios.iter().copied());
}

impl Submission {
    fn submit<O: BufferWriteback + ?Sized>(
        &self,
        ops: &O,
        held: &[FolioRef<'_>],
    ) -> Result<(), O::Error> {
        let ioend = self.ioend;
        let slices: Vec<IoSlice<'_>> = self
            .parts
            .iter()
            .map(|(folio, bytes)| IoSlice::new(&held[*folio].bytes()[bytes.clone()]))
            .collect();
        write_ioend(ops, &ioend, &slices)
    }
}

impl<'a> LockedFolio<'a> {
    /// Locks a folio and zeroes its part past the end of the file. `None` if it has nothing to be
    /// written, or is under writeback.
    pub(crate) fn lock<O: BufferWriteback + ?Sized>(
        ops: &'a O,
        folio: &'a Arc<Folio>,
        number: usize,
    ) -> Option<Self> {
        let pages = ops.address_space();
        let mut guard = pages.lock(folio)?;
        // Sampled under the folio lock: a write raises the size with the last folio locked.
        let size = Pos::new(ops.size());
        // A folio past the end is about to be dropped by a truncation.
        let nothing = folio.start() >= size || !guard.has_dirty();
        if nothing || folio.is_under_writeback() {
            return None;
        }
        let end = folio.offset_of(size);
        let block = pages.block_size();
        let limit = end.next_multiple_of(block.bytes()).min(folio.len());
        guard.bytes_mut()[end..limit].fill(0);
        let ring = Ring::take(&mut guard, block.log2(), ops.buffer_counters());
        Some(Self {
            folio,
            number,
            guard,
            ring,
            limit,
        })
    }

    /// Adds the folio's dirty blocks to `blocks`, as those of folio number `folio` of a group.
    /// Returns whether some have no written space.
    pub(crate) fn scan<O: BufferWriteback + ?Sized>(
        &mut self,
        ops: &O,
        folio: usize,
        blocks: &mut Vec<DirtyBlock>,
    ) -> bool {
        let start = self.folio.start();
        let mut needs = false;
        let visits = self.ring.each_in(0..self.limit, |offset, head| {
            if !head.is(BufferState::DIRTY) {
                return;
            }
            needs |= !head.has_written_space();
            blocks.push(DirtyBlock {
                folio,
                offset,
                pos: start.plus(offset as u64),
                at: head.at(),
                unwritten: head.is(BufferState::UNWRITTEN),
            });
        });
        ops.buffer_counters().writeback_visits.add(visits);
        needs
    }

    /// Puts the ring back and unlocks the folio.
    pub(crate) fn unlock(mut self) {
        self.guard.put_private(self.ring);
    }

    /// Cleans `blocks` of the folio and puts it under writeback. Past the end of the file nothing
    /// is dirty afterwards.
    fn start_writeback(&mut self, blocks: &[DirtyBlock], size: usize) {
        debug_assert!(
            blocks.iter().all(|block| block.offset + size <= self.limit),
            "J31: nothing past the end of the file is written"
        );
        let runs = runs(blocks, size);
        for run in &runs {
            self.ring.each_in(run.clone(), |_, head| {
                head.clear(BufferState::DIRTY);
                head.set(BufferState::ASYNC_WRITE);
            });
        }
        self.guard.start_writeback_of(runs);
        let past = self.limit..self.folio.len();
        if !past.is_empty() {
            self.ring
                .each_in(past.clone(), |_, head| head.clear(BufferState::DIRTY));
            self.guard.cancel_dirty(past);
        }
    }
}

/// The bytes of a folio's `blocks`, adjacent ones together.
fn runs(blocks: &[DirtyBlock], size: usize) -> Vec<Range<usize>> {
    let adjacent = blocks.chunk_by(|a, b| a.offset + size == b.offset);
    adjacent
        .map(|run| run[0].offset..run[run.len() - 1].offset + size)
        .collect()
}

/// The number of blocks, from the first on, that are adjacent and in equal state.
pub(crate) fn run_length(blocks: &[DirtyBlock], size: u64) -> usize {
    let like = |pair: &[DirtyBlock]| {
        pair[0].pos.plus(size) == pair[1].pos
            && pair[0].unwritten == pair[1].unwritten
            && pair[0].at.is_some() == pair[1].at.is_some()
    };
    debug_assert!(!blocks.is_empty(), "a run has a first block");
    let more = blocks.windows(2).take_while(|pair| like(pair)).count();
    (more + 1).min(MAX_RUN as usize)
}

/// Records `map` in `blocks`, all of which it covers, and in their folios' records. Returns the
/// number of records visited.
pub(crate) fn record_mapping(
    group: &mut [LockedFolio<'_>],
    blocks: &mut [DirtyBlock],
    map: &Iomap,
) -> u64 {
    let unwritten = matches!(map.kind, IomapKind::Unwritten(_));
    let mut visits = 0;
    for part in blocks.chunk_by_mut(|a, b| a.folio == b.folio) {
        for block in part.iter_mut() {
            block.at = map.device_at(block.pos);
            block.unwritten = unwritten;
        }
        let mut mapped = part.iter();
        let held = &mut group[part[0].folio];
        let first = part[0].offset;
        let last = part[part.len() - 1].offset;
        visits += held.ring.each_in(first..last + 1, |_, head| {
            let Some(at) = mapped.next().and_then(|block| block.at) else {
                debug_assert!(false, "the mapping has space for each block");
                return;
            };
            let location = if unwritten {
                BlockLocation::Unwritten(at)
            } else {
                BlockLocation::Written(at)
            };
            head.map(BlockMap {
                location,
                new: false,
            });
        });
    }
    visits
}

/// Adds a block to the last submission if it continues there, or as a new one.
fn add(submissions: &mut Vec<Submission>, block: &DirtyBlock, size: usize) {
    let Some(at) = block.at else {
        debug_assert!(false, "the block at {} has its space", block.pos);
        return;
    };
    let kind = if block.unwritten {
        IoendKind::Unwritten
    } else {
        IoendKind::Mapped
    };
    let bytes = block.offset..block.offset + size;
    if let Some(last) = submissions.last_mut() {
        let joins = last.ioend.kind == kind
            && last.ioend.end() == block.pos
            && last.ioend.at.checked_add(last.ioend.len) == Some(at);
        if joins {
            last.ioend.len += size as u64;
            match last.parts.last_mut() {
                Some((folio, part)) if *folio == block.folio && part.end == bytes.start => {
                    part.end = bytes.end;
                }
                _ => last.parts.push((block.folio, bytes)),
            }
            return;
        }
    }
    submissions.push(Submission {
        ioend: Ioend {
            pos: block.pos,
            len: size as u64,
            at,
            kind,
            failed_before: None,
        },
        parts: vec![(block.folio, bytes)],
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 1 KiB at these places of the file, with this space.
    fn blocks(of: &[(u64, Option<u64>, bool)]) -> Vec<DirtyBlock> {
        of.iter()
            .map(|&(number, at, unwritten)| DirtyBlock {
                folio: 0,
                offset: 0,
                pos: Pos::new(number * 1024),
                at: at.map(DevOff::new),
                unwritten,
            })
            .collect()
    }

    #[test]
    fn a_run_is_of_adjacent_blocks_in_the_same_state() {
        let long: Vec<_> = (0..u64::from(MAX_RUN) + 5)
            .map(|n| (n, None, false))
            .collect();
        for (of, length) in [
            (&[(3, None, false)][..], 1),
            (&[(3, None, false), (4, None, false), (5, None, false)], 3),
            (&[(3, None, false), (4, None, false), (6, None, false)], 2),
            (
                &[(3, Some(0), true), (4, Some(9), true), (5, Some(8), false)],
                2,
            ),
            (&[(3, None, false), (4, Some(0), false)], 1),
            (&long, MAX_RUN as usize),
        ] {
            assert_eq!(run_length(&blocks(of), 1024), length, "{of:?}");
        }
    }
}
