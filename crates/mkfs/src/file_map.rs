//! The blocks of a file of a new volume.

use std::ops::Range;

use extant_disk::extent::{MAX_WRITTEN, ROOT_CAPACITY, block_capacity};
use extant_disk::geometry::Geometry;

use crate::tables::Ground;

/// The blocks of one inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Map {
    /// The data: runs in the order of the file, each no longer than an extent.
    pub(crate) runs: Vec<Range<u64>>,
    /// Blocks that hold the map itself, in the order in which they were taken.
    pub(crate) nodes: Vec<u64>,
}

impl Map {
    /// The number of blocks that hold data.
    pub(crate) fn data_blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// The number of blocks that it takes: those of its clusters.
    pub(crate) fn blocks(&self, geometry: &Geometry) -> u64 {
        // Files have no holes, so that only the last cluster of their data may be used in part.
        let data = geometry.in_whole_clusters(self.data_blocks());
        data + self.nodes.len() as u64 * geometry.cluster_blocks()
    }

    /// The data's blocks, one by one.
    pub(crate) fn data(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().cloned().flatten()
    }

    pub(crate) fn push(&mut self, run: Range<u64>) {
        let most = u64::from(MAX_WRITTEN);
        if let Some(last) = self.runs.last_mut()
            && last.end == run.start
            && run.end - last.start <= most
        {
            last.end = run.end;
            return;
        }
        self.runs.push(run);
    }

    /// Takes the nodes that its extent tree needs and does not have yet.
    pub(crate) fn take_nodes(&mut self, ground: &mut Ground<'_>) -> Option<()> {
        let per_node = usize::from(block_capacity(ground.geometry.block_size));
        let mut level = self.runs.len();
        let mut nodes = 0;
        while level > usize::from(ROOT_CAPACITY) {
            level = level.div_ceil(per_node);
            nodes += level;
        }
        while self.nodes.len() < nodes {
            let goal = self.before_first(ground.geometry)?;
            self.nodes.push(ground.take_one(goal)?);
        }
        Some(())
    }

    /// The cluster before the first of the data, which never lies at the volume's beginning.
    pub(crate) fn before_first(&self, geometry: &Geometry) -> Option<u64> {
        let first = geometry.cluster_start(self.runs.first()?.start);
        Some(first - geometry.cluster_blocks())
    }
}
