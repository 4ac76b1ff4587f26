//! A file block by block: the border between `bufferhead` and the map.
//!
//! A write reserves space for each block of a hole. Without delayed allocation, when space is low,
//! and where a block map cannot name all blocks of the volume, it allocates the block at once under
//! a handle, unwritten. Writeback allocates what is delayed and moves the size on disk in the same
//! handle: the data is not there yet, but the space reads as zeros until it is.
//!
//! A block map (ext2, ext3) knows no unwritten blocks. There new space is written space at once, so
//! the commit waits for its data from the allocation on (data=ordered). A write that fails frees
//! what it allocated behind the end of the file, as a truncation would. Space is reserved only
//! where the map has room for the block's number.
//!
//! Journalled data (`data=journal`, files with the flag `JOURNAL_DATA`) is treated as metadata is:
//! changed under a handle, a credit for each block, copied into the log, written home by a
//! checkpoint, revoked when it is freed. Until a checkpoint, a block's newest version is in the
//! journal's cache, so such files are read through a `LoggedDevice`.
//!
//! # Locks
//! Handle, then folio, then `map_lock`: `bufferhead` starts handles before it locks folios.

use extant_bufferhead::{
    BlockLocation, BlockMap, BufferCounters, BufferOps, BufferWriteback, FolioWrite,
};
use extant_disk::damage::MapDamage;
use extant_disk::inode::InodeFlags;
use extant_iomap::{Iomap, IomapKind};
use extant_jbd2::Handle;
use extant_pagecache::FolioLocked;
use extant_units::{DevOff, Lblk, PAGE_SIZE, Pblk, Pos, exact_u32};

use crate::config::DataMode;
use crate::file::block_span;
use crate::file::mapping::iomap_ops::FileContext;
use crate::state::map::{AllocateMode, BlockMapping, MapState, WriteSpan};
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::credits;
use crate::{alloc, map, orphan};

/// The most blocks that one handle allocates; each of them may be an extent of its own.
const MAX_BLOCKS_PER_HANDLE: u32 = 64;

impl FileContext<'_> {
    fn has_extents(&self) -> bool {
        self.flags.contains(InodeFlags::EXTENTS)
    }

    /// Returns whether free blocks may have numbers that the file's map has no room for: then free
    /// space is no promise of a block.
    fn has_space_out_of_reach(&self) -> bool {
        !self.has_extents() && self.fs.layout.end().get() > 1 << 32
    }

    /// Reserves the indirect blocks that a block map needs for the `blocks` blocks at `pos`.
    fn reserve_indirect_blocks(&self, pos: Pos, blocks: u32) -> Result<()> {
        let Some((lblk, _)) = block_span(self.fs, pos, 1).filter(|_| !self.has_extents()) else {
            return Ok(());
        };
        alloc::retry(self.fs, || {
            map::reserve_indirect_blocks(self.fs, self.inode, lblk, blocks, self.privileged)
        })
    }

    /// Frees the blocks of a block map behind the end of the file, under the handle that allocated
    /// them: no commit shows them as part of the file. If the handle must be restarted in between,
    /// the inode is an orphan.
    fn truncate_failed_write(&self, h: &mut Handle) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        let last = credits::ORPHAN + credits::INODE_UPDATE;
        let end = fs.layout.block_size.blocks_for(inode.size()).get();
        let Ok(first) = u32::try_from(end).map(Lblk::new) else {
            return Ok(());
        };
        orphan::add(fs, h, inode)?;
        map::remove(fs, h, inode, first, 1 << 32)?;
        if !h.ensure(last)? {
            h.restart(last)?;
        }
        if !inode.is_unlinked() {
            orphan::remove(fs, h, inode)?;
        }
        Ok(())
    }

    /// Credits for one extent, and for the size that moves with it.
    fn extent_credits(&self) -> u32 {
        credits::sum([credits::allocate(self.fs), credits::INODE_UPDATE])
    }

    /// Returns whether blocks allocated for a write become written as soon as the bytes are in the
    /// cache, before they are on the device (`dioread_lock`, journalled data).
    fn converts_before_io(&self) -> bool {
        !self.fs.options.dioread_nolock() || self.data_path.journalled
    }

    /// Adds a range to the ordered data: `handle` makes the blocks of `[start, end)` written before
    /// their data is there.
    fn add_ordered_range(&self, handle: &mut Handle, start: Pos, end: Pos) {
        if self.fs.options.data() == DataMode::Ordered && !self.data_path.journalled {
            let bytes = end.since(start);
            self.fs.stats.ordered_bytes.add(bytes);
            self.state.add_ordered_range(handle, start, end);
        }
    }

    /// A mapping of the first block of `map`.
    fn one_block(&self, map: &BlockMapping) -> Result<BlockMap> {
        let found = self.to_iomap(map)?;
        let (location, new) = match found.kind {
            IomapKind::Delalloc => (BlockLocation::Delayed, map.new),
            IomapKind::Unwritten(at) => (BlockLocation::Unwritten(at), true),
            IomapKind::Mapped(at) => (BlockLocation::Written(at), map.new),
            IomapKind::Hole => {
                let ino = Location::Inode(self.inode.ino);
                return Err(Error::corrupt(ino, MapDamage::NotWritable));
            }
        };
        Ok(BlockMap { location, new })
    }
}

impl BufferOps for FileContext<'_> {
    type Handle = Handle;

    fn buffer_counters(&self) -> &BufferCounters {
        &self.fs.files.buffers
    }

    fn stop_at_range_end(&self) -> bool {
        self.fs.tuning.stop_at_range_end
    }

    fn start_write(&self, pos: Pos, blocks: u32) -> Result<Option<(Handle, u32)>> {
        debug_assert!(blocks > 0, "a write of no block");
        let logs = self.data_path.journalled;
        let reserves = self.fs.options.delalloc() && !self.has_space_out_of_reach();
        // Last: it starts writeback, which only a write that would reserve needs.
        if !logs && reserves && !self.nonda_switch() {
            self.reserve_indirect_blocks(pos, blocks)?;
            return Ok(None);
        }
        // Allocated unwritten and, with `dioread_lock`, converted once the bytes are in the cache:
        // a short write leaves no written blocks behind the end of the file.
        let convert = if self.converts_before_io() && self.has_extents() {
            credits::convert(self.fs)
        } else {
            0
        };
        let undo = if self.has_extents() {
            0
        } else {
            credits::sum([credits::ORPHAN, credits::remove(self.fs)])
        };
        let each = credits::sum([credits::allocate(self.fs), convert, u32::from(logs)]);
        let fixed = credits::sum([undo, credits::INODE_UPDATE]);
        // None, if not even the fixed part fits.
        let fits = |credits: u32| credits.saturating_sub(fixed) / each;
        // At most half of what one handle may have, so that other threads find room beside it, but
        // all blocks of a page.
        let max = self.fs.journal.max_credits();
        let page = self.fs.layout.block_size.blocks_for(PAGE_SIZE as u64);
        let page = exact_u32(page.get());
        let most = fits(max / 2).max(fits(max).min(page));
        let blocks = blocks.min(most.clamp(1, MAX_BLOCKS_PER_HANDLE));
        // A request for more than a handle may have is refused.
        let credits = credits::sum([each.saturating_mul(blocks), fixed]);
        Ok(Some((self.fs.start(credits)?, blocks)))
    }

    fn map_block(
        &self,
        _locked: FolioLocked<'_>,
        handle: Option<&mut Handle>,
        pos: Pos,
    ) -> Result<BlockMap> {
        self.fs.fault.check_alive()?;
        let (lblk, _) = block_span(self.fs, pos, 1).ok_or(Error::FileTooBig)?;
        let known = map::lookup(self.fs, self.inode, lblk, 1)?;
        if known.state != MapState::Hole {
            return self.one_block(&known);
        }
        let made = match handle {
            None => {
                let block = WriteSpan::exact(lblk, 1);
                map::reserve_delayed(self.fs, self.inode, block, self.privileged)?
            }
            Some(h) => {
                let how = AllocateMode {
                    unwritten: true,
                    privileged: self.privileged,
                    ..AllocateMode::default()
                };
                self.fs.stats.direct_allocations.bump();
                let made = map::allocate(self.fs, h, self.inode, lblk, 1, how)?;
                if matches!(made.state, MapState::Written(_)) {
                    let bs = self.fs.layout.block_size;
                    let start = bs.pos(made.lblk);
                    self.add_ordered_range(h, start, start.plus(bs.bytes_u64()));
                }
                made
            }
        };
        self.one_block(&made)
    }

    fn convert_after_copy(
        &self,
        _locked: FolioLocked<'_>,
        handle: &mut Handle,
        start: Pos,
        end: Pos,
    ) -> Result<bool> {
        if !self.converts_before_io() || !self.has_extents() {
            return Ok(false);
        }
        let len = end.since(start);
        let (lblk, count) = block_span(self.fs, start, len).ok_or(Error::FileTooBig)?;
        map::convert_to_written(self.fs, handle, self.inode, lblk, count)?;
        self.add_ordered_range(handle, start, end);
        Ok(true)
    }

    fn is_data_journalled(&self) -> bool {
        self.data_path.journalled
    }

    fn journal_data(
        &self,
        _locked: FolioLocked<'_>,
        handle: Option<&mut Handle>,
        blocks: &[(DevOff, &[u8])],
    ) -> Result<()> {
        let Some(h) = handle else {
            return Ok(());
        };
        let key = CheckKind::FileData.of_inode(self.inode.ino);
        let bs = self.fs.layout.block_size;
        for (at, bytes) in blocks {
            debug_assert_eq!(at.get() % bs.bytes_u64(), 0, "whole blocks");
            let block = h.create(Pblk::new(at.get() >> bs.log2()), key)?;
            h.modify(&block, |to| to.copy_from_slice(bytes))?;
        }
        self.inode.note_change(h);
        Ok(())
    }

    fn end_write(&self, handle: Option<Handle>, wrote: FolioWrite) -> Result<()> {
        // The size in memory may be past the one on disk, of a write before this one. It moves over
        // all of the last block: that is written space as a whole.
        let block_end = self.fs.layout.block_size.round_up(wrote.end);
        let end = block_end.unwrap_or(Pos::MAX).get();
        let moves = wrote.last_block_written
            && self.inode.core.read().disk_size < end.min(self.inode.size());
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
                core.disk_size = core.disk_size.max(end.min(self.inode.size()));
            }
        })
    }

    fn undo_failed_write(&self, handle: Option<&mut Handle>, start: Pos, end: Pos) {
        self.drop_reservations(start, end);
        if let Some(h) = handle
            && !self.has_extents()
            && let Err(error) = self.truncate_failed_write(h)
        {
            tracing::warn!(ino = self.inode.ino.get(), %error, "blocks stay behind the end");
            self.fs.fault.report(self.fs, &error);
        }
    }
}

impl BufferWriteback for FileContext<'_> {
    type Retries = alloc::Retries;

    fn start_mapping(&self) -> Result<Handle> {
        self.fs.start(self.extent_credits())
    }

    fn data_io_begins(&self) {
        self.state.flight.begin();
    }

    fn data_io_ends(&self) {
        self.state.flight.end();
    }

    fn ensure_credits(&self, handle: &mut Handle) -> Result<bool> {
        Ok(handle.ensure(self.extent_credits())?)
    }

    fn allocate(
        &self,
        _locked: FolioLocked<'_>,
        handle: &mut Handle,
        pos: Pos,
        len: u64,
    ) -> Result<Iomap> {
        let (lblk, count) = block_span(self.fs, pos, len).ok_or(Error::FileTooBig)?;
        let mut map = map::lookup(self.fs, self.inode, lblk, count)?;
        if map.state == MapState::Delayed {
            let how = AllocateMode {
                unwritten: (self.fs.options.dioread_nolock() || self.data_path.journalled)
                    && self.has_extents(),
                only_delayed: true,
                ..AllocateMode::default()
            };
            map = map::allocate(self.fs, handle, self.inode, map.lblk, map.len, how)?;
            debug_assert!(
                u64::from(map.len) <= u64::from(count),
                "{map:?} of {count} blocks"
            );
            if map.new && !how.unwritten {
                let bytes = u64::from(map.len) * self.fs.layout.block_size.bytes_u64();
                self.add_ordered_range(handle, pos, pos.plus(bytes));
            }
        }
        self.to_iomap(&map)
    }

    fn should_retry_alloc(&self, retries: &mut alloc::Retries, error: &Error) -> bool {
        retries.should_retry_reserved(self.fs, error)
    }

    fn raise_disk_size(&self, handle: &mut Handle, end: Pos) -> Result<()> {
        if self.inode.core.read().disk_size >= end.get() {
            return Ok(());
        }
        self.inode.update(self.fs, handle, |core| {
            core.disk_size = core.disk_size.max(end.get().min(self.inode.size()));
        })
    }
}
