//! Writeback of files whose data goes through the journal (data=journal).
//!
//! Written data was logged when it was written, and is not dirty. Dirty data was changed in another
//! way: zeroed, or stored through a view. It must not be written in place directly, as a replay
//! would put an older version over it; so it is logged here.

use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_pagecache::{Folio, Tag, WritebackPass};
use extant_units::{DevOff, Pos};

use crate::ops::BufferWriteback;
use crate::record::BufferState;
use crate::ring::MAX_RUN;
use crate::submission::{DirtyBlock, LockedFolio, record_mapping};

/// Folios looked up at a time.
const BATCH_FOLIOS: usize = 64;

/// Logs the dirty data in `control`'s range; returns the bytes logged.
///
/// # Errors
/// The first error met. It is recorded in the address space, and data that could not be logged is
/// clean.
pub(crate) fn log_dirty<O: BufferWriteback + ?Sized>(
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
    while taken < control.max_bytes && at < control.end {
        let folios = pages.tagged(at, control.end, tag, BATCH_FOLIOS);
        let Some(last) = folios.last() else { break };
        at = last.end();
        for folio in &folios {
            match log_folio(ops, folio) {
                Ok(bytes) => taken += bytes,
                Err(error) => {
                    pages.errors().record(O::fault_of(&error));
                    drop_dirty(ops, folio);
                    failed.get_or_insert(error);
                }
            }
        }
    }
    failed.map_or(Ok(taken), Err)
}

/// Logs the dirty blocks of a folio, as many under one handle as it has credits for.
fn log_folio<O: BufferWriteback + ?Sized>(ops: &O, folio: &Arc<Folio>) -> Result<u64, O::Error> {
    let size = ops.address_space().block_size().bytes();
    let mut logged = 0;
    loop {
        ops.address_space().wait_stable(folio);
        let Some((mut handle, most)) = ops.start_write(folio.start(), MAX_RUN)? else {
            return Ok(logged);
        };
        let Some(mut locked) = LockedFolio::lock(ops, folio, 0) else {
            return Ok(logged);
        };
        let mut blocks = Vec::new();
        locked.scan(ops, 0, &mut blocks);
        let more = blocks.len() > most as usize;
        blocks.truncate(most as usize);
        let mut group = [locked];
        let result = log_blocks(ops, &mut handle, &mut group, &mut blocks);
        let [mut locked] = group;
        if result.is_ok() {
            for block in &blocks {
                let bytes = block.offset..block.offset + size;
                locked
                    .ring
                    .each_in(bytes.clone(), |_, head| head.clear(BufferState::DIRTY));
                locked.guard.cancel_dirty(bytes);
            }
            logged += (blocks.len() * size) as u64;
        }
        let past = locked.limit..folio.len();
        if !past.is_empty() {
            locked
                .ring
                .each_in(past.clone(), |_, head| head.clear(BufferState::DIRTY));
            locked.guard.cancel_dirty(past);
        }
        locked.unlock();
        result?;
        if !more {
            return Ok(logged);
        }
    }
}

/// Allocates space for `blocks` of the folio in `group` and logs them.
fn log_blocks<O: BufferWriteback + ?Sized>(
    ops: &O,
    handle: &mut O::Handle,
    group: &mut [LockedFolio<'_>; 1],
    blocks: &mut [DirtyBlock],
) -> Result<(), O::Error> {
    let size = ops.address_space().block_size().bytes_u64();
    for number in 0..blocks.len() {
        if !blocks[number].has_written_space() {
            let pos = blocks[number].pos;
            let map = ops.allocate(group[0].guard.locked(), handle, pos, size)?;
            record_mapping(group, &mut blocks[number..=number], &map);
            let end = pos.plus(size);
            if ops.convert_after_copy(group[0].guard.locked(), handle, pos, end)? {
                let bytes = blocks[number].offset..blocks[number].offset + 1;
                let ring = &mut group[0].ring;
                ring.each_in(bytes, |_, head| head.clear(BufferState::UNWRITTEN));
            }
        }
    }
    let bytes = group[0].guard.bytes();
    let size = ops.address_space().block_size().bytes();
    let logged: Vec<(DevOff, &[u8])> = blocks
        .iter()
        .filter_map(|block| Some((block.at?, &bytes[block.offset..block.offset + size])))
        .collect();
    debug_assert_eq!(logged.len(), blocks.len(), "every block has its space");
    ops.journal_data(group[0].guard.locked(), Some(handle), &logged)?;
    match blocks.last() {
        Some(last) => {
            let end = last.pos.plus(size as u64);
            ops.raise_disk_size(handle, end.min(Pos::new(ops.size())))
        }
        None => Ok(()),
    }
}

/// Drops the dirty state of `folio`, which cannot be logged, and gives its reservations back.
fn drop_dirty<O: BufferWriteback + ?Sized>(ops: &O, folio: &Arc<Folio>) {
    let Some(mut locked) = LockedFolio::lock(ops, folio, 0) else {
        return;
    };
    locked.ring.each(|head| head.clear(BufferState::DIRTY));
    locked.guard.cancel_dirty(0..folio.len());
    locked.unlock();
    ops.discard(folio.start(), folio.len() as u64);
}
