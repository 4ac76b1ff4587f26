//! Writeback: from dirty records to the device.
//!
//! A pass goes over the dirty folios in ascending order, a batch at a time, and over each batch twice. First the folios whose dirty
//! blocks all have written space are submitted, without a handle. Then, group by group, the others: a handle is started, the group's
//! folios are locked, adjacent records in equal state are mapped together, the size on disk moves up to what has its place, the
//! handle ends, the data is written, and what was allocated unwritten is converted.
//!
//! # Invariants
//! * The size on disk moves when data is *submitted*: a crash then shows zeros in space that is not converted yet, never old
//!   bytes. (The other path moves it afterwards.)
//! * Each extent has its credits before it is mapped. When they run out in the middle of a folio, the mapped part is written, the
//!   rest stays dirty, and a new handle goes on from there.
//! * A failed write converts nothing; what could not be mapped or written is clean afterwards and recorded for fsync.
//!
//! # Locks
//! One pass per mapping at a time. Handle → folios, ascending. Folios are held shared while they are written.

use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_pagecache::{Folio, Tag, WritebackFault};
use extant_units::Pos;

use crate::logged::log_back;
use crate::ops::BufferWriteback;
use crate::record::BufferState;
use crate::submission::{self, Dirty, Held, run_at, settle};
use crate::{MAX_RUN, index};

/// The most folios, and about the most bytes, of one batch.
const BATCH_FOLIOS: usize = 4096;
const BATCH_BYTES: u64 = 16 << 20;
/// Folios that a commit has written together.
const ORDERED_FOLIOS: usize = 256;

/// Writes dirty data back and waits for it; returns the bytes taken. Faults are recorded in the mapping as well.
///
/// # Errors
/// The first error met; everything was tried all the same.
pub fn write_back<O: BufferWriteback + ?Sized>(
    ops: &O,
    control: WritebackControl,
) -> Result<u64, O::Error> {
    let pages = ops.address_space();
    let pass = pages.writeback_pass();
    if ops.logs_data() {
        return log_back(ops, &pass, control);
    }
    let tag = if control.integrity {
        pages.tag_for_sync(&pass, control.start, control.end);
        Tag::ToWrite
    } else {
        Tag::Dirty
    };
    let mut pass = Pass::new(ops);
    let mut at = control.start;
    while pass.taken < control.max_bytes && at < control.end {
        let mut folios = pages.tagged(at, control.end, tag, BATCH_FOLIOS);
        let mut bytes = 0;
        let fit = folios.iter().take_while(|folio| {
            let more = bytes < BATCH_BYTES.min(control.max_bytes - pass.taken);
            bytes += folio.len() as u64;
            more
        });
        let fit = fit.count();
        folios.truncate(fit);
        let Some(last) = folios.last() else { break };
        at = last.end();
        pass.batch(&folios);
    }
    pass.failed.map_or(Ok(pass.taken), Err)
}

/// Writes what is dirty in `[start, end)` and has written space, for a commit that must not overtake it (data=ordered). Maps
/// nothing; folios that are under writeback already are left to that. Completes nothing: that may start a handle, which a commit
/// must not wait for, and there is nothing to convert in written space. The size on disk was moved by whoever chose
/// the space, or is being moved by the write that made the file longer over it.
///
/// # Errors
/// The first error met; everything was tried all the same.
pub fn write_ordered<O: BufferWriteback + ?Sized>(
    ops: &O,
    start: Pos,
    end: Pos,
) -> Result<(), O::Error> {
    let pages = ops.address_space();
    let mut pass = Pass::new(ops);
    let mut at = start;
    loop {
        let folios = pages.tagged(at, end, Tag::Dirty, ORDERED_FOLIOS);
        let Some(last) = folios.last() else { break };
        at = last.end();
        pass.placed(&folios);
    }
    pass.failed.map_or(Ok(()), Err)
}

struct Pass<'a, O: BufferWriteback + ?Sized> {
    ops: &'a O,
    taken: u64,
    /// How often room was made since a place was found last.
    attempts: u32,
    /// No more can be made, until a place is found.
    gave_up: bool,
    /// Why the last run found no place, if room may be made for it.
    no_room: Option<O::Error>,
    failed: Option<O::Error>,
}

impl<'a, O: BufferWriteback + ?Sized> Pass<'a, O> {
    fn new(ops: &'a O) -> Self {
        Self {
            ops,
            taken: 0,
            attempts: 0,
            gave_up: false,
            no_room: None,
            failed: None,
        }
    }

    /// Writes what has written space in `folios`, and leaves the rest dirty.
    fn placed(&mut self, folios: &[Arc<Folio>]) {
        let mut group = Vec::new();
        let mut blocks: Vec<Dirty> = Vec::new();
        for (number, folio) in folios.iter().enumerate() {
            let Some(mut held) = Held::lock(self.ops, folio, number) else {
                continue;
            };
            let known = blocks.len();
            held.scan(self.ops, group.len(), &mut blocks);
            blocks.retain(|block| block.folio < group.len() || block.is_placed());
            if blocks.len() > known {
                group.push(held);
            } else {
                held.unlock();
            }
        }
        self.ops.data_io_begins();
        self.write(group, &blocks, false);
    }

    fn batch(&mut self, folios: &[Arc<Folio>]) {
        let mut later = Vec::new();
        let mut ready = Vec::new();
        let mut blocks = Vec::new();
        for (number, folio) in folios.iter().enumerate() {
            let Some(mut held) = self.lock(folio, number) else {
                continue;
            };
            let known = blocks.len();
            if held.scan(self.ops, ready.len(), &mut blocks) {
                blocks.truncate(known);
                held.unlock();
                later.push(folio);
            } else {
                ready.push(held);
            }
        }
        self.ops.data_io_begins();
        self.write(ready, &blocks, true);
        let mut next = 0;
        while next < later.len() {
            next += self.group(&later[next..]);
        }
    }

    /// Locks a folio that has something to be written; zeroes what lies past the end of the file. A commit may be
    /// writing it: that needs no handle, so it may be waited for with one.
    fn lock<'f>(&self, folio: &'f Arc<Folio>, number: usize) -> Option<Held<'f>>
    where
        'a: 'f,
    {
        loop {
            if let Some(held) = Held::lock(self.ops, folio, number) {
                return Some(held);
            }
            if !folio.is_under_writeback() {
                return None;
            }
            self.ops.address_space().wait_stable(folio);
        }
    }

    /// Maps and writes the first folios of `folios`, as many as one run of blocks can span; returns how many are done.
    fn group(&mut self, folios: &[&Arc<Folio>]) -> usize {
        let mut handle = match self.ops.start_mapping() {
            Ok(handle) => handle,
            Err(error) => {
                self.fail(error);
                folios.iter().for_each(|folio| self.give_up(folio));
                return folios.len();
            }
        };
        let size = self.ops.address_space().block_size().bytes_u64();
        let mut group: Vec<Held<'_>> = Vec::new();
        let mut blocks = Vec::new();
        let mut done = 0;
        let mut bytes = 0;
        for (number, folio) in folios.iter().enumerate() {
            bytes += folio.len() as u64;
            if number > 0 && bytes > u64::from(MAX_RUN) * size {
                break;
            }
            done = number + 1;
            if let Some(mut held) = self.lock(folio, number) {
                held.scan(self.ops, group.len(), &mut blocks);
                group.push(held);
            }
        }
        let mapped = self.map(&mut handle, &mut group, &mut blocks);
        // The first block without a place: its folio, and those behind it, come again.
        let cut = blocks.get(mapped).map(|block| (block.folio, block.offset));
        blocks.truncate(mapped);
        if let Some((folio, _)) = cut {
            self.ops.buffer_counters().restarts.bump();
            done = group[folio].number;
            let in_part = blocks.last().is_some_and(|last| last.folio == folio);
            for held in group.drain(folio + usize::from(in_part)..) {
                held.unlock();
            }
        }
        if let Some(last) = blocks.last() {
            let end = last.pos.saturating_add(size);
            let end = end.min(Pos::new(self.ops.size()));
            if let Err(error) = self.ops.raise_disk_size(&mut handle, end) {
                self.fail(error);
            }
        }
        self.ops.data_io_begins();
        drop(handle);
        self.write(group, &blocks, true);
        if let Some(error) = self.no_room.take() {
            self.gave_up = !self.ops.make_room(&error, self.attempts);
            self.attempts += 1;
        }
        done
    }

    /// Gives the blocks without written space their places, run by run; returns how many, from the first on, are settled.
    /// Blocks that cannot have one leave the list.
    fn map(
        &mut self,
        handle: &mut O::Handle,
        group: &mut [Held<'_>],
        blocks: &mut Vec<Dirty>,
    ) -> usize {
        let size = self.ops.address_space().block_size().bytes_u64();
        let mut next = 0;
        let mut extents = 0;
        while let Some(first) = blocks.get(next) {
            if first.is_placed() {
                next += 1;
                continue;
            }
            let pos = first.pos;
            let run = run_at(&blocks[next..], size);
            if extents > 0 {
                match self.ops.has_credits(handle) {
                    Ok(true) => {}
                    Ok(false) => return next,
                    Err(error) => self.fail(error),
                }
            }
            extents += 1;
            self.ops.buffer_counters().extent_maps.bump();
            let map = match self.ops.allocate(handle, pos, run as u64 * size) {
                Err(error) if !self.gave_up => {
                    self.no_room = Some(error);
                    return next;
                }
                Err(error) => {
                    self.fail(self.ops.data_lost(error));
                    None
                }
                Ok(map) => {
                    (self.attempts, self.gave_up) = (0, false);
                    Some(map)
                }
            };
            let got = map.as_ref().map_or(0, |map| match map.device_at(pos) {
                Some(_) => index(map.clamp(pos, run as u64 * size) / size),
                None => 0,
            });
            match map {
                Some(map) if got > 0 => {
                    let visits = settle(group, &mut blocks[next..next + got], &map);
                    self.ops.buffer_counters().writeback_visits.add(visits);
                    next += got;
                }
                _ => self.lose(group, blocks.remove(next)),
            }
        }
        next
    }

    /// A dirty block has nowhere to go: it is clean, and the loss is recorded.
    fn lose(&mut self, group: &mut [Held<'_>], block: Dirty) {
        let held = &mut group[block.folio];
        let bytes = block.offset..block.offset + held.ring.block();
        held.ring.each_in(bytes.clone(), |_, head| {
            head.clear(BufferState::DIRTY);
            head.forget_place();
        });
        let len = bytes.len() as u64;
        held.guard.cancel_dirty(bytes);
        self.ops.address_space().errors().record(WritebackFault::Io);
        self.ops.discard(block.pos, len);
    }

    /// Nothing of `folio` can be written: it is clean, and its promises are given back.
    fn give_up(&mut self, folio: &Arc<Folio>) {
        let Some(mut held) = self.lock(folio, 0) else {
            return;
        };
        let limit = held.limit;
        held.ring.each(|head| {
            head.clear(BufferState::DIRTY);
            head.forget_place();
        });
        held.guard.cancel_dirty(0..folio.len());
        held.unlock();
        self.ops.discard(folio.start(), limit as u64);
    }

    fn write(&mut self, group: Vec<Held<'_>>, blocks: &[Dirty], completes: bool) {
        let size = self.ops.address_space().block_size().bytes_u64();
        self.taken += blocks.len() as u64 * size;
        if let Some(error) = submission::write(self.ops, group, blocks, completes) {
            self.failed.get_or_insert(error);
        }
    }

    fn fail(&mut self, error: O::Error) {
        self.ops
            .address_space()
            .errors()
            .record(O::fault_of(&error));
        self.failed.get_or_insert(error);
    }
}
