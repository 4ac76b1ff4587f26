//! Write-through: large writes of a caller that caches by itself go straight to the device.
//!
//! The kernel above a mount keeps pages and hands them over when it writes them back. A second copy
//! here would double memory and copies. So whole blocks of such a write take the steps of writeback
//! at once, without folios: allocation, unwritten; the data; the conversion, and with it the size
//! on disk. A crash in between shows what it shows for writeback: zeros, or the old size. Small
//! parts, parts of blocks, and ranges with dirty data in the cache go through the cache.
//!
//! # Invariants
//! * No block of a part is dirty from before its first byte is written to its end, and none is
//!   cached at its end: a later read finds what was written.
//! * The steps of a range come in the order of writeback's (J18, J20), and all are done on return.
//!   What only the cache has below the range goes to the device first: the size on disk passes it.
//!   The size in memory moves with the last step: a part that fails makes no file longer.
//! * While the size moves, no folio holds a block of the part: a folio that was filled before has
//!   zeros behind the old end.
//!
//! # Locks
//! The caller holds the range, so no other thread dirties a block of it; a part that has ended is
//! released. Reads may add clean folios while the device is written. The invalidate lock waits for
//! those reads, and is held from before their folios go until the map and the size have changed.

use extant_iomap::{DeviceFault, DeviceRequest, Ioend, IomapOps};
use extant_units::{Pos, index};

use crate::config::BufferedPath;
use crate::file::block_span;
use crate::file::data_path;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::FileRangeGuard;
use crate::file::writeback;
use crate::map;
use crate::state::map::MapState;
use crate::types::error::{Error, Result};

/// The fewest bytes that are worth an allocation, a write and a conversion of their own.
const MIN_WRITE_THROUGH_BYTES: u64 = 128 << 10;

/// Writes `bytes` at byte `pos`, which is not behind the end of the file: their whole blocks to the
/// device as far as possible, the rest through the cache. Returns the number of bytes written.
///
/// # Errors
/// [`Error::NoSpace`], device, map and journal failures, if nothing was written.
pub(in crate::file) fn write(
    cx: &FileContext<'_>,
    held: &mut FileRangeGuard<'_>,
    pos: Pos,
    bytes: &[u8],
) -> Result<usize> {
    let done = write_whole_blocks(cx, held, pos, bytes)?;
    data_path::write_unlocking_front(cx, held, pos, done..bytes.len(), bytes)
}

/// Writes the whole blocks of `bytes`, as far as possible. Returns the number of bytes written.
fn write_whole_blocks(
    cx: &FileContext<'_>,
    held: &mut FileRangeGuard<'_>,
    pos: Pos,
    bytes: &[u8],
) -> Result<usize> {
    let bs = cx.fs.layout.block_size;
    let len = bs.round_down(Pos::new(bytes.len() as u64)).get();
    let can_write_through = cx.data_path.kind == BufferedPath::Iomap && !cx.data_path.journalled;
    if !can_write_through || len < MIN_WRITE_THROUGH_BYTES || bs.offset_in_block(pos) != 0 {
        return Ok(0);
    }
    let end = pos.plus(len);
    let mapping = cx.address_space();
    mapping.drop_clean(pos, end);
    if mapping.next(pos).is_some_and(|folio| folio.start() < end) {
        return Ok(0);
    }
    writeback::writeback_gap_below(cx, pos)?;
    let mut at = pos;
    let mut result = Ok(());
    while at < end && result.is_ok() {
        let part = write_run_through(cx, at, &bytes[index(at.since(pos))..], end);
        let stop = match &part {
            Ok(Some(ioend)) => ioend.end(),
            _ => end,
        };
        debug_assert!(at < stop && stop <= end, "{at} {stop} {end}");
        // Once this lock is had, reads that found the old map or the old end have made their
        // folios; once it is free, reads find the new ones. Folios that reach beyond the part may
        // be dirty there, so only their piece goes.
        let no_fills = mapping.invalidate_lock().write();
        mapping.drop_range(&no_fills, at, stop);
        let arrived = part.and_then(|part| match part {
            Some(ioend) => cx.complete_direct_write(held, &ioend, stop).map(|()| stop),
            None => Ok(at),
        });
        drop(no_fills);
        let written = arrived.unwrap_or_else(|error| {
            result = Err(error);
            at
        });
        held.release_before(written, bs);
        if written == at {
            break;
        }
        at = written;
    }
    let done = index(at.since(pos));
    if done > 0 {
        Ok(done)
    } else {
        result.map(|()| 0)
    }
}

/// Writes the part from `at` on that lies in one run of blocks, allocated if need be. Returns the
/// part, which is on the device and not yet in the map, or `None` if it must go through the cache.
fn write_run_through(
    cx: &FileContext<'_>,
    at: Pos,
    bytes: &[u8],
    end: Pos,
) -> Result<Option<Ioend>> {
    let left = end.since(at);
    let (lblk, count) = block_span(cx.fs, at, left).ok_or(Error::FileTooBig)?;
    let map = match map::lookup(cx.fs, cx.inode, lblk, count)? {
        map if map.state == MapState::Delayed => return Ok(None),
        map if map.state == MapState::Hole => {
            cx.allocate_unwritten_retrying(lblk, map.len.min(count))?
        }
        map => map,
    };
    let mapping = cx.to_iomap(&map)?;
    let len = mapping.clamp(at, left);
    let bytes = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
    let (Some(ioend), Some(bytes)) = (Ioend::new(&mapping, at, len), bytes) else {
        return Ok(None);
    };
    let stats = cx.counters();
    stats.uncached_writes.bump();
    stats.ioends.bump();
    stats.written_bytes.add(len);
    let written = cx.device().write_at(ioend.at, bytes);
    written.map_err(|source| {
        stats.failed_ioends.bump();
        DeviceFault {
            request: DeviceRequest::Write,
            at: ioend.at,
            len,
            source,
        }
    })?;
    Ok(Some(ioend))
}
