//! Direct writes: run by run of the map.

use std::borrow::Cow;
use std::io::IoSlice;

use extant_disk::inode::InodeFlags;
use extant_iomap::{
    DeviceFault, DeviceRequest, Ioend, Iomap, IomapKind, IomapOps, WritebackControl,
};
use extant_lock_order::{Rank, taking};
use extant_units::{Pos, at_most_usize, index};

use crate::file::direct::clear_cache;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{FileRangeGuard, round_out_to_blocks};
use crate::file::writeback::{writeback_gap_below, writeback_range_only};
use crate::file::{block_span, data_path};
use crate::map;
use crate::state::map::MapState;
use crate::types::error::{Error, Result};

/// Progress of a direct write.
struct Done {
    /// Bytes that are on the device, with all that belongs to them.
    bytes: usize,
    /// The rest has to go through the cache.
    falls_back: bool,
}

/// Writes `bytes` at byte `pos` past the cache; what has to go through it goes on to the device
/// from there. That part stays locked until it is on the device: a second attempt may write it
/// again. Returns the number of bytes written. What lies between the old end of the file and `pos`
/// has been zeroed, and the range is `held`, to infinity if the file grows.
///
/// # Errors
/// If nothing was written: [`Error::NoSpace`]; device, map and journal failures; a failure to write
/// older data of the range.
pub(in crate::file) fn write(
    cx: &FileContext<'_>,
    held: &mut FileRangeGuard<'_>,
    pos: Pos,
    bytes: &[u8],
) -> Result<usize> {
    let direct = write_past_cache(cx, held, pos, bytes)?;
    debug_assert!(direct.bytes <= bytes.len(), "no more than there is");
    if !direct.falls_back {
        return Ok(direct.bytes);
    }
    let done = data_path::write_rest(cx, pos, direct.bytes..bytes.len(), bytes)?;
    let position = |done: usize| pos.plus(done as u64);
    match write_back_cached(cx, position(direct.bytes), position(done)) {
        Err(error) if direct.bytes == 0 => Err(error),
        Err(_) => Ok(direct.bytes),
        Ok(()) => Ok(done),
    }
}

/// Writes `bytes` at `pos`, as far as they need not go through the cache. Lets go of the range run
/// by run.
fn write_past_cache(
    cx: &FileContext<'_>,
    held: &mut FileRangeGuard<'_>,
    pos: Pos,
    bytes: &[u8],
) -> Result<Done> {
    data_path::require_writable_data(cx)?;
    let stats = &cx.fs.stats;
    stats.direct_writes.bump();
    let fall_back = |bytes| {
        stats.direct_fallbacks.bump();
        Ok(Done {
            bytes,
            falls_back: true,
        })
    };
    if cx.needs_cache() {
        return fall_back(0);
    }
    if !cx.flags.contains(InodeFlags::EXTENTS) {
        // The size moves over it once this write has arrived.
        writeback_gap_below(cx, pos)?;
        return fall_back(0);
    }
    let bs = cx.fs.layout.block_size;
    let end = pos.plus(bytes.len() as u64);
    cx.state.direct.announce(&cx.state.address_space);
    let range = round_out_to_blocks(bs, pos.get(), end.get());
    let _noted = taking(Rank::Fill);
    let mut no_fills = cx.state.ranges.lock_fill(range);
    let last = bs.round_up(end).ok_or(Error::FileTooBig)?;
    if !clear_cache::invalidate_range(cx, held, bs.round_down(pos), last)? {
        return fall_back(0);
    }
    writeback_gap_below(cx, pos)?;
    let mut done = 0;
    while done < bytes.len() {
        let at = pos.plus(done as u64);
        match write_run(cx, held, at, &bytes[done..]) {
            Ok(Some(more)) => {
                done += more;
                // Writers and fills of what is on the device can go on.
                debug_assert!(more > 0 && done <= bytes.len(), "{more} bytes to {done}");
                let at = pos.plus(done as u64);
                held.release_with_fills(&mut no_fills, at, bs);
            }
            Ok(None) => return fall_back(done),
            Err(error) if done == 0 => return Err(error),
            // What did arrive counts; the next call meets the error again.
            Err(_) => break,
        }
    }
    Ok(Done {
        bytes: done,
        falls_back: false,
    })
}

/// Writes back `[start, end)`, which went through the cache instead, and drops it there.
///
/// # Errors
/// The failure of the write.
fn write_back_cached(cx: &FileContext<'_>, start: Pos, end: Pos) -> Result<()> {
    writeback_range_only(cx, WritebackControl::integrity(start, end))?;
    cx.state.address_space.drop_clean(start, end);
    Ok(())
}

/// Writes what lies in one run of the map from `at` on; returns how much that was. `None` if it
/// must go through the cache.
fn write_run(
    cx: &FileContext<'_>,
    held: &FileRangeGuard<'_>,
    at: Pos,
    bytes: &[u8],
) -> Result<Option<usize>> {
    let bs = cx.fs.layout.block_size;
    let (lblk, count) = block_span(cx.fs, at, bytes.len() as u64).ok_or(Error::FileTooBig)?;
    let map = match map::lookup(cx.fs, cx.inode, lblk, count)? {
        map if map.state == MapState::Delayed => return Ok(None),
        map if map.state == MapState::Hole => {
            cx.allocate_unwritten_retrying(lblk, map.len.min(count))?
        }
        map => map,
    };
    let mapping = cx.to_iomap(&map)?;
    let len = index(mapping.clamp(at, bytes.len() as u64));
    let bytes = &bytes[..len];
    let start = bs.round_down(at);
    let end = at.plus(len as u64);
    let stop = bs.round_up(end).ok_or(Error::FileTooBig)?;
    let span = stop.since(start);
    let Some(ioend) = Ioend::new(&mapping, start, span).filter(|_| len > 0) else {
        return Ok(None);
    };
    let blocks = pad_to_blocks(cx, &mapping, at, bytes)?;
    let slices: Vec<IoSlice<'_>> = blocks.iter().map(|part| IoSlice::new(part)).collect();
    debug_assert_eq!(
        slices.iter().map(|slice| slice.len() as u64).sum::<u64>(),
        span,
        "whole blocks are written"
    );
    let stats = cx.counters();
    stats.ioends.bump();
    stats.written_bytes.add(span);
    let written = match &*slices {
        [one] => cx.device().write_at(ioend.at, one),
        _ => cx.device().write_vectored_at(ioend.at, &slices),
    };
    written.map_err(|source| {
        stats.failed_ioends.bump();
        DeviceFault {
            request: DeviceRequest::Write,
            at: ioend.at,
            len: span,
            source,
        }
    })?;
    cx.complete_direct_write(held, &ioend, end)?;
    Ok(Some(len))
}

/// Pads `bytes`, which are for `at`, to whole blocks with what the blocks at both ends hold.
fn pad_to_blocks<'a>(
    cx: &FileContext<'_>,
    mapping: &Iomap,
    at: Pos,
    bytes: &'a [u8],
) -> Result<Vec<Cow<'a, [u8]>>> {
    let bs = cx.fs.layout.block_size;
    let (inside, size) = (bs.offset_in_block(at), bs.bytes());
    let mut parts = Vec::with_capacity(3);
    let mut rest = bytes;
    if inside > 0 {
        let (head, more) = bytes.split_at(bytes.len().min(size - inside));
        parts.push(Cow::Owned(read_modify_block(cx, mapping, at, head)?));
        rest = more;
    }
    let (middle, tail) = rest.split_at(rest.len() - rest.len() % size);
    if !middle.is_empty() {
        parts.push(Cow::Borrowed(middle));
    }
    if !tail.is_empty() {
        let at = at.plus((bytes.len() - tail.len()) as u64);
        parts.push(Cow::Owned(read_modify_block(cx, mapping, at, tail)?));
    }
    Ok(parts)
}

/// Reads the block that `part` lies in and changes it: returns `part`, which is for `at`, with what
/// is stored around it, and zeros past the end of the file and where nothing is stored.
fn read_modify_block(
    cx: &FileContext<'_>,
    mapping: &Iomap,
    at: Pos,
    part: &[u8],
) -> Result<Vec<u8>> {
    let bs = cx.fs.layout.block_size;
    let block = bs.round_down(at);
    let mut content = vec![0; bs.bytes()];
    let below = cx.inode.size().saturating_sub(block.get());
    if let (IomapKind::Mapped(_), Some(from), true) =
        (&mapping.kind, mapping.device_at(block), below > 0)
    {
        cx.counters().edge_reads.bump();
        let read = cx.device().read_at(from, &mut content);
        read.map_err(|source| DeviceFault {
            request: DeviceRequest::Read,
            at: from,
            len: bs.bytes_u64(),
            source,
        })?;
        let below = at_most_usize(below).min(content.len());
        content[below..].fill(0);
    }
    let inside = bs.offset_in_block(at);
    content[inside..inside + part.len()].copy_from_slice(part);
    Ok(content)
}
