//! Looking up a file block, and walking over all extents.

use std::ops::Deref;

use extant_disk::extent::{Extent, MAX_END};
use extant_units::Lblk;

use super::path::Level;
use super::store::Nodes;
use crate::error::Result;

/// What lies at a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::map) enum Found {
    /// The extent that holds it.
    Extent(Extent),
    /// Nothing, from `start` to before `end`. Other holes may adjoin if `start` is a leaf's first block.
    Hole {
        /// First block of the hole.
        start: Lblk,
        /// The block after it: at most [`MAX_END`].
        end: u64,
    },
}

/// Looks up `lblk`, which must lie before [`MAX_END`].
pub(in crate::map) fn find<N: Nodes>(nodes: &N, lblk: Lblk) -> Result<Found> {
    let mut level = Level::root(nodes)?;
    // A child's depth is one less than its parent's: at most MAX_DEPTH rounds.
    loop {
        let node = level.node(nodes)?;
        let Some(at) = node.find(lblk) else {
            // Before everything below this node: in the root that is the hole before the first extent,
            // in an empty leaf all of it.
            let start = level.expect.first.unwrap_or(Lblk::ZERO);
            let end = node
                .lblk(0)
                .map_or(level.expect.end, |l| u64::from(l.get()));
            return Ok(Found::Hole { start, end });
        };
        if let Some(extent) = node.extent(at) {
            if extent.contains(lblk) {
                return Ok(Found::Extent(extent));
            }
            let start = u32::try_from(extent.end()).map_or(lblk, Lblk::new);
            let end = node.next_start(at, level.expect.end);
            return Ok(Found::Hole { start, end });
        }
        level.at = at;
        match level.child(nodes)? {
            Some(child) => level = child,
            // Only a leaf has no child, and its entries are extents.
            None => {
                return Ok(Found::Hole {
                    start: lblk,
                    end: u64::from(lblk.get()) + 1,
                });
            }
        }
    }
}

/// All extents from the one that holds `from`, or the first after it, in order. Stops at the first error.
/// Each step looks up anew, so it is safe (and not a snapshot) if the tree changes between steps.
pub(in crate::map) fn walk<N: Nodes>(nodes: &N, from: Lblk) -> Walk<'_, N> {
    Walk {
        nodes,
        at: u64::from(from.get()),
    }
}

/// See [`walk`].
pub(in crate::map) struct Walk<'a, N> {
    nodes: &'a N,
    /// Where to look next; only grows.
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
