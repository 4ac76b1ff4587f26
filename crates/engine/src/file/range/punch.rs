//! Making a hole.
//!
//! Nothing is written back first: dirty data of the range is not wanted any more. The blocks go,
//! and the reservations of the range with them. Of the blocks at its ends, bytes are zeroed in the
//! cache.

use extant_iomap::WritebackControl;
use extant_pagecache::InvalidateExclusive;
use extant_units::{PAGE_SIZE, Pos};

use crate::alloc;
use crate::file::range::RangeOperation;
use crate::file::writeback::writeback_range;
use crate::map;
use crate::types::error::Result;
use crate::volume::credits;

impl RangeOperation<'_> {
    /// Makes the range a hole. Behind the end of the file it ends with the last page, or with the
    /// last block where blocks are larger: what was allocated there ahead of data stays.
    pub(super) fn punch(mut self, no_fills: &InvalidateExclusive<'_>) -> Result<()> {
        let size = self.inode.size();
        // An image's file may say that it is longer than its map can be.
        let most = crate::file::range::max_size(self.fs, self.inode);
        if self.range.start >= size.min(most) {
            return Ok(());
        }
        if self.range.end > size {
            let unit = self.fs.layout.block_size.bytes_u64().max(PAGE_SIZE as u64);
            let last_end = size.checked_next_multiple_of(unit);
            self.range.end = last_end.unwrap_or(size).min(most);
        }
        debug_assert!(self.range.start < self.range.end, "{:?}", self.range);
        let blocks = self.blocks_inside(&self.range);
        if !blocks.is_empty() {
            self.split_extents_at_ends(&blocks)?;
        }
        if self.cx.data_path.journalled {
            let (start, end) = (Pos::new(self.range.start), Pos::new(self.range.end));
            writeback_range(self.fs, self.inode, WritebackControl::integrity(start, end))?;
        }
        self.raise_disk_size()?;
        self.zero_edges()?;
        if blocks.is_empty() {
            return Ok(());
        }
        let _no_writeback = self.prepare_map_change(no_fills, &blocks)?;
        self.free(&blocks)
    }

    /// Frees `blocks`, of which nothing is cached.
    fn free(&self, blocks: &std::ops::Range<u64>) -> Result<()> {
        alloc::release_window(self.fs, self.inode.ino);
        let mut h = if self.has_extents() {
            self.start_planned(map::plan(self.fs, self.inode, blocks.clone(), u64::MAX)?)?
        } else {
            let credits = credits::sum([credits::remove(self.fs), credits::INODE_UPDATE]);
            self.fs.start_with_revokes(credits, credits::REVOKES)?
        };
        let first = Self::lblk(blocks.start)?;
        map::remove(self.fs, &mut h, self.inode, first, blocks.end)
    }
}
