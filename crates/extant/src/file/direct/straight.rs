//! Requests that can go straight to the device.

use std::io;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_extent_io_tree::{Bits, OwnedRangeGuard};
use extant_iomap::{DeviceFault, IomapOps};
use extant_units::{DevOff, Pos};

use super::queue::{Job, What};
use crate::cred::Cred;
use crate::error::{Error, Result};
use crate::file::iomap_ops::FileOps;
use crate::file::range_lock::{try_lock_owned, whole_blocks};
use crate::file::read::check_kind;
use crate::file::{blocks_of, data_path};
use crate::fs::Fs;
use crate::inode;
use crate::map::{self, MapState};
use crate::privileges;
use crate::tuning::BufferedPath;

/// A request that needs nothing but the device.
pub(super) struct Straight {
    /// Where.
    pub(super) at: DevOff,
    len: usize,
    what: What,
    _range: OwnedRangeGuard,
}

impl Straight {
    /// The device has answered. Unlocks the range.
    pub(super) fn end(self, fs: &Fs, answer: io::Result<()>) -> Result<usize> {
        answer.map_err(|source| {
            let what = match self.what {
                What::Read => "read",
                What::Write => {
                    fs.files.stats.failed_ioends.bump();
                    "write"
                }
            };
            DeviceFault {
                what,
                at: self.at,
                len: self.len as u64,
                source,
            }
        })?;
        Ok(self.len)
    }
}

/// What `job` needs to go straight to the device, if it can; nothing has happened otherwise. Never waits for another writer.
///
/// # Errors
/// The request is refused, as it would be by a call.
pub(super) fn straight(fs: &Arc<Fs>, job: &Job, cred: &Cred) -> Result<Option<Straight>> {
    match job.what {
        What::Read => fs.fault.check_alive()?,
        What::Write => fs.check_writable()?,
    }
    let inode = job.inode.shared();
    check_kind(inode)?;
    let bs = fs.layout.block_size;
    let (pos, len) = (Pos::new(job.pos), job.buf.len());
    let end = pos.saturating_add(len as u64);
    if len == 0 || bs.offset_in_block(pos) != 0 || len % bs.bytes() != 0 {
        return Ok(None);
    }
    // Whoever holds it alone waits for the range, once it is locked; until then this keeps them out.
    let Some(_shared) = inode.lock.try_read().filter(|_| !inode.is_gone()) else {
        return Ok(None);
    };
    let ops = FileOps::new(fs, inode);
    let special = InodeFlags::IMMUTABLE | InodeFlags::SYNC;
    let plain = ops.way.path == BufferedPath::Iomap && !ops.way.logs;
    let synchronous =
        job.what == What::Write && (fs.options.sync() || ops.flags.intersects(special));
    if !plain || synchronous {
        return Ok(None);
    }
    data_path::check_contents(ops.flags)?;
    ops.data.direct.announce(&ops.data.mapping);
    let range = whole_blocks(bs, pos.get(), end.get());
    let bits = Bits::LOCKED | Bits::DIO_LOCKED;
    let Some(range) = try_lock_owned(ops.data, range, bits) else {
        return Ok(None);
    };
    // Under the range: below both sizes there is nothing to move.
    let inside = end.get() <= inode.core.read().disk_size && end.get() <= inode.size();
    let cached = ops.data.mapping.next(pos);
    if !inside || cached.is_some_and(|folio| folio.start() < end) {
        return Ok(None);
    }
    let Some((lblk, count)) = blocks_of(fs, pos, len as u64) else {
        return Err(Error::FileTooBig);
    };
    let map = map::lookup(fs, inode, lblk, count)?;
    let MapState::Written(_) = map.state else {
        return Ok(None);
    };
    let place = ops.describe(&map)?;
    let Some(at) = place.device_at(pos).filter(|_| map.len >= count) else {
        return Ok(None);
    };
    fs.stats.direct_straight.bump();
    match job.what {
        What::Read => {
            fs.stats.direct_reads.bump();
            inode::touch_atime(fs, inode);
        }
        What::Write => {
            privileges::file_modified(fs, inode, cred)?;
            fs.stats.direct_writes.bump();
            ops.stats().ioends.bump();
            ops.stats().written_bytes.add(len as u64);
        }
    }
    Ok(Some(Straight {
        at,
        len,
        what: job.what,
        _range: range,
    }))
}
