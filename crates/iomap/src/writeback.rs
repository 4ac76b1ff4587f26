//! Writeback: from dirty folios to the device.
//!
//! A pass takes dirty folios in ascending order, a batch at a time:
//!
//! 1. Each folio is locked, zeroed past the end of the file, cleaned and put under writeback.
//! 2. The dirty runs are mapped, as long as they can be, and joined into ioends.
//! 3. Each ioend is written to the device.
//! 4. The file system completes each ioend: it converts unwritten space, then moves the size on
//!    disk.
//! 5. The folios leave writeback.
//!
//! # Invariants
//! * A failed write converts nothing and moves no size (J19). The file shows zeros past it if the
//!   space was unwritten. If it was written space around the old end of the file, nothing past it
//!   is converted or moves the size either.
//! * Data that could not be mapped or written is clean afterwards and recorded for fsync: dirty
//!   data never piles up over a broken device.
//! * An integrity pass tags the dirty folios first and writes what is tagged, so writers that go on
//!   dirtying cannot keep it busy.
//!
//! # Locks
//! One pass per file at a time. A batch's folios are held shared while they are mapped and written,
//! so that their bytes cannot change; completion holds none. The file system starts its handles
//! inside of the calls.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use extant_pagecache::{Folio, FolioGuard, FolioRef, Tag, WritebackFault, WritebackPass};
use extant_units::{Pos, index};

use crate::ioend::{Ioend, IoendKind};
use crate::map::Iomap;
use crate::ops::{DeviceFault, DeviceRequest, WritebackOps};

/// The most folios that are under writeback at once in a pass: a batch of single pages.
const BATCH_FOLIOS: usize = 4096;
/// About the most bytes under writeback at once in a pass. Enough for long device writes; little
/// enough that a writer waits for a batch no longer than for a few of those.
const BATCH_BYTES: u64 = 16 << 20;

/// The extent of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritebackControl {
    /// The first byte.
    pub start: Pos,
    /// The byte after the last; data is written in whole folios.
    pub end: Pos,
    /// Everything that is dirty now must be written.
    pub integrity: bool,
    /// About how many bytes to write.
    pub max_bytes: u64,
}

impl WritebackControl {
    /// Everything that is dirty in `[start, end)` now.
    pub fn integrity(start: Pos, end: Pos) -> Self {
        Self {
            start,
            end,
            integrity: true,
            max_bytes: u64::MAX,
        }
    }

    /// About `max_bytes` of dirty data, from the start of the file.
    pub fn background(max_bytes: u64) -> Self {
        Self {
            start: Pos::ZERO,
            end: Pos::MAX,
            integrity: false,
            max_bytes,
        }
    }
}

/// Writes dirty data back and waits for it, as the `pass` of the file's address space; returns the
/// bytes that were dirty. Errors are recorded in the address space as well.
///
/// # Errors
/// The first error met. The pass goes on after it.
pub fn write_back<O: WritebackOps + ?Sized>(
    ops: &O,
    pass: &WritebackPass<'_>,
    control: WritebackControl,
) -> Result<u64, O::Error> {
    let pages = ops.address_space();
    let tag = if control.integrity {
        pages.tag_for_sync(pass, control.start, control.end);
        Tag::ToWrite
    } else {
        Tag::Dirty
    };
    let mut at = control.start;
    let mut taken = 0;
    let mut failed = None;
    let mut failed_before = None;
    while taken < control.max_bytes && at < control.end {
        let folios = pages.tagged(at, control.end, tag, BATCH_FOLIOS);
        let Some(last) = folios.last() else { break };
        let mut next = last.end();
        let mut batch = Batch::new(ops);
        for folio in &folios {
            if batch.bytes >= BATCH_BYTES.min(control.max_bytes - taken) {
                next = folio.start();
                break;
            }
            batch.take(folio);
        }
        at = next;
        taken += batch.bytes;
        if let Err(error) = batch.write(&mut failed_before) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(taken), Err)
}

/// A dirty run within one folio.
pub(crate) struct DirtyRun {
    /// Index in [`Batch::folios`].
    folio: usize,
    bytes: Range<usize>,
    pos: Pos,
}

/// An ioend and the parts of folios that it writes.
struct Submission {
    ioend: Ioend,
    /// Each the index of a folio and the bytes of it.
    parts: Vec<(usize, Range<usize>)>,
}

/// Folios under writeback together.
pub(crate) struct Batch<'a, O: WritebackOps + ?Sized> {
    ops: &'a O,
    folios: Vec<&'a Arc<Folio>>,
    /// The same folios, locked shared until their bytes are on the device.
    held: Vec<FolioRef<'a>>,
    runs: Vec<DirtyRun>,
    bytes: u64,
    /// Ranges that could not be mapped.
    lost: Vec<Range<Pos>>,
    failed: Option<O::Error>,
}

impl<'a, O: WritebackOps + ?Sized> Batch<'a, O> {
    pub(crate) fn new(ops: &'a O) -> Self {
        Self {
            ops,
            folios: Vec::new(),
            held: Vec::new(),
            runs: Vec::new(),
            bytes: 0,
            lost: Vec::new(),
            failed: None,
        }
    }

    /// Cleans a folio and puts it under writeback.
    fn take(&mut self, folio: &'a Arc<Folio>) {
        if let Some(guard) = self.ops.address_space().lock(folio) {
            self.take_locked(folio, guard);
        }
    }

    /// [`Batch::take`] of a folio that is locked and not under writeback.
    pub(crate) fn take_locked(&mut self, folio: &'a Arc<Folio>, mut guard: FolioGuard<'a>) {
        let pages = self.ops.address_space();
        // Sampled under the folio lock: a write raises the size with the last folio locked.
        let size = Pos::new(self.ops.size());
        if folio.start() >= size || !guard.has_dirty() {
            // A folio past the end is about to be dropped by a truncation.
            return;
        }
        let end = folio.offset_of(size);
        let block = pages.block_size().bytes();
        let limit = end.next_multiple_of(block).min(folio.len());
        guard.bytes_mut()[end..limit].fill(0);
        let number = self.folios.len();
        let runs = &mut self.runs;
        let mut bytes = 0;
        guard.start_writeback(limit, |run| {
            bytes += run.len() as u64;
            runs.push(DirtyRun {
                folio: number,
                pos: folio.pos_of(run.start),
                bytes: run,
            });
        });
        self.bytes += bytes;
        self.folios.push(folio);
        self.held.push(guard.downgrade());
    }

    /// Maps, writes and completes everything taken. `failed_before` is the end of the last run that
    /// the pass failed to write into written space.
    pub(crate) fn write(mut self, failed_before: &mut Option<Pos>) -> Result<(), O::Error> {
        let mut arrived = Vec::new();
        for submission in self.map() {
            let mut ioend = submission.ioend;
            ioend.failed_before = *failed_before;
            if self.submit(&submission) {
                arrived.push(ioend);
            } else if ioend.kind == IoendKind::Mapped {
                *failed_before = Some(ioend.end());
            }
        }
        // The device has the bytes, so readers need not wait for completion; writers still do.
        self.held.clear();
        for ioend in &arrived {
            if let Err(error) = self.ops.complete(ioend) {
                self.fail(error);
            }
        }
        let pages = self.ops.address_space();
        for range in &self.lost {
            pages.clear_backed(range.start, range.end);
        }
        pages.end_writeback(self.folios.iter().copied());
        self.failed.map_or(Ok(()), Err)
    }

    /// The length of what is dirty, if that is one run from the start of the file.
    pub(crate) fn run_from_start(&self) -> Option<u64> {
        let at_start = self.runs.first().is_some_and(|run| run.pos == Pos::ZERO);
        let run = contiguous_lengths(&self.runs).first().copied();
        run.filter(|&run| at_start && run == self.bytes)
    }

    /// The bytes of all dirty runs.
    pub(crate) fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let bytes = |run: &DirtyRun| &self.held[run.folio].bytes()[run.bytes.clone()];
        self.runs.iter().map(move |run| IoSlice::new(bytes(run)))
    }

    /// Ends the writeback of folios whose data is part of the file on disk.
    pub(crate) fn finish(mut self) {
        self.held.clear();
        let pages = self.ops.address_space();
        pages.end_writeback(self.folios.iter().copied());
    }

    /// Maps all dirty runs, and joins them into ioends.
    fn map(&mut self) -> Vec<Submission> {
        let runs = std::mem::take(&mut self.runs);
        let lengths = contiguous_lengths(&runs);
        let mut submissions: Vec<Submission> = Vec::new();
        let mut map: Option<Iomap> = None;
        for (run, contiguous) in runs.iter().zip(lengths) {
            let mut from = run.bytes.start;
            while from < run.bytes.end {
                let done = (from - run.bytes.start) as u64;
                let pos = run.pos.plus(done);
                let left = (run.bytes.end - from) as u64;
                let here = match map.take() {
                    Some(map) if map.clamp(pos, 1) > 0 && self.is_valid(run, &map) => Some(map),
                    _ => self.map_blocks(pos, contiguous - done),
                };
                let mapped = here.as_ref().and_then(|here| {
                    let len = here.clamp(pos, left);
                    Ioend::new(here, pos, len).filter(|_| len > 0)
                });
                let Some(ioend) = mapped else {
                    self.lose(pos, left, here.is_some());
                    break;
                };
                let to = from + index(ioend.len);
                add(self.ops, &mut submissions, ioend, (run.folio, from..to));
                from = to;
                map = here;
            }
        }
        submissions
    }

    fn is_valid(&self, run: &DirtyRun, map: &Iomap) -> bool {
        self.ops.is_valid(self.held[run.folio].locked(), map)
    }

    fn map_blocks(&mut self, pos: Pos, len: u64) -> Option<Iomap> {
        self.ops.counters().map_calls.bump();
        match self.ops.map_blocks(pos, len) {
            Ok(map) => Some(map),
            Err(error) => {
                self.fail(self.ops.lost_data_error(error));
                None
            }
        }
    }

    /// Gives up `len` dirty bytes at `pos` that have no space; `silent`: no error was recorded for
    /// them.
    fn lose(&mut self, pos: Pos, len: u64, silent: bool) {
        if silent {
            self.ops.address_space().errors().record(WritebackFault::Io);
        }
        self.ops.discard(pos, len);
        // The next write must ask for space again. The folio is held shared here; its flag is
        // cleared after the batch.
        self.lost.push(pos..pos.plus(len));
    }

    /// Writes an ioend; returns whether the device accepted it.
    fn submit(&mut self, submission: &Submission) -> bool {
        let ioend = submission.ioend;
        let slices: Vec<IoSlice<'_>> = submission
            .parts
            .iter()
            .map(|(folio, bytes)| IoSlice::new(&self.held[*folio].bytes()[bytes.clone()]))
            .collect();
        let Err(error) = write_ioend(self.ops, &ioend, &slices) else {
            return true;
        };
        self.fail(error);
        false
    }

    fn fail(&mut self, error: O::Error) {
        self.ops
            .address_space()
            .errors()
            .record(O::fault_of(&error));
        self.failed.get_or_insert(error);
    }
}

/// Writes the bytes of an ioend to the device, in the form that it has of them.
///
/// # Errors
/// The device's; [`crate::IomapOps::encode`]'s.
pub fn write_ioend<O: WritebackOps + ?Sized>(
    ops: &O,
    ioend: &Ioend,
    slices: &[IoSlice<'_>],
) -> Result<(), O::Error> {
    ops.counters().ioends.bump();
    ops.counters().written_bytes.add(ioend.len);
    let write = |slices: &[IoSlice<'_>]| {
        let written = ops.device().write_vectored_at(ioend.at, slices);
        written.map_err(|source| {
            O::Error::from(DeviceFault {
                request: DeviceRequest::Write,
                at: ioend.at,
                len: ioend.len,
                source,
            })
        })
    };
    let written = match ops.is_encoded() {
        true => encoded(ops, ioend.pos, slices).and_then(|bytes| write(&[IoSlice::new(&bytes)])),
        false => write(slices),
    };
    written.inspect_err(|_| ops.counters().failed_ioends.bump())
}

/// The bytes of `slices` as the device gets them at `pos`.
fn encoded<O: WritebackOps + ?Sized>(
    ops: &O,
    pos: Pos,
    slices: &[IoSlice<'_>],
) -> Result<Vec<u8>, O::Error> {
    let mut bytes = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
    slices
        .iter()
        .for_each(|slice| bytes.extend_from_slice(slice));
    ops.encode(pos, &mut bytes)?;
    Ok(bytes)
}

/// For each run, the bytes from its start to the end of the contiguous runs that follow it.
fn contiguous_lengths(runs: &[DirtyRun]) -> Vec<u64> {
    let mut lengths = vec![0; runs.len()];
    let mut next: Option<(Pos, u64)> = None;
    for (length, run) in lengths.iter_mut().zip(runs).rev() {
        *length = run.bytes.len() as u64;
        let end = run.pos.plus(*length);
        if let Some((pos, following)) = next {
            debug_assert!(end <= pos, "runs are ascending");
            if pos == end {
                *length += following;
            }
        }
        next = Some((run.pos, *length));
    }
    lengths
}

/// Adds a part of a folio to the last submission if it continues there, or as a new one.
fn add<O: WritebackOps + ?Sized>(
    ops: &O,
    submissions: &mut Vec<Submission>,
    ioend: Ioend,
    part: (usize, Range<usize>),
) {
    if let Some(last) = submissions.last_mut()
        && last.ioend.try_merge(&ioend)
    {
        ops.counters().merges.bump();
        last.parts.push(part);
        return;
    }
    submissions.push(Submission {
        ioend,
        parts: vec![part],
    });
}
