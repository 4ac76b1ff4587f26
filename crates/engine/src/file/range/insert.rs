//! Inserting a hole: the blocks from its start on move right by its length.

use extant_disk::extent::MAX_END;
use extant_pagecache::InvalidateExclusive;
use extant_units::Blocks;

use crate::file::max_size;
use crate::file::range::{DirtyData, RangeOperation};
use crate::map::{self, Shift};
use crate::types::error::{Error, Result};
use crate::volume::all_or_abort;

impl RangeOperation<'_> {
    /// Fails for parts of blocks, for a start at or behind the end of the file, and for what would
    /// make the file too long.
    pub(super) fn check_insert(&self) -> Result<()> {
        self.require_extents()?;
        self.check_aligned()?;
        let size = self.inode.size();
        if self.range.start >= size {
            return Err(Error::Invalid);
        }
        let len = self.range.end - self.range.start;
        if len > max_size(self.fs, self.inode).saturating_sub(size) {
            return Err(Error::FileTooBig);
        }
        // Space behind the end of the file moves as well.
        let last = map::last_end(self.fs, self.inode)?;
        if last + len / self.block_bytes() > MAX_END {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// Inserts a hole of the range's length at its start. Both sizes grow first, so no block that
    /// lay within the file ever lies past its end.
    pub(super) fn insert(&self, no_fills: &InvalidateExclusive<'_>) -> Result<()> {
        let size = self.inode.size();
        let blocks = self.blocks_inside(&self.range);
        let gap = blocks.start..blocks.start;
        let _no_writeback = self.writeback_and_prepare(no_fills, &gap, DirtyData::Write)?;

        let plan = map::plan(self.fs, self.inode, 0..0, blocks.start)?;
        let mut h = self.start_planned(plan)?;
        let len = self.range.end - self.range.start;
        let by = Self::lblk(blocks.end - blocks.start)?.get();
        all_or_abort(&mut h, |h| {
            self.set_size(h, size + len)?;
            let from = Blocks::new(blocks.start);
            map::shift(self.fs, h, self.inode, from, Shift::Right(by))
        })
    }
}
