//! Writeback: allocates blocks for dirty data, and converts them once the data has arrived.
//!
//! A delayed range is allocated under one handle, unwritten and in as long a run as can be had. The
//! data goes to the device. Under another handle the blocks are converted to written, and only then
//! does the size on disk move. After a crash at any moment the file shows the data, or zeros, or
//! the old size: never what the blocks held before.
//!
//! # Locks
//! `iomap` calls this with folios under writeback. It starts handles, takes `map_lock` through
//! `map` and `core` through [`Inode::update`]. It takes neither the inode's `lock` nor the
//! invalidate lock: their holders may be waiting for writeback.

pub(in crate::file) mod joint_writeback;

use extant_sync::atomic::Ordering;
use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_iomap::{Ioend, IoendKind, Iomap, WritebackControl, WritebackOps};
use extant_pagecache::WritebackFault;
use extant_units::Pos;

use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::FileRangeGuard;
use crate::file::{block_span, data_path, error_reporting};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState};
use crate::types::error::{Error, Result};
use crate::volume::{Fs, credits};
use crate::{alloc, map};

/// The longest run allocated at once: the longest unwritten extent.
const MAX_RUN: u32 = extant_disk::extent::MAX_UNWRITTEN;

impl FileContext<'_> {
    /// Allocates the delayed blocks at `known`, or returns what another thread has made of them.
    fn allocate_delayed(&self, known: &BlockMapping) -> Result<BlockMapping> {
        let how = AllocateMode {
            unwritten: !self.fs.tuning.failpoint.is(Failpoint::ConversionBeforeData),
            only_delayed: true,
            ..AllocateMode::default()
        };
        alloc::retry_reserved(self.fs, || {
            let mut h = self.fs.start(credits::allocate(self.fs))?;
            map::allocate(self.fs, &mut h, self.inode, known.lblk, known.len, how)
        })
    }

    /// Completes a direct write: the data of `ioend` is on the device and ends with byte `end` of
    /// the file. As [`WritebackOps::complete`]; the size in memory grows to `end` too. The range is
    /// locked by `held`, so no other thread changes the size.
    pub(in crate::file) fn complete_direct_write(
        &self,
        held: &FileRangeGuard<'_>,
        ioend: &Ioend,
        end: Pos,
    ) -> Result<()> {
        debug_assert!(held.is_of(self.inode), "a range of another file");
        let end = end.get();
        let raises = self.inode.size() < end;
        let grows = raises || self.inode.core.read().disk_size < end;
        self.convert_and_raise(ioend, end, grows, raises)
    }

    /// As [`WritebackOps::complete`], for a writer that is still waiting and can be told that there
    /// is no space.
    pub(in crate::file) fn complete_ioend(&self, ioend: &Ioend) -> Result<()> {
        let end = ioend.end().get();
        let disk_size = self.inode.core.read().disk_size;
        let grows = disk_size < end.min(self.inode.size());
        if grows
            && ioend
                .failed_before
                .is_some_and(|lost| lost.get() > disk_size)
        {
            // On the device the rest of the old last block may hold anything, so the file must not
            // grow over it. This data is lost together with that block; fsync reports it.
            return Ok(());
        }
        self.convert_and_raise(ioend, end, grows, false)
    }

    /// Converts the space of `ioend` to written, then moves the sizes to `end`: the one on disk if
    /// `grows`, the one in memory if `raises`.
    fn convert_and_raise(&self, ioend: &Ioend, end: u64, grows: bool, raises: bool) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        if ioend.kind == IoendKind::Mapped && !grows {
            return Ok(());
        }
        debug_assert!(ioend.len > 0, "{ioend:?}");
        let (lblk, count) = block_span(fs, ioend.pos, ioend.len).ok_or(Error::FileTooBig)?;
        // The tree may need a block, and the last free ones may be waiting for a commit.
        let mut h = alloc::retry_reserved(fs, || {
            let mut h = fs.start(credits::sum([credits::convert(fs), credits::INODE_UPDATE]))?;
            if ioend.kind == IoendKind::Unwritten {
                map::convert_to_written(fs, &mut h, inode, lblk, count)?;
            }
            Ok(h)
        })?;
        if grows {
            if !h.ensure(credits::INODE_UPDATE)? {
                // The conversion stands. A crash here leaves written blocks behind the old size.
                h.restart(credits::INODE_UPDATE)?;
            }
            // The size in memory is read under `core`: a truncation changes both sizes under it.
            inode.update(fs, &mut h, |core| {
                if raises {
                    inode.size.fetch_max(end, Ordering::AcqRel);
                }
                core.disk_size = core.disk_size.max(end.min(inode.size()));
                debug_assert!(core.disk_size <= inode.size(), "J1");
            })?;
        }
        Ok(())
    }

    /// Failpoints `size_before_data` and `size_at_submission`: moves the size on disk to `end`
    /// before the data is there.
    pub(in crate::file) fn move_size_early(&self, end: Pos) -> Result<()> {
        let mut h = self.fs.start(credits::INODE_UPDATE)?;
        self.inode.update(self.fs, &mut h, |core| {
            core.disk_size = core.disk_size.max(end.get().min(self.inode.size()));
        })
    }
}

impl WritebackOps for FileContext<'_> {
    fn map_blocks(&self, pos: Pos, len: u64) -> Result<Iomap> {
        let (lblk, count) = block_span(self.fs, pos, len).ok_or(Error::FileTooBig)?;
        // Delayed blocks are dirty, so all of them can be allocated now.
        let mut map = map::lookup(self.fs, self.inode, lblk, count.max(MAX_RUN))?;
        if map.state == MapState::Delayed {
            map.len = map.len.min(MAX_RUN);
            map = self.allocate_delayed(&map)?;
        }
        if self.fs.tuning.failpoint.is(Failpoint::SizeAtSubmission) {
            self.move_size_early(pos.plus(len))?;
        }
        self.to_iomap(&map)
    }

    fn complete(&self, ioend: &Ioend) -> Result<()> {
        self.complete_ioend(ioend)
            .map_err(|error| self.lost_data_error(error))
    }

    fn discard(&self, pos: Pos, len: u64) {
        tracing::warn!(
            ino = self.inode.ino.get(),
            pos = pos.get(),
            len,
            "delayed data got no blocks and is lost"
        );
        self.drop_reservations(pos, pos.plus(len));
    }

    /// The write was acknowledged when its data was cached, so lack of space is no answer here.
    fn lost_data_error(&self, error: Error) -> Error {
        match error {
            error if error.is_lack_of_room() => {
                let ino = self.inode.ino.get();
                Error::Io(format!("no space for delayed data of inode {ino}").into())
            }
            other => other,
        }
    }

    fn fault_of(error: &Error) -> WritebackFault {
        error_reporting::fault_of(error)
    }
}

/// Writes back the part of a file's dirty data that `control` selects, and first what is stale
/// below it ([`writeback_stale_gap_below`]). Waits for both.
pub(in crate::file) fn writeback_range(
    fs: &Fs,
    inode: &Arc<Inode>,
    control: WritebackControl,
) -> Result<u64> {
    let cx = FileContext::new(fs, inode);
    writeback_stale_gap_below(&cx, control.start)?;
    writeback_range_only(&cx, control)
}

/// Writes back what is dirty between the size on disk and byte `pos` wherever written blocks lie
/// under it.
/// The size on disk is about to pass those blocks, and the device may hold anything there, such as
/// the data of a write whose size a crash has lost.
pub(in crate::file) fn writeback_stale_gap_below(cx: &FileContext<'_>, pos: Pos) -> Result<()> {
    let bs = cx.fs.layout.block_size;
    let mut at = bs.round_down(Pos::new(cx.inode.core.read().disk_size));
    while at < pos {
        let rest = pos.since(at);
        let (lblk, count) = block_span(cx.fs, at, rest).ok_or(Error::FileTooBig)?;
        let map = map::lookup(cx.fs, cx.inode, lblk, count)?;
        let end = at.plus(u64::from(map.len) * bs.bytes_u64());
        debug_assert!(at < end, "a lookup shows a block at least");
        if let MapState::Written(_) = map.state {
            writeback_range_only(cx, WritebackControl::integrity(at, end.min(pos)))?;
        }
        at = end;
    }
    Ok(())
}

/// Before a write at `pos` that moves the size on disk by itself: writes back what only the cache
/// has below, for that size is going to pass it (J20).
pub(in crate::file) fn writeback_gap_below(cx: &FileContext<'_>, pos: Pos) -> Result<()> {
    if cx.inode.core.read().disk_size < pos.get() {
        writeback_gap_and_range(cx, pos, pos)?;
    }
    Ok(())
}

/// Writes back what is dirty in `[start, end)`, and with it what lies between the size on disk and
/// `start`: the size is going to pass it.
pub(in crate::file) fn writeback_gap_and_range(
    cx: &FileContext<'_>,
    start: Pos,
    end: Pos,
) -> Result<()> {
    let disk_size = Pos::new(cx.inode.core.read().disk_size);
    let from = cx.fs.layout.block_size.round_down(disk_size).min(start);
    writeback_range_only(cx, WritebackControl::integrity(from, end)).map(drop)
}

/// Writes back the part that `control` selects and nothing else. A failure is recorded for fsync.
pub(in crate::file) fn writeback_range_only(
    cx: &FileContext<'_>,
    control: WritebackControl,
) -> Result<u64> {
    let result = data_path::writeback_on_path(cx, control);
    result.inspect_err(|error| error_reporting::record_writeback_error(cx.fs, error))
}
