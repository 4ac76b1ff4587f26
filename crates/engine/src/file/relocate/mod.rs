//! Relocation: copies a part of a file to new blocks, then exchanges blocks with the file that has
//! them.
//!
//! The steps of a piece, each of which may fail or be cut short without harm:
//!
//! 1. Write what is dirty in the piece, so that the device has all of it. Writers are kept out.
//! 2. Copy the data to the other file's blocks, from device to device. The map of
//!    that file is the only one with those, and no other thread reads by it.
//! 3. Keep out fills of the cache and writeback. If a mapping was stored to meanwhile, begin again.
//! 4. Change both maps under one handle ([`map::exchange`]). The data was written before the handle
//!    began, so the flush before the commit record makes it durable: after a crash no file has the
//!    new blocks without the data.
//!
//! Cached pages of the iomap path stay: they hold the same data, and know of space, not of blocks.
//! A mapping made earlier has an old sequence. Records of the buffer-head path know blocks, so
//! there the piece leaves the cache first.
//!
//! # Locks
//! The callers hold the `lock` of both files exclusively, with no range of either locked. Taken
//! here: the invalidate lock of the file, then, where other threads can reach it, that of its
//! counterpart while the first is not held.

pub(in crate::file) mod defrag;
pub(in crate::file) mod move_extents;

use std::sync::Arc;

use extant_iomap::{DeviceFault, DeviceRequest, WritebackControl};
use extant_pagecache::Tag;
use extant_units::{Lblk, Pblk, exact_u32, index};

use crate::config::BufferedPath;
use crate::file::FileContext;
use crate::file::writeback::writeback_range;
use crate::map::{self, ClusterPart};
use crate::state::inode::Inode;
use crate::state::map::{BlockMapping, MapState};
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::volume::credits;

/// The largest piece, in bytes.
pub(super) const MAX_PIECE_BYTES: u64 = 8 << 20;
/// Bytes that are copied at a time.
const COPY_CHUNK_BYTES: usize = 1 << 20;
/// How often a piece begins again because a mapping was stored to.
const MAX_ATTEMPTS: u32 = 8;

/// The outcome of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// Number of blocks that moved.
    Moved(u32),
    /// Number of blocks that are holes in one of the files, or in clusters that cannot move.
    Skipped(u32),
}

/// One end of an exchange.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) inode: &'a Arc<Inode>,
    pub(super) at: Lblk,
}

/// Exchanges the blocks from `from` on with those from `other` on: one piece of at most `len`
/// blocks. `other` has nothing cached there. Afterwards both show what the blocks of `from` held.
///
/// # Errors
/// [`Error::Busy`]; [`Error::NoSpace`] for a node of a map; device, map and journal failures. The
/// piece is then in its old blocks, or a part of it has moved.
pub(super) fn exchange(fs: &Arc<Fs>, from: End<'_>, other: End<'_>, len: u32) -> Result<Piece> {
    let cx = FileContext::new(fs, from.inode);
    let bs = fs.layout.block_size;
    let most = exact_u32(MAX_PIECE_BYTES >> bs.log2()).max(1);
    for _ in 0..MAX_ATTEMPTS {
        let start = bs.pos(from.at);
        let end = start.plus(u64::from(len.min(most)) << bs.log2());
        writeback_range(fs, from.inode, WritebackControl::integrity(start, end))?;
        if cx.state.ordered.is_waited_for() {
            fs.journal.sync_all()?;
        }
        let ours = map::lookup(fs, from.inode, from.at, len.min(most))?;
        if ours.state == MapState::Delayed {
            continue;
        }
        let theirs = map::lookup(fs, other.inode, other.at, ours.len)?;
        let count = ours.len.min(theirs.len);
        let (Some(old), Some(new)) = (first_block(&ours), first_block(&theirs)) else {
            let hole = if first_block(&ours).is_none() {
                ours
            } else {
                theirs
            };
            return Ok(Piece::Skipped(hole.len));
        };
        let both = [(from.inode, from.at), (other.inode, other.at)];
        let count = match map::part_in_clusters(fs, both, count)? {
            ClusterPart::Whole(count) => count,
            ClusterPart::Torn(count) => return Ok(Piece::Skipped(count)),
        };
        if let MapState::Written(_) = ours.state {
            copy(fs, old, new, count)?;
        }
        let end = start.plus(u64::from(count) << bs.log2());
        let mapping = &cx.state.address_space;
        let _nothing_fills = mapping.invalidate_lock().write();
        let _nothing_writes = mapping.writeback_pass();
        if cx.data_path.kind == BufferedPath::BufferHead {
            mapping.drop_clean(start, end);
        }
        let dirty = !mapping.tagged(start, end, Tag::Dirty, 1).is_empty();
        let cached = cx.data_path.kind == BufferedPath::BufferHead
            && mapping.next(start).is_some_and(|folio| folio.start() < end);
        let now = map::lookup(fs, from.inode, from.at, count)?;
        // Blocks beside these may have come into their clusters meanwhile.
        let torn = map::part_in_clusters(fs, both, count)? != ClusterPart::Whole(count);
        if dirty || cached || torn || cx.state.ordered.is_waited_for() || now.state != ours.state {
            continue;
        }
        let mut moved = 0;
        // Each step takes what lies in one extent on both sides.
        while moved < count {
            let step = credits::exchange(fs);
            let mut h = fs.start(step)?;
            while moved < count && h.ensure(step)? {
                let at = |lblk: Lblk| lblk.plus(moved);
                let (a, b) = ((&**from.inode, at(from.at)), (&**other.inode, at(other.at)));
                moved += map::exchange(fs, &mut h, a, b, count - moved)?;
            }
        }
        debug_assert_eq!(moved, count, "each step moves what is left, or less");
        fs.stats.moved_blocks.add(u64::from(count));
        return Ok(Piece::Moved(count));
    }
    Err(Error::Busy)
}

/// The first block of `map` on the device, if it is allocated.
fn first_block(map: &BlockMapping) -> Option<Pblk> {
    match map.state {
        MapState::Written(at) | MapState::Unwritten(at) => Some(at),
        MapState::Hole | MapState::Delayed => None,
    }
}

/// Copies `count` blocks. They are durable with the next commit; without a journal, on return.
fn copy(fs: &Fs, from: Pblk, to: Pblk, count: u32) -> Result<()> {
    let bs = fs.layout.block_size;
    let at = |block: Pblk| bs.dev_off(block).ok_or(Error::Invalid);
    let (from, to) = (at(from)?, at(to)?);
    debug_assert!(count > 0, "a copy of no block");
    let bytes = u64::from(count) << bs.log2();
    let at_once = |left: u64| index(left.min(COPY_CHUNK_BYTES as u64));
    let mut buf = vec![0; at_once(bytes)];
    let mut done = 0;
    while done < bytes {
        let part = &mut buf[..at_once(bytes - done)];
        let len = part.len() as u64;
        let fault = |request, at| {
            move |source| DeviceFault {
                request,
                at,
                len,
                source,
            }
        };
        let (source, target) = (from.plus(done), to.plus(done));
        let read = fs.dev.read_at(source, part);
        read.map_err(fault(DeviceRequest::Read, source))?;
        let written = fs.dev.write_at(target, part);
        written.map_err(fault(DeviceRequest::Write, target))?;
        done += len;
    }
    if !fs.journal.has_log() {
        fs.dev.flush()?;
    }
    Ok(())
}
