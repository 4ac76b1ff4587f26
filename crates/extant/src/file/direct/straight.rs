//! Requests that can go straight to the device.
//!
//! Most touch nothing that other queues of the same file change: their range is posted, beside the I/O tree (`IoTree::try_post`); whether
//! somebody has the file to himself is asked after that; sizes and the sequence of the map are read, and the place is remembered from
//! an earlier request ([`Places`]). What cannot be posted (it is long, or there is no place) is done
//! with the inode's `lock` held shared and the range in the tree, as every writer has them.
//!
//! # Concurrency
//! Whoever has the inode's `lock` exclusively waits for posted ranges once he has it, and a request looks for him once it has posted: at least
//! one sees the other. The same holds for those who claim the end of the file, and for the cache: who fills it or writes to it holds a range
//! (`LOCKED` or `DIO_LOCKED`), which is looked for among the posted ones after the folio is there.

use std::io;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_extent_io_tree::{Bits, ByteRange, OwnedRangeGuard, Posted};
use extant_iomap::{DeviceFault, IomapOps};
use extant_units::{DevOff, Pos};
use parking_lot::RwLockReadGuard;

use super::places::Places;
use super::queue::What;
use crate::cred::Cred;
use crate::error::{Error, Result};
use crate::file::iomap_ops::FileOps;
use crate::file::range_lock::{is_shut, try_lock_owned, whole_blocks};
use crate::file::read::check_kind;
use crate::file::{blocks_of, data, data_path};
use crate::fs::Fs;
use crate::inode::{self, InodeRef};
use crate::privileges;
use crate::tuning::BufferedPath;

/// A request that needs nothing but the device. Its range is unlocked when this goes.
pub(super) struct Straight {
    /// Where.
    pub(super) at: DevOff,
    len: usize,
    what: What,
    _range: Range,
}

/// A locked range, against writers and fills.
enum Range {
    Posted(#[allow(dead_code, reason = "held")] Posting),
    Recorded(#[allow(dead_code, reason = "held")] OwnedRangeGuard),
}

/// A posted range of a file.
struct Posting {
    file: Arc<InodeRef>,
    posted: Option<Posted>,
}

impl Drop for Posting {
    #[inline]
    fn drop(&mut self) {
        if let (Some(data), Some(posted)) = (self.file.data.get(), self.posted.take()) {
            data.ranges.unpost(posted);
        }
    }
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

/// One request, as far as it matters here.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) what: What,
    pub(super) pos: u64,
    pub(super) len: usize,
    pub(super) cred: &'a Cred,
}

/// What the request `wish` to `file` needs to go straight to the device, if it can; nothing has happened otherwise. Never waits for another
/// writer.
///
/// # Errors
/// The request is refused, as it would be by a call.
pub(super) fn straight(
    fs: &Arc<Fs>,
    file: &Arc<InodeRef>,
    wish: Wish<'_>,
    places: &mut Places,
) -> Result<Option<Straight>> {
    match wish.what {
        What::Read => fs.fault.check_alive()?,
        What::Write => fs.check_writable()?,
    }
    let inode = file.shared();
    check_kind(inode)?;
    let bs = fs.layout.block_size;
    let (pos, len) = (Pos::new(wish.pos), wish.len);
    let end = pos.saturating_add(len as u64);
    if len == 0 || bs.offset_in_block(pos) != 0 || len % bs.bytes() != 0 {
        return Ok(None);
    }
    let data = data(fs, inode);
    if data.way.get().path != BufferedPath::Iomap {
        return Ok(None);
    }
    data.direct.announce(&data.mapping);
    let bytes = whole_blocks(bs, pos.get(), end.get());
    let (range, _shared) = match post(fs, file, bytes) {
        Some(posting) => (Range::Posted(posting), None),
        None => match record(fs, file, bytes) {
            Some((guard, shared)) => (Range::Recorded(guard), Some(shared)),
            None => return Ok(None),
        },
    };
    let ops = FileOps::new(fs, inode);
    let special = InodeFlags::IMMUTABLE | InodeFlags::SYNC;
    let plain = ops.way.path == BufferedPath::Iomap && !ops.way.logs && !inode.is_gone();
    let synchronous =
        wish.what == What::Write && (fs.options.sync() || ops.flags.intersects(special));
    if !plain || synchronous {
        return Ok(None);
    }
    data_path::check_contents(ops.flags)?;
    // Under the range: below both sizes there is nothing to move.
    let inside = end.get() <= inode.disk_size() && end.get() <= inode.size();
    let is_cached = || {
        let cached = data.mapping.next(pos);
        cached.is_some_and(|folio| folio.start() < end)
    };
    if !inside || (!data.mapping.is_empty() && is_cached()) {
        return Ok(None);
    }
    let Some((lblk, count)) = blocks_of(fs, pos, len as u64) else {
        return Err(Error::FileTooBig);
    };
    let Some(at) = places.find(&ops, lblk, count)? else {
        return Ok(None);
    };
    if wish.what == What::Write && !privileges::is_modified(inode) {
        // Attributes do not change meanwhile.
        let Some(_shared) = inode.lock.try_read() else {
            return Ok(None);
        };
        privileges::file_modified(fs, inode, wish.cred)?;
    }
    fs.stats.direct_straight.bump();
    match wish.what {
        What::Read => {
            fs.stats.direct_reads.bump();
            inode::touch_atime(fs, inode);
        }
        What::Write => {
            fs.stats.direct_writes.bump();
            ops.stats().ioends.bump();
            ops.stats().written_bytes.add(len as u64);
        }
    }
    Ok(Some(Straight {
        at,
        len,
        what: wish.what,
        _range: range,
    }))
}

/// Posts `bytes`, if that is all that has to be done to have them.
fn post(fs: &Fs, file: &Arc<InodeRef>, bytes: ByteRange) -> Option<Posting> {
    if !fs.tuning.post_ranges {
        return None;
    }
    let data = file.data.get()?;
    let posted = data.ranges.try_post(bytes)?;
    let posting = Posting {
        file: Arc::clone(file),
        posted: Some(posted),
    };
    (!is_shut(file, data, bytes)).then_some(posting)
}

/// Locks `bytes` in the tree, and keeps those out who want the file to themselves: once the range is locked they wait for that.
fn record<'a>(
    fs: &Fs,
    file: &'a Arc<InodeRef>,
    bytes: ByteRange,
) -> Option<(OwnedRangeGuard, RwLockReadGuard<'a, ()>)> {
    let shared = file.lock.try_read()?;
    let range = try_lock_owned(data(fs, file), bytes, Bits::LOCKED | Bits::DIO_LOCKED)?;
    Some((range, shared))
}
