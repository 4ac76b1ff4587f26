//! Clusters: the unit in which space is allocated.
//!
//! With the feature `bigalloc` a bit of a group's bitmap stands for a cluster of several blocks,
//! and the counts of its descriptor are in clusters; without it a cluster is a block. That is the
//! only place that counts clusters: runs, reservations, and the counts of the volume are in blocks,
//! whole clusters of them.
//!
//! # Invariants
//! - A volume that is written ends with a whole cluster, and begins with one: block 0 is in group
//!   0.
//! - A cluster belongs to the format's own structures, to one node or block of attributes, or to
//!   one cluster of one file, each of whose blocks has the same place in both.

use extant_units::{Blocks, Group, Lblk, Pblk};

use super::Layout;

impl Layout {
    /// Blocks of a cluster.
    #[inline]
    pub(crate) fn cluster_blocks(&self) -> Blocks {
        Blocks::new(1 << self.cluster_bits)
    }

    /// Bytes of a cluster.
    #[inline]
    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.block_size.bytes_u64() << self.cluster_bits
    }

    /// Sectors of 512 bytes of a cluster: what an inode counts for it.
    #[inline]
    pub(crate) fn cluster_sectors(&self) -> u64 {
        self.cluster_bytes() / 512
    }

    /// Returns whether a cluster has more than a block.
    #[inline]
    pub(crate) fn has_clusters(&self) -> bool {
        self.cluster_bits > 0
    }

    /// The blocks of as many clusters as `blocks` need.
    #[inline]
    pub(crate) fn in_whole_clusters(&self, blocks: u64) -> u64 {
        blocks.div_ceil(1 << self.cluster_bits) << self.cluster_bits
    }

    /// The place of file block `lblk` in its cluster.
    #[inline]
    pub(crate) fn place_in_cluster(&self, lblk: Lblk) -> u32 {
        lblk.get() & ((1 << self.cluster_bits) - 1)
    }

    /// Clusters of a full group.
    #[inline]
    pub(crate) fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Clusters of `group`: fewer in the last, none past it.
    #[inline]
    pub(crate) fn group_clusters(&self, group: Group) -> u32 {
        self.group_blocks(group).div_ceil(1 << self.cluster_bits)
    }

    /// The group of block `p` and the index of its cluster there, or `None` outside of the file
    /// system.
    #[inline]
    pub(crate) fn cluster_of_block(&self, p: Pblk) -> Option<(Group, u32)> {
        let (group, index) = self.group_of_block(p)?;
        Some((group, index >> self.cluster_bits))
    }

    /// The first block of the cluster at `index` of `group`.
    #[inline]
    pub(crate) fn cluster_start(&self, group: Group, index: u32) -> Pblk {
        self.group_start(group)
            .plus(u64::from(index) << self.cluster_bits)
    }

    /// The first block of the cluster of `p`.
    #[inline]
    pub(crate) fn cluster_floor(&self, p: Pblk) -> Pblk {
        Pblk::new(p.get() >> self.cluster_bits << self.cluster_bits)
    }
}
