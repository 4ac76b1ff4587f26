//! Damaged trees: an answer or an error each time, no panic, no endless walk.

use extant_disk::extent::{Extent, Index, MAX_END, NodeMut, ROOT_BYTES, ROOT_CAPACITY};
use extant_units::{BlockSize, Lblk, Pblk};

use super::super::{Limit, convert_one, find, insert, remove_some, walk};
use super::memory_nodes::MemoryNodes;
use crate::test_support::test_rng::Rng;

/// A tree of depth 2 in 1 KiB blocks, without checksums: damage reaches the checks behind them.
fn deep() -> MemoryNodes {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, false);
    for i in 0..1500 {
        let (lblk, pblk) = (Lblk::new(i * 3), Pblk::new(1000 + u64::from(i) * 5));
        insert(
            &mut tree,
            Extent {
                lblk,
                len: 2,
                pblk,
                unwritten: i % 2 == 0,
            },
        )
        .unwrap();
    }
    assert_eq!(tree.depth(), 2);
    tree
}

fn copy(tree: &MemoryNodes) -> MemoryNodes {
    let mut copy = MemoryNodes::new(BlockSize::KIB1, false);
    copy.root = tree.root;
    copy.blocks = tree.blocks.clone();
    copy.skip_addresses_of(tree);
    copy
}

/// Everything that can be done with a tree; each ends.
fn use_all(tree: &mut MemoryNodes, rng: &mut Rng) -> (u32, u32) {
    let (mut good, mut bad) = (0, 0);
    let mut count = |ok: bool| if ok { good += 1 } else { bad += 1 };
    let mut walked = 0u32;
    for extent in walk(tree, Lblk::ZERO) {
        walked += 1;
        count(extent.is_ok());
        assert!(walked < 1_000_000);
    }
    for _ in 0..6 {
        let at = Lblk::new(rng.below(5000));
        count(find(tree, at).is_ok());
        let new = Extent {
            lblk: at,
            len: 1,
            pblk: Pblk::new(77),
            unwritten: false,
        };
        count(insert(tree, new).is_ok());
        let end = u64::from(at.get()) + u64::from(rng.below(300));
        count(convert_one(tree, at, end, rng.below(2) == 0).is_ok());
        count(remove_some(tree, at, end, Limit::NONE).is_ok());
    }
    let mut end = MAX_END;
    for _ in 0..3000 {
        match remove_some(tree, Lblk::ZERO, end, Limit::NONE) {
            Ok(removed) if removed.parts.is_empty() => break,
            Ok(removed) => {
                assert!(removed.clear_from < end);
                end = removed.clear_from;
            }
            Err(_) => break,
        }
    }
    (good, bad)
}

#[test]
fn mutated_nodes_give_answers_or_errors() {
    let tree = deep();
    let mut rng = Rng::new(3);
    let (mut good, mut bad) = (0, 0);
    let blocks: Vec<Pblk> = tree.blocks.keys().copied().collect();
    for _ in 0..800 {
        let mut tree = copy(&tree);
        for _ in 0..=rng.below(3) {
            let value = [0, 1, 0xff, 0x80, rng.byte()][rng.below(5) as usize];
            // The first entries and the header matter most; so do index nodes.
            if rng.below(4) == 0 {
                tree.root[rng.below(28) as usize] = value;
            } else {
                let block = blocks[rng.below(u32::try_from(blocks.len()).unwrap()) as usize];
                let reach = if rng.below(2) == 0 { 30 } else { 1020 };
                let at = rng.below(reach) as usize;
                tree.blocks.get_mut(&block).unwrap()[at] = value;
            }
        }
        let (g, b) = use_all(&mut tree, &mut rng);
        good += g;
        bad += b;
    }
    assert!(good > 2500 && bad > 250, "{good} {bad}");
}

/// A node that is its own child, or its ancestor's, or two parents' child.
#[test]
fn cycles_and_shared_nodes_are_found() {
    let mut rng = Rng::new(4);
    let tree = deep();
    let blocks: Vec<Pblk> = tree.blocks.keys().copied().collect();
    for &from in &blocks {
        for &to in blocks.iter().take(6) {
            let mut tree = copy(&tree);
            let bytes = tree.blocks[&to].clone();
            tree.blocks.insert(from, bytes);
            use_all(&mut tree, &mut rng);
        }
    }
    let mut itself = MemoryNodes::new(BlockSize::KIB1, false);
    let child = Pblk::new(5);
    let slot = Index {
        lblk: Lblk::ZERO,
        child,
    }
    .encode()
    .unwrap();
    let mut root = [0; ROOT_BYTES];
    NodeMut::init(&mut root, 5, ROOT_CAPACITY)
        .unwrap()
        .insert(0, &[slot])
        .unwrap();
    let mut block = vec![0; 1024];
    NodeMut::init(&mut block, 4, 84)
        .unwrap()
        .insert(0, &[slot])
        .unwrap();
    itself.root = root;
    itself.blocks.insert(child, block);
    assert!(find(&itself, Lblk::ZERO).is_err());
    assert_eq!(walk(&itself, Lblk::ZERO).count(), 1);
}

/// An empty leaf that another implementation left: a hole, filled or removed when met.
#[test]
fn empty_leaves_are_tolerated() {
    let tree = deep();
    let leaf = *tree.blocks.iter().find(|(_, b)| b[6] == 0).unwrap().0;
    let mut tree = copy(&tree);
    let mut range = (u32::MAX, 0);
    let block = tree.blocks.get_mut(&leaf).unwrap();
    for e in extant_disk::extent::Node::open(block).unwrap().extents() {
        range = (range.0.min(e.lblk.get()), range.1.max(e.lblk.get() + e.len));
    }
    let mut node = NodeMut::open(block).unwrap();
    let len = node.len();
    node.remove(0..len).unwrap();
    let (first, end) = range;

    assert!(matches!(
        find(&tree, Lblk::new(first + 4)),
        Ok(super::super::Found::Hole { .. })
    ));
    assert_eq!(tree.extents().len(), 1500 - len);
    let mut filled = copy(&tree);
    let new = Extent {
        lblk: Lblk::new(first + 1),
        len: 1,
        pblk: Pblk::new(9),
        unwritten: false,
    };
    insert(&mut filled, new).unwrap();
    filled.validate();
    assert_eq!(filled.extents().len(), 1501 - len);
    assert!(
        remove_some(&mut tree, Lblk::new(first), u64::from(end), Limit::NONE)
            .unwrap()
            .parts
            .is_empty()
    );
    tree.validate();
}
