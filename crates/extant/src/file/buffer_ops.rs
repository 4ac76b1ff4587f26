//! A file block by block: the border between `bufferhead` and the map.
//!
//! A write reserves space for each block of a hole, or, without delayed allocation and when space is low, allocates it at once under
//! a handle, unwritten. Writeback gives what is delayed its place and moves the size on disk in the same handle: the data is not
//! there yet, but the space reads as zero until it is.
//!
//! # Locks
//! Handle → folio → `map_lock`: handles are started by `bufferhead` before it locks folios.

use extant_bufferhead::{BlockMap, BufferOps, BufferWriteback, Place, Stats, Wrote};
use extant_iomap::{Iomap, Kind};
use extant_jbd2::Handle;
use extant_units::{DevOff, Pos};

use super::iomap_ops::FileOps;
use super::{blocks_of, logged};
use crate::alloc;
use crate::credits;
use crate::error::{Error, Place as Where, Result};
use crate::map::{self, How, MapState};
use crate::options::DataMode;

/// Blocks that one handle allocates at most, each of which may be an extent of its own.
const MOST_AT_ONCE: u32 = 64;

impl FileOps<'_> {
    /// Credits for one extent, and for the size that moves with it.
    fn extent_credits(&self) -> u32 {
        credits::allocate(self.fs).saturating_add(credits::INODE_UPDATE)
    }

    /// Whether space that is chosen for a write becomes written as soon as the bytes are in the cache.
    fn converts_at_once(&self) -> bool {
        !self.fs.options.dioread_nolock() || self.way.logs
    }

    /// Blocks of `[start, end)` are written ones under `handle`, and their data is not there yet.
    fn order(&self, handle: &mut Handle, start: Pos, end: Pos) {
        if self.fs.options.data() == DataMode::Ordered && !self.way.logs {
            let bytes = end.distance_from(start).unwrap_or(0);
            self.fs.stats.ordered_bytes.add(bytes);
            self.data.ordered.order(handle, start, end);
        }
    }

    /// A mapping of the first block of `map`.
    fn one_block(&self, map: &map::Mapping) -> Result<BlockMap> {
        let found = self.describe(map)?;
        let (place, new) = match found.kind {
            Kind::Delalloc => (Place::Delayed, map.new),
            Kind::Unwritten(at) => (Place::Unwritten(at), true),
            Kind::Mapped(at) => (Place::Written(at), false),
            Kind::Hole | Kind::Inline(_) => {
                let ino = Where::Inode(self.inode.ino);
                return Err(Error::corrupt(ino, "a block that cannot be written to"));
            }
        };
        Ok(BlockMap { place, new })
    }
}

impl BufferOps for FileOps<'_> {
    type Handle = Handle;

    fn buffer_stats(&self) -> &Stats {
        &self.fs.files.buffers
    }

    fn stop_at_range_end(&self) -> bool {
        self.fs.tuning.stop_at_range_end
    }

    fn start_write(&self, blocks: u32) -> Result<Option<(Handle, u32)>> {
        let logs = self.way.logs;
        if !logs && self.fs.options.delalloc() && !self.is_low_on_space() {
            return Ok(None);
        }
        // Allocated unwritten, and with `dioread_lock` converted once the bytes are in the cache: a write that comes out short leaves
        // no written blocks behind the end of the file.
        let convert = if self.converts_at_once() {
            credits::convert(self.fs)
        } else {
            0
        };
        let each = credits::allocate(self.fs)
            .saturating_add(convert)
            .saturating_add(u32::from(logs));
        // Half of what one handle may have at most, so that others find room beside it.
        let most = (self.fs.journal.max_credits() / 2 / each).clamp(1, MOST_AT_ONCE);
        let blocks = blocks.min(most);
        let credits = each
            .saturating_mul(blocks)
            .saturating_add(credits::INODE_UPDATE);
        Ok(Some((self.fs.start(credits)?, blocks)))
    }

    fn map_block(&self, handle: Option<&mut Handle>, pos: Pos) -> Result<BlockMap> {
        self.fs.fault.check_alive()?;
        let (lblk, _) = blocks_of(self.fs, pos, 1).ok_or(Error::FileTooBig)?;
        let known = map::lookup(self.fs, self.inode, lblk, 1)?;
        if known.state != MapState::Hole {
            return self.one_block(&known);
        }
        let made = match handle {
            None => map::reserve_delayed(self.fs, self.inode, lblk, 1, self.privileged)?,
            Some(h) => {
                let how = How {
                    unwritten: true,
                    privileged: self.privileged,
                    ..How::default()
                };
                map::allocate(self.fs, h, self.inode, lblk, 1, how)?
            }
        };
        self.one_block(&made)
    }

    fn publish(&self, handle: &mut Handle, start: Pos, end: Pos) -> Result<bool> {
        if !self.converts_at_once() {
            return Ok(false);
        }
        let len = end.distance_from(start).unwrap_or(0);
        let (lblk, count) = blocks_of(self.fs, start, len).ok_or(Error::FileTooBig)?;
        map::convert_to_written(self.fs, handle, self.inode, lblk, count)?;
        self.order(handle, start, end);
        Ok(true)
    }

    fn logs_data(&self) -> bool {
        self.way.logs
    }

    fn log_data(&self, handle: Option<&mut Handle>, blocks: &[(DevOff, &[u8])]) -> Result<()> {
        match handle {
            Some(h) => logged::log(self.fs, h, self.inode, blocks),
            None => Ok(()),
        }
    }

    fn end_write(&self, handle: Option<Handle>, wrote: Wrote) -> Result<()> {
        let moves = wrote.grew() && wrote.last_block_written;
        let stores = moves || (wrote.grew() && self.fs.tuning.dirty_inode_on_append);
        if !stores {
            return Ok(());
        }
        let mut h = match handle {
            Some(h) => h,
            None => self.fs.start(credits::INODE_UPDATE)?,
        };
        self.inode.update(self.fs, &mut h, |core| {
            if moves {
                core.disk_size = core.disk_size.max(wrote.end.get().min(self.inode.size()));
            }
        })
    }

    fn release(&self, start: Pos, end: Pos) {
        self.drop_promise(start, end);
    }
}

impl BufferWriteback for FileOps<'_> {
    fn start_mapping(&self) -> Result<Handle> {
        self.fs.start(self.extent_credits())
    }

    fn data_leaves(&self) {
        self.data.flight.begin();
    }

    fn data_arrived(&self) {
        self.data.flight.end();
    }

    fn has_credits(&self, handle: &mut Handle) -> Result<bool> {
        Ok(handle.ensure(self.extent_credits())?)
    }

    fn place(&self, handle: &mut Handle, pos: Pos, len: u64) -> Result<Iomap> {
        let (lblk, count) = blocks_of(self.fs, pos, len).ok_or(Error::FileTooBig)?;
        let mut map = map::lookup(self.fs, self.inode, lblk, count)?;
        if map.state == MapState::Delayed {
            let how = How {
                unwritten: self.fs.options.dioread_nolock() || self.way.logs,
                only_delayed: true,
                ..How::default()
            };
            map = map::allocate(self.fs, handle, self.inode, map.lblk, map.len, how)?;
            if map.new && !how.unwritten {
                let bytes = u64::from(map.len) * self.fs.layout.block_size.bytes_u64();
                self.order(handle, pos, pos.saturating_add(bytes));
            }
        }
        self.describe(&map)
    }

    fn make_room(&self, error: &Error, attempt: u32) -> bool {
        matches!(error, Error::NoSpace) && alloc::commit_frees_promised(self.fs, attempt)
    }

    fn grow_on_disk(&self, handle: &mut Handle, end: Pos) -> Result<()> {
        if self.inode.core.read().disk_size >= end.get() {
            return Ok(());
        }
        self.inode.update(self.fs, handle, |core| {
            core.disk_size = core.disk_size.max(end.get().min(self.inode.size()));
        })
    }
}
