//! Shifting all extents from some block on: a range is taken out of the file, or inserted.
//!
//! A step shifts the extents of one leaf, and the keys above them. To the left the steps go from
//! left to right, to the right from right to left, so the tree is in order after each of them.

use extant_disk::extent::{Extent, ExtentError, MAX_END};
use extant_units::{Lblk, Pblk, exact_u32};

use super::insert_extent::join_neighbours;
use super::node_store::{Nodes, NodesMut};
use super::replace_entries::replace;
use super::tree_path::TreePath;
use crate::types::error::Result;

/// The direction in which extents are shifted, and the number of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shift {
    /// Towards the beginning of the file, over a range without extents.
    Left(u32),
    /// Towards its end.
    Right(u32),
}

impl Shift {
    /// `extent` after the shift; `None` if its new location is out of range.
    fn moved(self, extent: &Extent) -> Option<Extent> {
        let lblk = match self {
            Self::Left(by) => extent.lblk.get().checked_sub(by)?,
            Self::Right(by) => extent.lblk.get().checked_add(by)?,
        };
        let moved = Extent {
            lblk: Lblk::new(lblk),
            ..*extent
        };
        (moved.end() <= MAX_END).then_some(moved)
    }
}

/// Shifts the extents of one leaf that lie in `from..to`: of the leftmost leaf with some if they go
/// left, else of the rightmost. Returns what is left to do, in blocks before the shift; `None` if
/// nothing is. No extent reaches over `from`; every extent that starts before `to` is shifted.
///
/// # Errors
/// Damage, a shift past either end of a file, or onto what stays; the tree is as before this step.
pub(in crate::map) fn shift_some<N: NodesMut>(
    nodes: &mut N,
    from: u64,
    to: u64,
    shift: Shift,
) -> Result<Option<(u64, u64)>> {
    let (mut from, mut to) = (from, to.min(MAX_END));
    // Each round finishes one leaf.
    while from < to {
        let at = match shift {
            Shift::Left(_) => from,
            Shift::Right(_) => to - 1,
        };
        let Ok(at) = u32::try_from(at) else { break };
        let path = TreePath::to(nodes, Lblk::new(at))?;
        let leaf = path.leaf();
        let starts = |e: &Extent| u64::from(e.lblk.get());
        let begin = leaf.extents.partition_point(|e| starts(e) < from);
        let end = leaf.extents.partition_point(|e| starts(e) < to);
        let leaf_end = leaf.end;
        let leaf_start = path.levels().last().and_then(|level| level.expect.first);
        if begin < end {
            shift_leaf(nodes, &path, begin..end, shift)?;
        }
        match shift {
            Shift::Left(_) => from = leaf_end.max(from + 1),
            Shift::Right(_) => match leaf_start.map(|start| u64::from(start.get())) {
                // Only the leaf before this one may have more.
                Some(start) if start < to && begin == 0 => to = start,
                _ => to = from,
            },
        }
        if begin < end {
            return Ok((from < to).then_some((from, to)));
        }
    }
    Ok(None)
}

fn shift_leaf<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    range: std::ops::Range<usize>,
    shift: Shift,
) -> Result<()> {
    let leaf = path.leaf();
    let misplaced = |index: usize, extent: &Extent| {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let lblk = extent.lblk;
        nodes.damaged(
            path.nearest_block(),
            ExtentError::OutOfOrder { index, lblk },
        )
    };
    let mut moved = Vec::with_capacity(range.len());
    for (index, extent) in leaf.extents.iter().enumerate() {
        if range.contains(&index) {
            moved.push(
                shift
                    .moved(extent)
                    .ok_or_else(|| misplaced(index, extent))?,
            );
        }
    }
    debug_assert_eq!(moved.len(), range.len(), "all that were asked for");
    let before = range.start.checked_sub(1).and_then(|i| leaf.extents.get(i));
    if let (Some(before), Some(first)) = (before, moved.first())
        && before.end() > u64::from(first.lblk.get())
    {
        return Err(misplaced(range.start, first));
    }
    let (range, joined) = join_neighbours(leaf, range, moved);
    replace(nodes, path, range, &joined)
}

/// Extents and nodes that a change of everything from some block on involves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::map) struct ExtentCount {
    /// Nodes in blocks of their own, on the path to any of the extents.
    pub(in crate::map) nodes: u32,
    /// Extents.
    pub(in crate::map) extents: u32,
}

/// Counts what lies in `from..to`, up to `most` nodes. Reads every leaf of it, so that damage is
/// met before anything changes.
///
/// # Errors
/// Damage, or a failed read.
pub(in crate::map) fn count<N: Nodes>(
    nodes: &N,
    from: u64,
    to: u64,
    most: u32,
) -> Result<ExtentCount> {
    let mut found = ExtentCount::default();
    let mut before: Vec<Option<Pblk>> = Vec::new();
    let mut at = from;
    while at < to.min(MAX_END) && found.nodes <= most {
        let Ok(raw) = u32::try_from(at) else { break };
        let path = TreePath::to(nodes, Lblk::new(raw))?;
        let nodes_above: Vec<Option<Pblk>> = path.levels().iter().map(|level| level.pblk).collect();
        let new = nodes_above
            .iter()
            .filter(|node| node.is_some() && !before.contains(node));
        // At most the depth of the tree above `most`.
        found.nodes += exact_u32(new.count() as u64);
        let leaf = path.leaf();
        let inside = |e: &&Extent| e.end() > from && u64::from(e.lblk.get()) < to;
        let inside = leaf.extents.iter().filter(inside).count();
        // More than 32 bits are more than any transaction can free.
        found.extents = found.extents.saturating_add(exact_u32(inside as u64));
        // Each leaf ends further right than the one before.
        at = leaf.end.max(at + 1);
        before = nodes_above;
    }
    Ok(found)
}

/// The last extent of the tree.
///
/// # Errors
/// Damage, or a failed read.
pub(in crate::map) fn last<N: Nodes>(nodes: &N) -> Result<Option<Extent>> {
    let mut to = MAX_END;
    while let Some(at) = to.checked_sub(1).and_then(|at| u32::try_from(at).ok()) {
        let path = TreePath::to(nodes, Lblk::new(at))?;
        if let Some(&extent) = path.leaf().extents.last() {
            return Ok(Some(extent));
        }
        // An empty leaf that another implementation left; the one before it starts further left.
        let first = path.levels().last().and_then(|level| level.expect.first);
        let first = first.map_or(0, |first| u64::from(first.get()));
        to = if first < to { first } else { 0 };
    }
    Ok(None)
}
