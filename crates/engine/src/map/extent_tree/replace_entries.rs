//! The one change of a tree: entries of a leaf are replaced by others.

use std::ops::Range;

use extant_disk::extent::{
    Extent, ExtentError, Index, MAX_DEPTH, MAX_END, NodeMut, ROOT_BYTES, ROOT_CAPACITY, Slot,
};
use extant_units::{Lblk, Pblk};

use super::node_store::{Nodes, NodesMut};
use super::tree_path::{TreeLevel, TreePath};
use crate::types::error::Result;

/// Replaces `range` of the entries of `path`'s leaf by `new`, which must be sorted and lie between
/// its neighbours. At most two entries more than before. `path` is stale afterwards.
///
/// A failure before the first change (no space for a node, a damaged node) leaves the tree as it
/// was.
pub(super) fn replace<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    range: Range<usize>,
    new: &[Extent],
) -> Result<()> {
    let before = |pair: &[Extent]| pair[0].end() <= u64::from(pair[1].lblk.get());
    debug_assert!(new.windows(2).all(before), "extents in order: {new:?}");
    debug_assert!(
        new.len() <= range.len() + 2,
        "a leaf overflows by two entries at most"
    );
    let Some(leaf) = path.levels().last() else {
        return Ok(());
    };
    let mut entries = leaf.node(nodes)?.slots().to_vec();
    let encoded = new
        .iter()
        .map(Extent::encode)
        .collect::<Result<Vec<Slot>, _>>()
        .map_err(|why| nodes.damaged(leaf.pblk, why))?;
    if range.start > range.end || range.end > entries.len() {
        let why = ExtentError::NoSuchEntry {
            index: range.end,
            entries: u16::try_from(entries.len()).unwrap_or(u16::MAX),
        };
        return Err(nodes.damaged(leaf.pblk, why));
    }
    let appended = range.end == entries.len();
    let shrinks = encoded.len() < range.len();
    entries.splice(range, encoded);

    if entries.is_empty() {
        remove_leaf(nodes, path)?;
    } else if entries.len() <= usize::from(leaf.node(nodes)?.max()) {
        let first = starts_at(&entries);
        write(nodes, leaf, leaf.node(nodes)?.depth(), &entries)?;
        set_first(nodes, path, path.bottom(), first)?;
    } else {
        split(nodes, path, entries, appended)?;
    }
    if shrinks {
        pull_up(nodes)?;
    }
    Ok(())
}

/// Splits `path`'s leaf if it is full, for an entry that will be inserted at `at`. `path` is stale
/// afterwards.
///
/// A failure before the first change leaves the tree as it was.
pub(super) fn split_full<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    at: usize,
) -> Result<()> {
    let Some(leaf) = path.levels().last() else {
        return Ok(());
    };
    let node = leaf.node(nodes)?;
    if !node.is_full() {
        return Ok(());
    }
    if node.max() < 2 {
        return Err(nodes.damaged(leaf.pblk, ExtentError::Full { max: node.max() }));
    }
    let entries = node.slots().to_vec();
    split(nodes, path, entries, at >= node.len())
}

/// The first file block of a node with these entries.
fn starts_at(entries: &[Slot]) -> Lblk {
    entries
        .first()
        .map_or(Lblk::ZERO, |slot| Index::decode(slot).lblk)
}

/// A root's bytes with these entries.
pub(super) fn root_bytes<N: Nodes>(
    nodes: &N,
    depth: u16,
    entries: &[Slot],
) -> Result<[u8; ROOT_BYTES]> {
    let mut root = [0; ROOT_BYTES];
    NodeMut::init(&mut root, depth, ROOT_CAPACITY)
        .and_then(|mut node| node.insert(0, entries))
        .map_err(|why| nodes.damaged(None, why))?;
    Ok(root)
}

/// Replaces all entries of a node.
fn write<N: NodesMut>(
    nodes: &mut N,
    level: &TreeLevel<N::Bytes>,
    depth: u16,
    entries: &[Slot],
) -> Result<()> {
    match level.pblk {
        Some(at) => nodes.edit(at, |node| node.replace_all(entries)),
        None => {
            let root = root_bytes(nodes, depth, entries)?;
            nodes.set_root(&root)
        }
    }
}

/// After the first file block of the node at level `below` became `first`: updates its parent's
/// entry, and while that is a first entry itself, the entry above.
fn set_first<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    below: usize,
    first: Lblk,
) -> Result<()> {
    let parents = &path.levels()[..below];
    for level in parents.iter().rev() {
        let node = level.node(nodes)?;
        let Some(index) = node.index(level.at).filter(|index| index.lblk != first) else {
            return Ok(());
        };
        let slot = index_slot(nodes, first, index.child)?;
        match level.pblk {
            Some(at) => {
                let index = level.at;
                nodes.edit(at, |node| node.set(index, slot))?;
            }
            None => {
                let mut entries = node.slots().to_vec();
                if let Some(index) = entries.get_mut(level.at) {
                    *index = slot;
                }
                write(nodes, level, node.depth(), &entries)?;
            }
        }
        if level.at != 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Removes the leaf, which has no entry left, and every node above it that this empties.
fn remove_leaf<N: NodesMut>(nodes: &mut N, path: &TreePath<N::Bytes>) -> Result<()> {
    let mut unlinked = Vec::new();
    for (number, level) in path.levels().iter().enumerate().rev() {
        // In the leaf nothing is left; above it, all but the entry that the path follows.
        let node = level.node(nodes)?;
        let mut entries = node.slots().to_vec();
        if number == path.bottom() {
            entries.clear();
        } else if level.at < entries.len() {
            entries.remove(level.at);
        }
        match level.pblk {
            Some(at) if entries.is_empty() => unlinked.push(at),
            Some(at) => {
                let index = level.at;
                nodes.edit(at, |node| node.remove(index..index + 1))?;
                set_first(nodes, path, number, starts_at(&entries))?;
                break;
            }
            None => {
                let depth = if entries.is_empty() { 0 } else { node.depth() };
                write(nodes, level, depth, &entries)?;
            }
        }
    }
    unlinked.into_iter().for_each(|at| nodes.release(at));
    Ok(())
}

/// While the root's only child fits into the root, moves it there. Never fails for a child that
/// cannot be read: the tree is valid either way.
fn pull_up<N: NodesMut>(nodes: &mut N) -> Result<()> {
    for _ in 0..MAX_DEPTH {
        let Ok(root) = TreeLevel::root(nodes) else {
            return Ok(());
        };
        let Ok(Some(child)) = root.child(nodes) else {
            return Ok(());
        };
        let (above, below) = (root.node(nodes)?, child.node(nodes)?);
        if above.len() != 1 || below.len() > usize::from(ROOT_CAPACITY) {
            return Ok(());
        }
        let bytes = root_bytes(nodes, below.depth(), below.slots())?;
        nodes.set_root(&bytes)?;
        if let Some(at) = child.pblk {
            nodes.release(at);
        }
    }
    Ok(())
}

/// Splits the leaf, which gets `entries` and is full or overflows, and every full node above that
/// has to take one more entry. A root that overflows moves down into a block, and the tree grows by
/// a level.
fn split<N: NodesMut>(
    nodes: &mut N,
    path: &TreePath<N::Bytes>,
    mut entries: Vec<Slot>,
    appended: bool,
) -> Result<()> {
    let mut fresh = allocate(nodes, path)?.into_iter();
    for (number, level) in path.levels().iter().enumerate().rev() {
        let (depth, max) = {
            let node = level.node(nodes)?;
            (node.depth(), usize::from(node.max()))
        };
        if number < path.bottom() && entries.len() <= max {
            debug_assert!(
                fresh.next().is_none(),
                "each block that was allocated is used"
            );
            let first = starts_at(&entries);
            write(nodes, level, depth, &entries)?;
            return set_first(nodes, path, number, first);
        }
        let Some(block) = fresh.next() else {
            return Err(nodes.damaged(level.pblk, ExtentError::Full { max: ROOT_CAPACITY }));
        };
        let parent = number
            .checked_sub(1)
            .and_then(|above| path.levels().get(above));
        let (Some(at), Some(parent)) = (level.pblk, parent) else {
            // The root: all of it goes one level down.
            debug_assert!(
                fresh.next().is_none(),
                "each block that was allocated is used"
            );
            nodes.create(block, depth, &entries)?;
            let only = index_slot(nodes, starts_at(&entries), block)?;
            let root = root_bytes(nodes, depth + 1, &[only])?;
            return nodes.set_root(&root);
        };
        // A tree that grows at its end keeps the left node full; every other split is in the
        // middle.
        let grows_at_end = appended && level.expect.end >= MAX_END;
        let cut = if grows_at_end {
            entries.len() - 1
        } else {
            entries.len() / 2
        };
        let right = entries.split_off(cut.min(max));
        nodes.create(block, depth, &right)?;
        nodes.edit(at, |node| node.replace_all(&entries))?;

        let left = index_slot(nodes, starts_at(&entries), at)?;
        let right = index_slot(nodes, starts_at(&right), block)?;
        entries = parent.node(nodes)?.slots().to_vec();
        if let Some(index) = entries.get_mut(parent.at) {
            *index = left;
        }
        let index = (parent.at + 1).min(entries.len());
        entries.insert(index, right);
    }
    Ok(())
}

/// An encoded index entry.
pub(super) fn index_slot<N: Nodes>(nodes: &N, lblk: Lblk, child: Pblk) -> Result<Slot> {
    Index { lblk, child }
        .encode()
        .map_err(|why| nodes.damaged(Some(child), why))
}

/// Allocates the blocks that a split of `path`'s leaf needs: one for each full node from the leaf
/// upwards, the root included. Refuses a tree that would become too deep.
fn allocate<N: NodesMut>(nodes: &mut N, path: &TreePath<N::Bytes>) -> Result<Vec<Pblk>> {
    // The leaf itself is known to overflow.
    let mut needed = 1usize;
    let mut parents = path.levels().iter().rev();
    let mut overflowing = parents.next();
    for parent in parents {
        if !parent.node(nodes)?.is_full() {
            overflowing = None;
            break;
        }
        needed += 1;
        overflowing = Some(parent);
    }
    if let Some(root) = overflowing {
        let depth = root.node(nodes)?.depth();
        if depth >= MAX_DEPTH {
            let why = ExtentError::BadDepth {
                found: depth + 1,
                expected: MAX_DEPTH,
            };
            return Err(nodes.damaged(None, why));
        }
    }
    nodes.allocate(None, needed)
}
