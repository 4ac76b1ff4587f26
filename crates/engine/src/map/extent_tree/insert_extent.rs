//! Inserting an extent.

use std::ops::Range;

use extant_disk::extent::{Extent, ExtentError};
use extant_units::Lblk;

use super::node_store::NodesMut;
use super::replace_entries::{replace, split_full};
use super::tree_path::{Leaf, TreePath};
use crate::types::error::Result;

/// Inserts `new` where nothing is mapped, merged with its neighbours in the leaf where one extent
/// can hold both.
///
/// # Errors
/// No space for a node, damage, or `new` overlaps an extent; the tree is as before.
pub(in crate::map) fn insert<N: NodesMut>(nodes: &mut N, new: Extent) -> Result<()> {
    let path = TreePath::to(nodes, new.lblk)?;
    let leaf = path.leaf();
    let at = leaf.position(new.lblk);
    let before = at.checked_sub(1).and_then(|i| leaf.extents.get(i));
    let after = leaf
        .extents
        .get(at)
        .map_or(leaf.end, |e| u64::from(e.lblk.get()));
    if before.is_some_and(|e| e.end() > u64::from(new.lblk.get())) || new.end() > after {
        let index = u16::try_from(at).unwrap_or(u16::MAX);
        let why = ExtentError::OutOfOrder {
            index,
            lblk: new.lblk,
        };
        return Err(nodes.damaged(path.nearest_block(), why));
    }
    let (range, joined) = join_neighbours(leaf, at..at, vec![new]);
    replace(nodes, &path, range, &joined)
}

/// Makes sure that the leaf for `lblk` takes one more extent, so that inserting there cannot run
/// out of space. Returns the extents before and after `lblk`, as far as they are in that leaf.
///
/// # Errors
/// No space for a node, or damage; the tree is as before.
pub(in crate::map) fn prepare<N: NodesMut>(
    nodes: &mut N,
    lblk: Lblk,
) -> Result<(Option<Extent>, Option<Extent>)> {
    let path = TreePath::to(nodes, lblk)?;
    let leaf = path.leaf();
    let at = leaf.position(lblk);
    let before = at.checked_sub(1).and_then(|i| leaf.extents.get(i)).copied();
    let after = leaf.extents.get(at).copied();
    split_full(nodes, &path, at)?;
    Ok((before, after))
}

/// Extends the replacement of entries `range` of `leaf` by `new`: includes the neighbours on both
/// sides, merges what can be merged, and drops again what stayed as it was. Returns the range to
/// replace and its replacement.
pub(super) fn join_neighbours(
    leaf: &Leaf,
    range: Range<usize>,
    new: Vec<Extent>,
) -> (Range<usize>, Vec<Extent>) {
    let Range { mut start, mut end } = range;
    let mut joined: Vec<Extent> = Vec::with_capacity(new.len() + 2);
    if let Some(before) = start.checked_sub(1)
        && let Some(&left) = leaf.extents.get(before)
        && new.first().is_some_and(|first| left.merges_with(first))
    {
        start = before;
        joined.push(left);
    }
    let right = leaf.extents.get(end).copied();
    let right = right.filter(|right| new.last().is_some_and(|last| last.merges_with(right)));
    if right.is_some() {
        end += 1;
    }
    let all = blocks(&joined) + blocks(&new) + blocks(right.as_slice());
    for extent in new.into_iter().chain(right) {
        match joined.last_mut() {
            Some(last) if last.merges_with(&extent) => last.len += extent.len,
            _ => joined.push(extent),
        }
    }
    debug_assert_eq!(blocks(&joined), all, "each block is in one extent");
    (start..end, joined)
}

/// Blocks of all `extents`.
pub(super) fn blocks(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.len)).sum()
}
