//! Removing ranges.

use extant_disk::extent::{Extent, MAX_END};
use extant_units::{Lblk, at_most_u32, exact_u32};

use super::insert_extent::blocks;
use super::node_store::NodesMut;
use super::replace_entries::replace;
use super::tree_path::TreePath;
use crate::types::error::Result;

/// Upper bound of what one step removes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::map) struct Limit {
    /// Extents, and parts of extents; at least one.
    pub(in crate::map) extents: usize,
    /// Data blocks; at least one.
    pub(in crate::map) blocks: u64,
}

impl Limit {
    /// As much as one leaf has.
    #[cfg(test)]
    pub(in crate::map) const NONE: Self = Self {
        extents: usize::MAX,
        blocks: u64::MAX,
    };
}

/// The result of one step of [`remove_some`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::map) struct Removed {
    /// Extents and parts that are no longer mapped, right to left. The caller frees their
    /// blocks.
    pub(in crate::map) parts: Vec<Extent>,
    /// Nothing is mapped any more from here to the end of the range. Equal to its start when all is
    /// done.
    pub(in crate::map) clear_from: u64,
}

/// Removes the parts of the rightmost extents in `from..to`, all of one leaf and within `limit`.
///
/// Right to left, so that an interrupted truncation leaves the front of the file. A range within
/// one extent splits it, which may need a node.
///
/// # Errors
/// No space for a node, or damage; the tree is as before this step.
pub(in crate::map) fn remove_some<N: NodesMut>(
    nodes: &mut N,
    from: Lblk,
    to: u64,
    limit: Limit,
) -> Result<Removed> {
    let start = u64::from(from.get());
    let mut to = to.min(MAX_END);
    while let Some(last) = to.checked_sub(1).filter(|&last| last >= start) {
        let Ok(last) = u32::try_from(last) else { break };
        let path = TreePath::to(nodes, Lblk::new(last))?;
        let leaf = path.leaf();
        let end = leaf.position(Lblk::new(last));
        let touched = &leaf.extents[..end];
        let (begin, from) = reach(touched, start, to, limit);
        let touched = &touched[begin..];

        let mut left = Vec::with_capacity(2);
        let mut parts = Vec::with_capacity(touched.len());
        for extent in touched {
            let low = extent.lblk.max(from);
            let high = extent.end().min(to);
            left.extend(extent.slice(extent.lblk, low.since(extent.lblk)));
            let len = exact_u32(high - u64::from(low.get()));
            parts.extend(extent.slice(low, len));
            let rest = u32::try_from(high).ok();
            left.extend(rest.and_then(|rest| extent.slice(Lblk::new(rest), u32::MAX)));
        }
        debug_assert_eq!(
            blocks(&left) + blocks(&parts),
            blocks(touched),
            "each block stays or goes"
        );
        parts.reverse();
        let leaf_start = path.levels().last().and_then(|l| l.expect.first);
        if parts.is_empty() {
            // This leaf has nothing of the range; only the leaf before it may have some. A leaf
            // that is empty and not the root is removed.
            let Some(first) = leaf_start else { break };
            if leaf.extents.is_empty() {
                replace(nodes, &path, 0..0, &[])?;
            }
            if begin > 0 || u64::from(first.get()) >= to {
                break;
            }
            to = u64::from(first.get());
            continue;
        }
        debug_assert!(
            parts
                .iter()
                .all(|part| part.lblk >= from && part.end() <= to),
            "only what was asked for is removed"
        );
        replace(nodes, &path, begin..end, &left)?;
        let clear_from = parts.last().map_or(start, |e| u64::from(e.lblk.get()));
        return Ok(Removed { parts, clear_from });
    }
    Ok(Removed {
        parts: Vec::new(),
        clear_from: start,
    })
}

/// How far to the left `limit` reaches among a leaf's extents before `to`: the index of the first
/// extent that is touched, and the file block from which on to remove.
fn reach(extents: &[Extent], start: u64, to: u64, limit: Limit) -> (usize, Lblk) {
    debug_assert!(
        limit.extents > 0 && limit.blocks > 0,
        "a step does something"
    );
    let mut from = to;
    let mut begin = extents.len();
    let mut left = limit.blocks;
    for extent in extents.iter().rev().take(limit.extents) {
        let high = extent.end().min(to);
        let low = start.max(u64::from(extent.lblk.get()));
        if high <= low || left == 0 {
            break;
        }
        // As far as the limit goes.
        from = low.max(high.saturating_sub(left));
        left -= high - from;
        begin -= 1;
    }
    (begin, Lblk::new(at_most_u32(from)))
}
