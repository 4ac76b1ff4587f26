//! Looking up a file block.

use extant_disk::extent::Extent;
use extant_units::Lblk;

use super::node_store::Nodes;
use super::tree_path::TreeLevel;
use crate::types::error::Result;

/// The answer for a file block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::map) enum Found {
    /// The extent that holds it.
    Extent(Extent),
    /// Nothing, from `start` to before `end`. Other holes may adjoin if `start` is a leaf's first
    /// block.
    Hole {
        /// First block of the hole.
        start: Lblk,
        /// The block after it: at most [`extant_disk::extent::MAX_END`].
        end: u64,
    },
}

/// Looks up `lblk`, which must lie before [`extant_disk::extent::MAX_END`].
pub(in crate::map) fn find<N: Nodes>(nodes: &N, lblk: Lblk) -> Result<Found> {
    let mut level = TreeLevel::root(nodes)?;
    // A child's depth is one less than its parent's: at most MAX_DEPTH rounds.
    loop {
        let node = level.node(nodes)?;
        let Some(at) = node.find(lblk) else {
            // Before everything below this node: in the root that is the hole before the first
            // extent, in an empty leaf all of it.
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
