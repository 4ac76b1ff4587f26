//! The least size of a volume: where what lies behind the cut fits in front of it.

use std::ops::Range;

use extant_disk::bitmap;
use extant_disk::features::Compat;
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::GroupDesc;
use extant_units::{Pblk, at_most_u32};

use crate::error::Result;

use crate::volume::Volume;

/// Of so many clusters that move, one more may be needed for maps.
const PER_MAP: u64 = 64;
/// Free blocks that are needed beside them.
const SPARE: u64 = 32;
/// Free clusters that are needed, where fewer hold the blocks.
const SPARE_CLUSTERS: u64 = 4;

impl Volume {
    /// The smallest geometry that this volume, as it is, can be cut to.
    pub(crate) fn least(&self) -> Result<Geometry> {
        let mut best = self.old.clone();
        let (mut low, mut high) = (0, self.old.blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.old.resized(middle) {
                Ok(geometry) if self.fits(&geometry)? => {
                    high = middle;
                    best = geometry;
                }
                _ => low = middle + 1,
            }
        }
        assert!(best.blocks <= self.old.blocks, "the least is no larger");
        Ok(best)
    }

    /// Returns whether an inode in use would need another number in `geometry`, and numbers are to
    /// stay (`stable_inodes`).
    pub(crate) fn cuts_stable_inodes(&self, geometry: &Geometry) -> bool {
        let mut cut = self.was.iter().skip(geometry.groups as usize);
        self.old.features.has_compat(Compat::STABLE_INODES)
            && cut.any(|desc| desc.free_inodes < self.old.inodes_per_group)
    }

    /// Returns whether the clusters behind the end of `geometry` fit in front of it.
    fn fits(&self, geometry: &Geometry) -> Result<bool> {
        if self.cuts_stable_inodes(geometry) {
            return Ok(false);
        }
        let (mut free, mut moves, mut inodes) = (0, 0, 0);
        let mut own_clusters = OwnClusters::default();
        for (group, desc) in (0..self.old.groups).zip(&self.was) {
            let range = self.old.group_blocks(group);
            let len = u64::from(self.old.group_clusters(group));
            let free_here = u64::from(desc.free_blocks).min(len);
            // Free counts come from disk and may be too large.
            inodes += u64::from(self.old.inodes_per_group.saturating_sub(desc.free_inodes));
            if range.end <= geometry.blocks {
                free += free_here;
            } else if range.start >= geometry.blocks {
                moves += len - free_here;
            } else {
                let cut = at_most_u32(self.old.clusters_for(geometry.blocks - range.start));
                let front = u64::from(bitmap::count_clear(&self.old_bitmap(group)?, cut));
                free += front.min(free_here);
                moves += len - free_here - (u64::from(cut) - front.min(u64::from(cut)));
            }
            if group >= geometry.groups {
                // Its own metadata goes with it. A free count from disk that is too large makes
                // `moves` too small.
                let table = u64::from(self.old.itable_blocks);
                let lens = (self.old.head_blocks(group), table);
                match self.old.cluster_bits {
                    0 => moves = moves.saturating_sub(own_behind(geometry.blocks, desc, lens)),
                    _ => own_clusters.add(&self.old, group, desc),
                }
            }
        }
        moves = moves.saturating_sub(own_clusters.behind(&self.old, geometry.blocks));
        let room = room_for(moves, self.old.cluster_bits);
        Ok(room <= free && inodes <= u64::from(geometry.inodes()))
    }
}

/// Free clusters that `moves` clusters need which move.
fn room_for(moves: u64, cluster_bits: u32) -> u64 {
    let spare = match cluster_bits {
        0 => SPARE,
        bits => (SPARE >> bits).max(SPARE_CLUSTERS),
    };
    moves + moves / PER_MAP + spare
}

/// The clusters of metadata of some groups.
#[derive(Default)]
struct OwnClusters(Vec<Range<u64>>);

impl OwnClusters {
    fn add(&mut self, geometry: &Geometry, group: u32, desc: &GroupDesc) {
        let run = |at: Pblk, len: u64| at.get()..at.get().saturating_add(len);
        let parts = [
            geometry.head(group),
            run(desc.block_bitmap, 1),
            run(desc.inode_bitmap, 1),
            run(desc.inode_table, geometry.itable_blocks.into()),
        ];
        let whole = |part: &Range<u64>| geometry.whole_clusters(part);
        self.0.extend(parts.iter().map(whole));
    }

    /// How many of them lie behind `end`, each counted once.
    fn behind(mut self, geometry: &Geometry, end: u64) -> u64 {
        self.0.sort_unstable_by_key(|run| run.start);
        let (mut clusters, mut next) = (0, end);
        for run in self.0 {
            let start = run.start.max(next);
            clusters += geometry.clusters_for(run.end.saturating_sub(start));
            next = next.max(run.end);
        }
        clusters
    }
}

/// Blocks behind `end` of the own metadata of a group that begins there: its copies of superblock
/// and descriptors, and its bitmaps and inode table, which may lie in other groups.
fn own_behind(end: u64, desc: &GroupDesc, (supers, table): (u64, u64)) -> u64 {
    let behind = |at: Pblk, len: u64| (at.get() + len).saturating_sub(end).min(len);
    let placed = [
        supers,
        behind(desc.block_bitmap, 1),
        behind(desc.inode_bitmap, 1),
        behind(desc.inode_table, table),
    ];
    placed.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_needs_room_for_maps_and_some_more() {
        let rooms = [0, 63, 64, 6400].map(|moves| room_for(moves, 0));
        assert_eq!(rooms, [32, 95, 64 + 1 + 32, 6400 + 100 + 32]);
        let rooms = [1, 2, 4, 9].map(|bits| room_for(64, bits) - 65);
        assert_eq!(rooms, [16, 8, 4, 4]);
    }

    #[test]
    fn own_metadata_counts_as_far_as_it_lies_behind_the_end() {
        let own = |end, bitmaps: (u64, u64), table| {
            let desc = GroupDesc {
                block_bitmap: Pblk::new(bitmaps.0),
                inode_bitmap: Pblk::new(bitmaps.1),
                inode_table: Pblk::new(table),
                ..GroupDesc::default()
            };
            own_behind(end, &desc, (12, 16))
        };
        // All of it, and a table that begins right at the end.
        assert_eq!(own(1000, (1012, 1013), 1014), 12 + 1 + 1 + 16);
        assert_eq!(own(1000, (1001, 1000), 1000), 12 + 1 + 1 + 16);
        // In front of the end: both bitmaps, a part of the table, all of it.
        assert_eq!(own(1000, (998, 999), 1014), 12 + 16);
        assert_eq!(own(1000, (998, 999), 990), 12 + 6);
        assert_eq!(own(1000, (998, 999), 984), 12);
    }
}
