//! The delayed clusters of a file that need no reservation, as the file has them already.

use std::collections::BTreeSet;
use std::ops::Range;

/// Clusters with delayed blocks that are the file's already.
#[derive(Default)]
pub(super) struct SharedClusters(BTreeSet<u64>);

impl SharedClusters {
    /// Number of those among `clusters`.
    pub(super) fn count(&self, clusters: Range<u64>) -> u64 {
        self.0.range(clusters).count() as u64
    }

    /// Adds `clusters`.
    pub(super) fn extend(&mut self, clusters: impl IntoIterator<Item = u64>) {
        self.0.extend(clusters);
    }

    /// Removes `cluster`. Returns whether it was there.
    pub(super) fn remove(&mut self, cluster: u64) -> bool {
        self.0.remove(&cluster)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// Notes that `clusters` have changed on disk or in memory: `delayed` are those that have
    /// delayed blocks. With `allocates` they are the file's now.
    pub(super) fn note(&mut self, clusters: Range<u64>, delayed: &[u64], allocates: bool) {
        let gone: Vec<u64> = self.0.range(clusters).copied().collect();
        for cluster in gone {
            if !delayed.contains(&cluster) {
                self.0.remove(&cluster);
            }
        }
        if allocates {
            self.0.extend(delayed);
        }
    }
}
