//! Cutting an extent in two before a change of one part of it.

use extant_disk::extent::{Extent, MAX_END};
use extant_units::Lblk;

use super::insert_extent::blocks;
use super::node_store::NodesMut;
use super::replace_entries::replace;
use super::tree_path::TreePath;
use crate::types::error::Result;

/// Makes `at` the first block of an extent if it lies within one: both parts keep their locations
/// and states. Returns whether there was an extent to cut.
///
/// The parts could be one extent, and become one again with the next change that touches them.
///
/// # Errors
/// No space for a node, or damage; the tree is as before.
pub(in crate::map) fn split_at<N: NodesMut>(nodes: &mut N, at: Lblk) -> Result<bool> {
    if u64::from(at.get()) >= MAX_END {
        return Ok(false);
    }
    let path = TreePath::to(nodes, at)?;
    let within = |e: &Extent| e.lblk < at && e.contains(at);
    let found = path.leaf().extents.iter().position(within);
    let Some((index, extent)) = found.and_then(|i| Some((i, *path.leaf().extents.get(i)?))) else {
        return Ok(false);
    };
    let parts = [
        extent.slice(extent.lblk, at.since(extent.lblk)),
        extent.slice(at, u32::MAX),
    ];
    let parts: Vec<Extent> = parts.into_iter().flatten().collect();
    debug_assert_eq!(blocks(&parts), u64::from(extent.len), "cut in two");
    replace(nodes, &path, index..index + 1, &parts)?;
    Ok(true)
}

/// Cuts the first written extent in `from..to` that is longer than an unwritten one can be, so that
/// it can become unwritten in its location. Returns the block after the examined part; `None` if
/// nothing up to `to` is left.
///
/// # Errors
/// As [`split_at`].
pub(in crate::map) fn split_longest<N: NodesMut>(
    nodes: &mut N,
    from: Lblk,
    to: u64,
) -> Result<Option<u64>> {
    let longest = Extent::max_len(true);
    let mut at = u64::from(from.get());
    while at < to.min(MAX_END) {
        let Ok(raw) = u32::try_from(at) else { break };
        let path = TreePath::to(nodes, Lblk::new(raw))?;
        let leaf = path.leaf();
        let long = |e: &&Extent| e.end() > at && u64::from(e.lblk.get()) < to && e.len > longest;
        let Some(&extent) = leaf.extents.iter().find(long) else {
            // Each leaf ends further right than the one before.
            at = leaf.end.max(at + 1);
            continue;
        };
        let Some(cut) = extent.lblk.checked_add(longest) else {
            break;
        };
        split_at(nodes, cut)?;
        return Ok(Some(extent.end()));
    }
    Ok(None)
}
