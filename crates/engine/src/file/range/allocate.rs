//! Allocating a range ahead of its data.
//!
//! Holes are allocated, unwritten; what is allocated stays. The file grows with each chunk, so
//! running out of space leaves a file with as much as there was.

use std::ops::Range;

use extant_units::at_most_u32;

use crate::file::range::RangeOperation;
use crate::file::set_sizes;
use crate::file::truncate;
use crate::map;
use crate::state::map::{AllocateMode, MapState};
use crate::types::error::Result;

impl RangeOperation<'_> {
    /// Allocates the range; unless `keep_size`, a file that ends before its end grows.
    pub(super) fn allocate(&self, keep_size: bool) -> Result<()> {
        let old = self.inode.size();
        let grows = !keep_size && self.range.end > old;
        if grows {
            truncate::prepare_growth(self.cx, self.inode, old, self.range.end)?;
        }
        let grow_to = grows.then_some(self.range.end);
        self.allocate_holes(&self.blocks_touched(&self.range), grow_to)
    }

    /// Allocates the holes among `blocks`. With `grow_to`, the file grows to the end of each part
    /// that is allocated, but to no more bytes than these.
    pub(super) fn allocate_holes(&self, blocks: &Range<u64>, grow_to: Option<u64>) -> Result<()> {
        let how = AllocateMode {
            unwritten: true,
            privileged: self.cx.privileged,
            ..AllocateMode::default()
        };
        debug_assert!(blocks.start <= blocks.end, "{blocks:?}");
        let mut at = blocks.start;
        while at < blocks.end {
            let lblk = Self::lblk(at)?;
            let left = at_most_u32(blocks.end - at);
            let known = map::lookup(self.fs, self.inode, lblk, left)?;
            let allocated = matches!(known.state, MapState::Written(_) | MapState::Unwritten(_));
            debug_assert!(
                (1..=left).contains(&known.len),
                "{known:?} for {left} blocks"
            );
            let from = at;
            let end_of = |len: u32| {
                let end = from + u64::from(len);
                (
                    end,
                    grow_to.map_or(0, |size| size.min(end * self.block_bytes())),
                )
            };
            if allocated {
                let (end, size) = end_of(known.len);
                at = end;
                if size > self.inode.size() {
                    self.retry_with_handle(|h| {
                        set_sizes(self.fs, h, self.inode, size, self.whole)
                    })?;
                }
                continue;
            }
            // Writeback that holds the blocks of delayed data has a reservation for them, which
            // this would use up.
            let _no_writeback = (known.state == MapState::Delayed)
                .then(|| self.cx.state.address_space.writeback_pass());
            at = self.retry_with_handle(|h| {
                let made = map::allocate(self.fs, h, self.inode, lblk, known.len, how)?;
                let (end, size) = end_of(made.len);
                if size > self.inode.size() {
                    set_sizes(self.fs, h, self.inode, size, self.whole)?;
                }
                Ok(end)
            })?;
        }
        Ok(())
    }
}
