//! The least size of a volume: where what lies behind the cut fits in front of it.

use extant_disk::bitmap;
use extant_units::at_most_u32;

use crate::error::Result;
use crate::shape::Shape;
use crate::volume::Volume;

/// Of so many blocks that move, one more may be needed for maps.
const PER_MAP: u64 = 64;
/// Free blocks that are needed beside them.
const SPARE: u64 = 32;

impl Volume {
    /// The smallest shape that this volume, as it is, can be cut to.
    pub(crate) fn least(&self) -> Result<Shape> {
        let mut best = self.old.clone();
        let (mut low, mut high) = (0, self.old.blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.old.resized(middle) {
                Ok(shape) if self.fits(&shape)? => {
                    high = middle;
                    best = shape;
                }
                _ => low = middle + 1,
            }
        }
        Ok(best)
    }

    /// Whether what lies behind the end of `shape` fits in front of it.
    fn fits(&self, shape: &Shape) -> Result<bool> {
        let (mut free, mut moves, mut inodes) = (0, 0, 0);
        let behind = |block: u64, len: u64| (block + len).saturating_sub(shape.blocks).min(len);
        for (group, desc) in (0..self.old.groups).zip(&self.was) {
            let range = self.old.range(group);
            let len = range.end - range.start;
            let free_here = u64::from(desc.free_blocks).min(len);
            // Free counts come from disk and may be too large.
            inodes += u64::from(self.old.inodes_per_group().saturating_sub(desc.free_inodes));
            if range.end <= shape.blocks {
                free += free_here;
            } else if range.start >= shape.blocks {
                moves += len - free_here;
            } else {
                let cut = at_most_u32(shape.blocks - range.start);
                let front = u64::from(bitmap::count_clear(&self.old_bitmap(group)?, cut));
                free += front.min(free_here);
                moves += len - free_here - (u64::from(cut) - front.min(u64::from(cut)));
            }
            if group >= shape.groups {
                // Its own metadata goes with it. A free count from disk that is too large makes
                // `moves` too small.
                let own = behind(desc.block_bitmap.get(), 1)
                    + behind(desc.inode_bitmap.get(), 1)
                    + behind(desc.inode_table.get(), self.old.table_blocks)
                    + self.old.super_blocks(group);
                moves = moves.saturating_sub(own);
            }
        }
        let needed = moves + moves / PER_MAP + SPARE;
        Ok(needed <= free && inodes <= u64::from(shape.inodes()))
    }
}
