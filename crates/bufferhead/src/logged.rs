//! Writeback of files whose data goes through the journal (data=journal).
//!
//! Written data was logged when it was written and is not dirty. What is dirty all the same was changed past that: zeroed, or stored
//! through a view. It must not go to its place directly, as a replay would put an older version over it; so it is logged here.

use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_pagecache::{Folio, Tag, WritebackPass};
use extant_units::{DevOff, Pos};

use crate::MAX_RUN;
use crate::ops::BufferWriteback;
use crate::record::BufferState;
use crate::submission::{Dirty, Held, settle};

/// Folios looked up at a time.
const BATCH_FOLIOS: usize = 64;

/// Logs what is dirty in `control`'s range; returns the bytes logged. The caller holds the pass.
///
/// # Errors
/// The first error met. It is recorded in the mapping, and what could not be logged is clean.
pub(crate) fn log_back<O: BufferWriteback + ?Sized>(
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
                    forget(ops, folio);
                    failed.get_or_insert(error);
                }
            }
        }
    }
    failed.map_or(Ok(taken), Err)
}

/// Logs the dirty blocks of a folio, as many under one handle as that can pay for.
fn log_folio<O: BufferWriteback + ?Sized>(ops: &O, folio: &Arc<Folio>) -> Result<u64, O::Error> {
    let size = ops.address_space().block_size().bytes();
    let mut logged = 0;
    loop {
        ops.address_space().wait_stable(folio);
        let Some((mut handle, most)) = ops.start_write(folio.start(), MAX_RUN)? else {
            return Ok(logged);
        };
        let Some(mut held) = Held::lock(ops, folio, 0) else {
            return Ok(logged);
        };
        let mut blocks = Vec::new();
        held.scan(ops, 0, &mut blocks);
        let more = blocks.len() > most as usize;
        blocks.truncate(most as usize);
        let mut group = [held];
        let result = log_blocks(ops, &mut handle, &mut group, &mut blocks);
        let [mut held] = group;
        if result.is_ok() {
            for block in &blocks {
                let bytes = block.offset..block.offset + size;
                held.ring
                    .each_in(bytes.clone(), |_, head| head.clear(BufferState::DIRTY));
                held.guard.cancel_dirty(bytes);
            }
            logged += (blocks.len() * size) as u64;
        }
        let past = held.limit..folio.len();
        if !past.is_empty() {
            held.ring
                .each_in(past.clone(), |_, head| head.clear(BufferState::DIRTY));
            held.guard.cancel_dirty(past);
        }
        held.unlock();
        result?;
        if !more {
            return Ok(logged);
        }
    }
}

/// Gives `blocks` of the folio in `group` their places and logs them.
fn log_blocks<O: BufferWriteback + ?Sized>(
    ops: &O,
    handle: &mut O::Handle,
    group: &mut [Held<'_>; 1],
    blocks: &mut [Dirty],
) -> Result<(), O::Error> {
    let size = ops.address_space().block_size().bytes_u64();
    for number in 0..blocks.len() {
        if !blocks[number].is_placed() {
            let pos = blocks[number].pos;
            let map = ops.allocate(handle, pos, size)?;
            settle(group, &mut blocks[number..=number], &map);
            let end = pos.saturating_add(size);
            if ops.publish(handle, pos, end)? {
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
    ops.log_data(Some(handle), &logged)?;
    match blocks.last() {
        Some(last) => {
            let end = last.pos.saturating_add(size as u64);
            ops.raise_disk_size(handle, end.min(Pos::new(ops.size())))
        }
        None => Ok(()),
    }
}

/// The dirty blocks of `folio` cannot be logged: they are clean, and their promises are given back.
fn forget<O: BufferWriteback + ?Sized>(ops: &O, folio: &Arc<Folio>) {
    let Some(mut held) = Held::lock(ops, folio, 0) else {
        return;
    };
    held.ring.each(|head| head.clear(BufferState::DIRTY));
    held.guard.cancel_dirty(0..folio.len());
    held.unlock();
    ops.discard(folio.start(), folio.len() as u64);
}
