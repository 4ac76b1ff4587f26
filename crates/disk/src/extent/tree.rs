//! A whole tree, made of the list of its extents.

use extant_units::{BlockSize, Lblk, Pblk};

use super::{
    Extent, ExtentError, Index, NodeMut, ROOT_BYTES, ROOT_CAPACITY, Slot, block_capacity,
    set_checksum,
};
use crate::csum::Crc32c;

/// How many nodes the tree over so many extents has, the root not counted.
pub fn node_count(extents: usize, bs: BlockSize) -> usize {
    let per_node = usize::from(block_capacity(bs));
    let mut level = extents;
    let mut nodes = 0;
    while level > usize::from(ROOT_CAPACITY) {
        level = level.div_ceil(per_node);
        nodes += level;
    }
    nodes
}

/// A tree as it is stored: what the inode holds, and the nodes with their blocks.
pub type StoredTree = ([u8; ROOT_BYTES], Vec<(Pblk, Vec<u8>)>);

/// The tree over `extents`, which are in file order, with its nodes in the blocks `places`, as many
/// as [`node_count`] says. `seed` starts the checksums of its owner's blocks.
///
/// # Errors
/// Extents that cannot be stored, or too few places.
pub fn store_tree(
    extents: &[Extent],
    places: &[Pblk],
    bs: BlockSize,
    seed: Option<Crc32c>,
) -> Result<StoredTree, ExtentError> {
    let mut level: Vec<(Lblk, Slot)> = Vec::with_capacity(extents.len());
    for extent in extents {
        level.push((extent.lblk, extent.encode()?));
    }
    let capacity = block_capacity(bs);
    let (mut places, mut blocks, mut depth) = (places.iter(), Vec::new(), 0);
    while level.len() > usize::from(ROOT_CAPACITY) {
        let mut above = Vec::new();
        for part in level.chunks(usize::from(capacity)) {
            let child = places.next().copied();
            let child = child.ok_or(ExtentError::Full { max: capacity })?;
            let mut bytes = vec![0; bs.bytes()];
            fill(&mut bytes, depth, capacity, part)?;
            if let Some(seed) = seed {
                set_checksum(&mut bytes, seed)?;
            }
            blocks.push((child, bytes));
            let lblk = part.first().map_or(Lblk::ZERO, |(lblk, _)| *lblk);
            above.push((lblk, Index { lblk, child }.encode()?));
        }
        (level, depth) = (above, depth + 1);
    }
    let mut root = [0; ROOT_BYTES];
    fill(&mut root, depth, ROOT_CAPACITY, &level)?;
    Ok((root, blocks))
}

fn fill(
    bytes: &mut [u8],
    depth: u16,
    max: u16,
    entries: &[(Lblk, Slot)],
) -> Result<(), ExtentError> {
    let slots: Vec<Slot> = entries.iter().map(|(_, slot)| *slot).collect();
    NodeMut::init(bytes, depth, max)?.insert(0, &slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Node;

    #[test]
    fn every_extent_is_found_again() {
        let bs = BlockSize::KIB1;
        for count in [0, 1, 4, 5, 84, 85, 400] {
            let extents: Vec<Extent> = (0..count)
                .map(|at| Extent {
                    lblk: Lblk::new(at * 3),
                    len: 2,
                    pblk: Pblk::new(u64::from(at) * 7 + 100),
                    unwritten: at % 5 == 0,
                })
                .collect();
            let nodes = node_count(extents.len(), bs);
            let places: Vec<Pblk> = (0..nodes as u64).map(Pblk::new).collect();
            let seed = Some(Crc32c::START);
            let (root, blocks) = store_tree(&extents, &places, bs, seed).unwrap();
            assert_eq!(blocks.len(), nodes);
            let root = Node::check_root(&root, |_, _| true).unwrap();
            let mut level: Vec<Node<'_>> = vec![root];
            for _ in 0..root.depth() {
                let children = level.iter().flat_map(|node| {
                    (0..node.len()).map(|at| node.index(at).expect("an index node").child)
                });
                let block = |child: Pblk| &blocks.iter().find(|(at, _)| *at == child).unwrap().1;
                let node = |child| Node::check_block(block(child), bs, seed, |_, _| true).unwrap();
                level = children.map(node).collect();
            }
            let found: Vec<Extent> = level.iter().flat_map(Node::extents).collect();
            assert_eq!(found, extents);
            if nodes > 0 {
                assert!(store_tree(&extents, &places[1..], bs, seed).is_err());
            }
        }
    }
}
