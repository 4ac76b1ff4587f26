//! Clusters: the units of allocation, of one or more blocks.
//!
//! With `bigalloc` a bit of a block bitmap is a cluster, and the free count of a descriptor counts
//! clusters. Metadata of groups shares clusters. Anything else has its clusters to itself.

use core::ops::Range;

use extant_units::exact_u32;

use super::Geometry;

impl Geometry {
    /// Blocks of a cluster.
    pub fn cluster_blocks(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Clusters of every group but the last: the bits of a block bitmap.
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Clusters that `blocks` blocks take, the last of them in part or whole.
    pub fn clusters_for(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.cluster_blocks())
    }

    /// Blocks of the clusters that `blocks` blocks take.
    pub fn in_whole_clusters(&self, blocks: u64) -> u64 {
        self.clusters_for(blocks) << self.cluster_bits
    }

    /// The first block of the cluster of `block`.
    pub fn cluster_start(&self, block: u64) -> u64 {
        block - self.offset_in_cluster(block)
    }

    /// Blocks between `block` and the first one of its cluster.
    pub fn offset_in_cluster(&self, block: u64) -> u64 {
        block.saturating_sub(self.first_block()) & (self.cluster_blocks() - 1)
    }

    /// The clusters that `run` touches, as blocks: up to the end of the volume, whose last cluster
    /// may be shorter.
    pub fn whole_clusters(&self, run: &Range<u64>) -> Range<u64> {
        if run.is_empty() {
            return run.clone();
        }
        let last = self.cluster_start(run.end - 1);
        // Runs from disk may lie anywhere.
        let whole = last.saturating_add(self.cluster_blocks());
        let end = whole.min(self.blocks.max(run.end));
        self.cluster_start(run.start)..end
    }

    /// Clusters of `group`: fewer in the last.
    pub fn group_clusters(&self, group: u32) -> u32 {
        let blocks = self.group_blocks(group);
        exact_u32(self.clusters_for(blocks.end - blocks.start))
    }

    /// The bits of `group`'s bitmap for the part of `run` in it.
    pub fn cluster_bits_of(&self, group: u32, run: &Range<u64>) -> Range<u32> {
        let blocks = self.group_blocks(group);
        let (start, end) = (run.start.max(blocks.start), run.end.min(blocks.end));
        if start >= end {
            return 0..0;
        }
        let first = (start - blocks.start) >> self.cluster_bits;
        let end = self.clusters_for(end - blocks.start);
        exact_u32(first)..exact_u32(end)
    }
}
