//! Writeback: from dirty records to the device.
//!
//! A pass goes over the dirty folios in ascending order, a batch at a time, and over each batch
//! twice:
//!
//! 1. The folios whose dirty blocks all have written space are submitted, without a handle.
//! 2. The other folios follow group by group. A handle is started and the group's folios are
//!    locked; adjacent records in equal state are mapped together; the size on disk moves up to the
//!    last block that has its space; the handle ends; the data is written, and unwritten space is
//!    converted.
//!
//! # Invariants
//! * The size on disk moves when data is *submitted*. A crash then shows zeros in space that is not
//!   converted yet, never old bytes. (The iomap path moves it afterwards.)
//! * Each extent has its credits before it is mapped. When they run out in the middle of a folio,
//!   the mapped part is written, the rest stays dirty, and a new handle continues there.
//! * A failed write converts nothing (J19). Data that could not be mapped or written is clean
//!   afterwards and recorded for fsync.
//!
//! # Locks
//! One pass per file at a time. Handle → folios, ascending. Folios are held shared while they are
//! written.

use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_pagecache::{Folio, Tag, WritebackFault, WritebackPass};
use extant_units::{Pos, index};

use crate::logged::log_dirty;
use crate::ops::BufferWriteback;
use crate::record::BufferState;
use crate::ring::MAX_RUN;
use crate::submission::{self, DirtyBlock, LockedFolio, record_mapping, run_length};

/// The most folios of one batch: as on the iomap path.
const BATCH_FOLIOS: usize = 4096;
/// About the most bytes of one batch: as on the iomap path.
const BATCH_BYTES: u64 = 16 << 20;
/// Folios that a commit writes together.
const ORDERED_FOLIOS: usize = 256;

/// Writes dirty data back and waits for it, as the `pass` of the file's address space; returns the
/// bytes that were dirty. Errors are recorded in the address space as well.
///
/// # Errors
/// The first error met. The pass goes on after it.
pub fn write_back<O: BufferWriteback + ?Sized>(
    ops: &O,
    pass: &WritebackPass<'_>,
    control: WritebackControl,
) -> Result<u64, O::Error> {
    let pages = ops.address_space();
    if ops.is_data_journalled() {
        return log_dirty(ops, pass, control);
    }
    let tag = if control.integrity {
        pages.tag_for_sync(pass, control.start, control.end);
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
        debug_assert!(fit <= BATCH_FOLIOS, "a batch of {fit} folios");
        folios.truncate(fit);
        let Some(last) = folios.last() else { break };
        at = last.end();
        pass.batch(&folios);
    }
    pass.failed.map_or(Ok(pass.taken), Err)
}

/// Writes the dirty data in `[start, end)` that has written space, for a commit that must not
/// overtake it (data=ordered). Folios that are under writeback already are left to that.
///
/// This runs on the thread that commits, so it starts no handle: it maps nothing, and completes
/// nothing. There is nothing to convert in written space, and the write that made the file longer
/// moves the size on disk itself, or did so when it allocated the space.
///
/// # Errors
/// The first error met. The rest is written all the same.
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
        pass.write_allocated(&folios);
    }
    pass.failed.map_or(Ok(()), Err)
}

/// Progress of a pass.
struct Pass<'a, O: BufferWriteback + ?Sized> {
    ops: &'a O,
    /// Bytes that were dirty.
    taken: u64,
    /// Attempts to make room since the last allocation.
    retries: O::Retries,
    /// No more room can be made, until an allocation succeeds.
    gave_up: bool,
    /// Why the last run got no space, if room may be made for it.
    no_room: Option<O::Error>,
    failed: Option<O::Error>,
}

impl<'a, O: BufferWriteback + ?Sized> Pass<'a, O> {
    fn new(ops: &'a O) -> Self {
        Self {
            ops,
            taken: 0,
            retries: O::Retries::default(),
            gave_up: false,
            no_room: None,
            failed: None,
        }
    }

    /// Writes the blocks of `folios` that have written space, and leaves the others dirty.
    fn write_allocated(&mut self, folios: &[Arc<Folio>]) {
        let mut group = Vec::new();
        let mut blocks: Vec<DirtyBlock> = Vec::new();
        for (number, folio) in folios.iter().enumerate() {
            let Some(mut held) = LockedFolio::lock(self.ops, folio, number) else {
                continue;
            };
            let known = blocks.len();
            held.scan(self.ops, group.len(), &mut blocks);
            blocks.retain(|block| block.folio < group.len() || block.has_written_space());
            if blocks.len() > known {
                group.push(held);
            } else {
                held.unlock();
            }
        }
        self.ops.data_io_begins();
        self.write(group, &blocks, false);
    }

    /// Writes a batch: first the folios that need no handle, then the others.
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

    /// Locks a folio that has something to be written, after the end of a commit's write of it:
    /// that needs no handle, so this may wait for it with one.
    fn lock<'f>(&self, folio: &'f Arc<Folio>, number: usize) -> Option<LockedFolio<'f>>
    where
        'a: 'f,
    {
        loop {
            if let Some(held) = LockedFolio::lock(self.ops, folio, number) {
                return Some(held);
            }
            if !folio.is_under_writeback() {
                return None;
            }
            self.ops.address_space().wait_stable(folio);
        }
    }

    /// Maps and writes the first folios of `folios`, as many as one run of blocks can span. Returns
    /// the number of folios that are done.
    fn group(&mut self, folios: &[&Arc<Folio>]) -> usize {
        let mut handle = match self.ops.start_mapping() {
            Ok(handle) => handle,
            Err(error) => {
                self.fail(error);
                folios.iter().for_each(|folio| self.drop_folio(folio));
                return folios.len();
            }
        };
        let size = self.ops.address_space().block_size().bytes_u64();
        let (mut group, mut blocks, mut done) = self.lock_group(folios);
        let mapped = self.map(&mut handle, &mut group, &mut blocks);
        // The first block without space: its folio, and those after it, are tried again.
        let cut = blocks.get(mapped).map(|block| (block.folio, block.offset));
        debug_assert!(
            mapped <= blocks.len(),
            "{mapped} blocks of a run have space"
        );
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
            let end = last.pos.plus(size);
            let end = end.min(Pos::new(self.ops.size()));
            if let Err(error) = self.ops.raise_disk_size(&mut handle, end) {
                self.fail(error);
            }
        }
        self.ops.data_io_begins();
        drop(handle);
        self.write(group, &blocks, true);
        if let Some(error) = self.no_room.take() {
            self.gave_up = !self.ops.should_retry_alloc(&mut self.retries, &error);
        }
        done
    }

    /// Locks the first of `folios`, as many as one run of blocks can span, and lists their dirty
    /// blocks. Returns the number of folios looked at as well.
    fn lock_group<'f>(
        &self,
        folios: &[&'f Arc<Folio>],
    ) -> (Vec<LockedFolio<'f>>, Vec<DirtyBlock>, usize)
    where
        'a: 'f,
    {
        let most_bytes = u64::from(MAX_RUN) * self.ops.address_space().block_size().bytes_u64();
        let (mut group, mut blocks) = (Vec::new(), Vec::new());
        let (mut looked_at, mut bytes) = (0, 0);
        for (number, folio) in folios.iter().enumerate() {
            bytes += folio.len() as u64;
            if number > 0 && bytes > most_bytes {
                break;
            }
            looked_at = number + 1;
            if let Some(mut held) = self.lock(folio, number) {
                held.scan(self.ops, group.len(), &mut blocks);
                group.push(held);
            }
        }
        (group, blocks, looked_at)
    }

    /// Maps the blocks without written space, run by run. Returns the number of blocks, from the
    /// first on, that have their space. Blocks that cannot get any leave the list.
    fn map(
        &mut self,
        handle: &mut O::Handle,
        group: &mut [LockedFolio<'_>],
        blocks: &mut Vec<DirtyBlock>,
    ) -> usize {
        let size = self.ops.address_space().block_size().bytes_u64();
        let mut next = 0;
        let mut extents = 0;
        while let Some(first) = blocks.get(next) {
            if first.has_written_space() {
                next += 1;
                continue;
            }
            if extents > 0 {
                match self.ops.ensure_credits(handle) {
                    Ok(true) => {}
                    Ok(false) => return next,
                    Err(error) => self.fail(error),
                }
            }
            extents += 1;
            let (pos, run) = (first.pos, run_length(&blocks[next..], size));
            let locked = group[first.folio].guard.locked();
            self.ops.buffer_counters().extent_maps.bump();
            let map = match self.ops.allocate(locked, handle, pos, run as u64 * size) {
                Err(error) if !self.gave_up => {
                    self.no_room = Some(error);
                    return next;
                }
                Err(error) => {
                    self.fail(self.ops.lost_data_error(error));
                    None
                }
                Ok(map) => {
                    (self.retries, self.gave_up) = (O::Retries::default(), false);
                    Some(map)
                }
            };
            let mapped = map.map_or(0, |map| match map.device_at(pos) {
                Some(_) => index(map.clamp(pos, run as u64 * size) / size),
                None => 0,
            });
            match map {
                Some(map) if mapped > 0 => {
                    let visits = record_mapping(group, &mut blocks[next..next + mapped], &map);
                    self.ops.buffer_counters().writeback_visits.add(visits);
                    next += mapped;
                }
                _ => self.drop_block(group, blocks.remove(next)),
            }
        }
        next
    }

    /// Drops a dirty block that gets no space: it is clean afterwards, and the loss is recorded.
    fn drop_block(&mut self, group: &mut [LockedFolio<'_>], block: DirtyBlock) {
        let held = &mut group[block.folio];
        let bytes = block.offset..block.offset + held.ring.block();
        held.ring.each_in(bytes.clone(), |_, head| {
            head.clear(BufferState::DIRTY);
            head.unmap();
        });
        let len = bytes.len() as u64;
        held.guard.cancel_dirty(bytes);
        self.ops.address_space().errors().record(WritebackFault::Io);
        self.ops.discard(block.pos, len);
    }

    /// Drops the dirty state of `folio`, of which nothing can be written, and gives its
    /// reservations back.
    fn drop_folio(&mut self, folio: &Arc<Folio>) {
        let Some(mut held) = self.lock(folio, 0) else {
            return;
        };
        let limit = held.limit;
        held.ring.each(|head| {
            head.clear(BufferState::DIRTY);
            head.unmap();
        });
        held.guard.cancel_dirty(0..folio.len());
        held.unlock();
        self.ops.discard(folio.start(), limit as u64);
    }

    fn write(&mut self, group: Vec<LockedFolio<'_>>, blocks: &[DirtyBlock], completes: bool) {
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
