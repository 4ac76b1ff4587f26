//! Reading the inode table ahead, for inodes that will be asked for one after the other.

use extant_units::{Ino, Pblk};

use crate::volume::Fs;

/// Blocks between two that are wanted which one read may include.
const GAP: u64 = 8;
/// Blocks of one read.
const MOST: u32 = 256;

impl Fs {
    /// Reads the table blocks of `inodes` that are not cached, in the order of the table, and
    /// neighbours by one read. Errors are left to the reading of the inode.
    pub(crate) fn read_inodes_ahead(&self, inodes: &[Ino]) {
        let location = |ino: &Ino| self.groups.inode_location(&self.layout, *ino).ok();
        let mut blocks: Vec<Pblk> = inodes
            .iter()
            .filter_map(|ino| Some(location(ino)?.block))
            .collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !self.cache.is_cached(*block));
        for run in blocks.chunk_by(|a, b| b.get() - a.get() <= GAP) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            let mut at = *first;
            while at <= *last {
                let left = last.get() - at.get() + 1;
                let count = u32::try_from(left).map_or(MOST, |left| left.min(MOST));
                self.cache.readahead(at, count);
                let Some(next) = at.checked_add(count.into()) else {
                    break;
                };
                at = next;
            }
        }
    }
}
