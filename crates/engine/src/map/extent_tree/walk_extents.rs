//! Walking over all extents, for tests.

use extant_disk::extent::{Extent, MAX_END};
use extant_units::Lblk;

use super::find_extent::{Found, find};
use super::node_store::Nodes;
use crate::types::error::Result;

/// All extents from the one that holds `from`, or the first after it, in order. Stops at the first
/// error. Each step looks up anew, so it is safe (and not a snapshot) if the tree changes between
/// steps.
pub(in crate::map) fn walk<N: Nodes>(nodes: &N, from: Lblk) -> Walk<'_, N> {
    Walk {
        nodes,
        at: u64::from(from.get()),
    }
}

/// See [`walk`].
pub(in crate::map) struct Walk<'a, N> {
    nodes: &'a N,
    /// Block to look at next; only grows.
    at: u64,
}

impl<N: Nodes> Iterator for Walk<'_, N> {
    type Item = Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < MAX_END {
            let lblk = Lblk::new(u32::try_from(self.at).ok()?);
            match find(self.nodes, lblk) {
                Ok(Found::Extent(extent)) => {
                    self.at = extent.end();
                    return Some(Ok(extent));
                }
                Ok(Found::Hole { end, .. }) => self.at = end.max(self.at + 1),
                Err(error) => {
                    self.at = MAX_END;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
