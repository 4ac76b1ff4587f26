//! Making a range read as zeros while it keeps, or gets, its space.
//!
//! All allocations and splits of extents come first: lack of space then leaves the file as it was,
//! dirty data included. Whole blocks become unwritten; of those at the ends, bytes are zeroed in
//! the cache.

use extant_pagecache::InvalidateExclusive;
use extant_units::at_most_u32;

use crate::file::range::RangeOperation;
use crate::file::truncate;
use crate::map;
use crate::types::error::Result;
use crate::volume::credits;

impl RangeOperation<'_> {
    /// Zeroes the range; unless `keep_size`, a file that ends before its end grows.
    pub(super) fn zero(&self, no_fills: &InvalidateExclusive<'_>, keep_size: bool) -> Result<()> {
        let old = self.inode.size();
        let grows = !keep_size && self.range.end > old;
        self.allocate_holes(&self.blocks_touched(&self.range), None)?;
        let blocks = self.blocks_inside(&self.range);
        if !blocks.is_empty() {
            self.split_extents_at_ends(&blocks)?;
            self.split_overlong_extents(&blocks)?;
        }
        if grows {
            truncate::prepare_growth(self.cx, self.inode, old, self.range.end)?;
        }
        self.raise_disk_size()?;
        self.zero_edges()?;
        if blocks.is_empty() && !grows {
            return Ok(());
        }
        let _no_writeback = self.prepare_map_change(no_fills, &blocks)?;
        let plan = map::plan(self.fs, self.inode, blocks.clone(), u64::MAX)?;
        let mut h = self.start_planned(plan)?;
        if !blocks.is_empty() {
            let first = Self::lblk(blocks.start)?;
            let len = at_most_u32(blocks.end - blocks.start);
            if !h.ensure(credits::convert(self.fs))? {
                h.restart(credits::convert(self.fs))?;
            }
            map::convert_to_unwritten(self.fs, &mut h, self.inode, first, len)?;
        }
        if grows {
            self.set_size(&mut h, self.range.end)?;
        }
        Ok(())
    }

    /// Splits extents that are too long to become unwritten as one.
    fn split_overlong_extents(&self, blocks: &std::ops::Range<u64>) -> Result<()> {
        let mut at = Some(blocks.start);
        while let Some(from) = at.filter(|&from| from < blocks.end) {
            at = self.retry_with_handle(|h| {
                map::split_longest(self.fs, h, self.inode, from, blocks.end)
            })?;
        }
        Ok(())
    }
}
