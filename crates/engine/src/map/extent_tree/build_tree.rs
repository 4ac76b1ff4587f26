//! Building a whole tree at once.

use extant_disk::extent::{Extent, ExtentError, ROOT_CAPACITY, Slot, block_capacity};
use extant_units::{BlockSize, Lblk};

use super::node_store::NodesMut;
use super::replace_entries::{index_slot, root_bytes};
use crate::types::error::Result;

/// Number of nodes, besides the root, that [`build`] makes for `extents` extents.
pub(in crate::map) fn nodes_for(block_size: BlockSize, extents: usize) -> usize {
    let capacity = usize::from(block_capacity(block_size)).max(2);
    let (mut entries, mut nodes) = (extents, 0);
    while entries > usize::from(ROOT_CAPACITY) {
        entries = entries.div_ceil(capacity);
        nodes += entries;
    }
    nodes
}

/// Replaces the tree by one of `extents`, which are sorted, disjoint and merged, with full nodes.
/// The caller frees the old nodes.
///
/// # Errors
/// No space for the nodes: nothing has changed then. After that only a stopped journal.
pub(in crate::map) fn build<N: NodesMut>(nodes: &mut N, extents: &[Extent]) -> Result<()> {
    let capacity = usize::from(block_capacity(nodes.block_size())).max(2);
    debug_assert!(
        extents
            .windows(2)
            .all(|two| two[0].end() <= u64::from(two[1].lblk.get())),
        "extents in order"
    );
    let encode = |extent: &Extent| Ok((extent.lblk, extent.encode()?));
    let mut entries = extents
        .iter()
        .map(encode)
        .collect::<Result<Vec<(Lblk, Slot)>, ExtentError>>()
        .map_err(|why| nodes.damaged(None, why))?;
    let goal = extents.first().map(|extent| extent.pblk);
    let count = nodes_for(nodes.block_size(), extents.len());
    let mut blocks = nodes.allocate(goal, count)?.into_iter();
    let slots = |entries: &[(Lblk, Slot)]| entries.iter().map(|(_, slot)| *slot).collect();
    let mut depth = 0;
    while entries.len() > usize::from(ROOT_CAPACITY) {
        let mut above = Vec::with_capacity(entries.len().div_ceil(capacity));
        for (part, at) in entries.chunks(capacity).zip(&mut blocks) {
            let below: Vec<Slot> = slots(part);
            nodes.create(at, depth, &below)?;
            let first = part.first().map_or(Lblk::ZERO, |(first, _)| *first);
            above.push((first, index_slot(nodes, first, at)?));
        }
        entries = above;
        depth += 1;
    }
    debug_assert!(blocks.next().is_none(), "as many nodes as were counted");
    let top: Vec<Slot> = slots(&entries);
    let root = root_bytes(nodes, depth, &top)?;
    nodes.set_root(&root)
}
