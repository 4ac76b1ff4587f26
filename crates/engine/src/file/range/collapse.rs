//! Collapsing a range: its blocks are freed, and the blocks after it move left by its length.

use crate::file::range::{DirtyData, RangeOperation};
use crate::map::{self, Shift};
use crate::types::error::{Error, Result};
use crate::volume::all_or_abort;
use extant_pagecache::InvalidateExclusive;
use extant_units::Blocks;

impl RangeOperation<'_> {
    /// Fails for ranges that cannot be collapsed: parts of blocks, and the end of the file, for
    /// which truncation is there.
    pub(super) fn check_collapse(&self) -> Result<()> {
        self.require_extents()?;
        self.check_aligned()?;
        if self.range.end >= self.inode.size() {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// Takes the range out.
    pub(super) fn collapse(&self, no_fills: &InvalidateExclusive<'_>) -> Result<()> {
        let size = self.inode.size();
        let blocks = self.blocks_inside(&self.range);
        let _no_writeback = self.writeback_and_prepare(no_fills, &blocks, DirtyData::Discard)?;

        let plan = map::plan(self.fs, self.inode, blocks.clone(), blocks.end)?;
        let mut h = self.start_planned(plan)?;
        let first = Self::lblk(blocks.start)?;
        let by = Self::lblk(blocks.end - blocks.start)?.get();
        let len = self.range.end - self.range.start;
        debug_assert!(len < size, "{len} of {size} bytes are taken out");
        all_or_abort(&mut h, |h| {
            map::remove(self.fs, h, self.inode, first, blocks.end)?;
            let from = Blocks::new(blocks.end);
            map::shift(self.fs, h, self.inode, from, Shift::Left(by))?;
            self.set_size(h, size - len)
        })
    }
}
