//! Random operations against a map with an entry per block.

use std::collections::BTreeMap;

use extant_disk::extent::{
    Extent, Index, MAX_DEPTH, MAX_END, MAX_UNWRITTEN, MAX_WRITTEN, NodeMut, ROOT_BYTES,
    ROOT_CAPACITY, Slot, block_capacity,
};
use extant_units::{BlockSize, Lblk, Pblk};

use super::super::{
    Found, Limit, NodesMut, convert_one, count, find, insert, prepare, remove_some, split_at,
};
use super::memory_nodes::MemoryNodes;
use crate::test_support::test_rng::Rng;
use crate::types::error::Error;
use crate::volume::credits::index_blocks;

/// Per block: where, and whether unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

pub(super) fn ext(lblk: u32, len: u32, pblk: u64, unwritten: bool) -> Extent {
    Extent {
        lblk: Lblk::new(lblk),
        len,
        pblk: Pblk::new(pblk),
        unwritten,
    }
}

/// The tree's content, per block.
fn content(tree: &MemoryNodes) -> Model {
    let mut all = Model::new();
    for e in tree.extents() {
        for i in 0..e.len {
            let old = all.insert(e.lblk.get() + i, (e.pblk.get() + u64::from(i), e.unwritten));
            assert!(old.is_none());
        }
    }
    all
}

fn remove(tree: &mut MemoryNodes, from: u32, to: u64, step: usize) -> Vec<Extent> {
    let limit = Limit {
        extents: step,
        blocks: 1 + (to % 7) * 3,
    };
    let mut freed = Vec::new();
    let mut end = to;
    loop {
        let removed = remove_some(tree, Lblk::new(from), end, limit).unwrap();
        assert!(removed.parts.len() <= step);
        assert!(removed.parts.iter().map(|e| u64::from(e.len)).sum::<u64>() <= limit.blocks);
        tree.validate();
        if removed.parts.is_empty() {
            return freed;
        }
        assert!(removed.clear_from < end);
        end = removed.clear_from;
        freed.extend(removed.parts);
    }
}

/// As an allocation does it: once prepared, inserting needs no node.
fn prepare_and_insert(tree: &mut MemoryNodes, new: Extent) {
    let (before, after) = prepare(tree, new.lblk).unwrap();
    assert!(before.is_none_or(|e| e.end() <= u64::from(new.lblk.get())));
    assert!(after.is_none_or(|e| u64::from(e.lblk.get()) >= new.end()));
    tree.validate();
    tree.room = 0;
    insert(tree, new).unwrap();
    tree.room = usize::MAX;
}

fn convert(tree: &mut MemoryNodes, from: u32, to: u64, unwritten: bool) -> u32 {
    let mut blocks = 0;
    while let Some(done) = convert_one(tree, Lblk::new(from), to, unwritten).unwrap() {
        tree.validate();
        blocks += done.len;
    }
    blocks
}

/// A tree and its model.
struct Pair {
    tree: MemoryNodes,
    model: Model,
    rng: Rng,
    span: u32,
    longest: u32,
    next_pblk: u64,
}

impl Pair {
    /// One random operation on both; the tree grows or shrinks.
    fn step(&mut self, grow: bool) {
        let at = self.rng.below(self.span);
        let to = (at + 1 + self.rng.below(self.longest)).min(self.span);
        match self.rng.below(10) {
            0..=5 if grow => self.grow(at, to),
            6 | 7 => {
                let state = self.rng.below(3) == 0;
                let mut blocks: Vec<_> = self.model.range_mut(at..to).map(|(_, b)| b).collect();
                let expected = blocks.iter().filter(|b| b.1 != state).count();
                let done = convert(&mut self.tree, at, u64::from(to), state);
                assert_eq!(done as usize, expected);
                blocks.iter_mut().for_each(|b| b.1 = state);
            }
            _ => {
                let step = 1 + self.rng.below(3) as usize;
                let freed = remove(&mut self.tree, at, u64::from(to), step);
                let mut freed: Vec<u64> = freed
                    .iter()
                    .flat_map(|e| (0..e.len).map(|i| e.pblk.get() + u64::from(i)))
                    .collect();
                let gone = self.model.range(at..to);
                let mut expected: Vec<u64> = gone.map(|(_, b)| b.0).collect();
                freed.sort_unstable();
                expected.sort_unstable();
                assert_eq!(freed, expected);
                self.model.retain(|l, _| !(at..to).contains(l));
            }
        }
    }

    /// Maps the hole at `at`, as far as `to` at most.
    fn grow(&mut self, at: u32, to: u32) {
        let next = self.model.range(at..).next();
        let hole_end = next.map_or(to, |(&l, _)| l.min(to));
        if hole_end == at {
            return;
        }
        // Half of the time right behind the block before, as an allocator does.
        let before = at.checked_sub(1).and_then(|l| self.model.get(&l));
        let pblk = match before {
            Some(&(p, _)) if self.rng.below(2) == 0 => p + 1,
            _ => self.next_pblk,
        };
        self.next_pblk += u64::from(self.longest) * 2;
        let new = ext(at, hole_end - at, pblk, self.rng.below(2) == 0);
        if self.rng.below(3) == 0 {
            prepare_and_insert(&mut self.tree, new);
        } else {
            insert(&mut self.tree, new).unwrap();
        }
        for i in 0..new.len {
            let block = (pblk + u64::from(i), new.unwritten);
            self.model.insert(at + i, block);
        }
    }

    /// Looks a random block up in both.
    fn probe(&mut self) {
        let (tree, model, probe) = (&self.tree, &self.model, self.rng.below(self.span));
        match (find(tree, Lblk::new(probe)).unwrap(), model.get(&probe)) {
            (Found::Extent(e), Some(&(p, unwritten))) => {
                let offset = probe - e.lblk.get();
                assert_eq!(
                    (e.pblk.get() + u64::from(offset), e.unwritten),
                    (p, unwritten)
                );
            }
            (Found::Hole { start, end }, None) => {
                assert!(start.get() <= probe && u64::from(probe) < end);
                let next = model
                    .range(probe..)
                    .next()
                    .map_or(MAX_END, |(&l, _)| u64::from(l));
                assert_eq!(end, next);
                assert_eq!(model.range(start.get()..probe).count(), 0);
            }
            (found, expected) => panic!("block {probe}: {found:?}, expected {expected:?}"),
        }
    }
}

/// A random history over `span` file blocks; the tree equals the model all the time. Returns the
/// largest depth.
fn storm(
    (block_size, csum): (BlockSize, bool),
    span: u32,
    longest: u32,
    rounds: u32,
    seed: u64,
) -> u16 {
    let mut pair = Pair {
        tree: MemoryNodes::new(block_size, csum),
        model: Model::new(),
        rng: Rng::new(seed),
        span,
        longest,
        next_pblk: 1000,
    };
    let mut deepest = 0;
    for round in 0..rounds {
        // Phases of growth and of shrinking, so that trees get deep and come back.
        pair.step((round / 4000) % 2 == 0);
        deepest = deepest.max(pair.tree.depth());
        pair.probe();
        if round % 64 == 0 {
            pair.tree.validate();
            assert_eq!(content(&pair.tree), pair.model);
        }
    }
    let mut tree = pair.tree;
    assert_eq!(content(&tree), pair.model);
    remove(&mut tree, 0, MAX_END, 7);
    assert!(tree.blocks.is_empty(), "an empty tree needs no blocks");
    assert_eq!(tree.depth(), 0);
    deepest
}

#[test]
fn small_nodes_grow_deep_and_come_back() {
    assert!(storm((BlockSize::KIB1, true), 4000, 4, 9000, 1) >= 2);
    assert!(storm((BlockSize::KIB1, false), 4000, 3, 6000, 2) >= 2);
}

#[test]
fn every_block_size_equals_the_model() {
    for log2 in [10, 11, 12, 16] {
        for csum in [true, false] {
            let block_size = BlockSize::from_log2(log2).unwrap();
            storm((block_size, csum), 900, 40, 4000, u64::from(log2));
        }
    }
}

#[test]
fn appending_fills_leaves() {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in 0..20_000 {
        insert(&mut tree, ext(i * 2, 1, 1000 + u64::from(i) * 3, false)).unwrap();
    }
    tree.validate();
    // 84 entries each, all full but the last of each level.
    assert_eq!(tree.blocks.len(), 20_000_usize.div_ceil(84) + 3);
    assert_eq!(tree.depth(), 2);
}

#[test]
fn descending_inserts_keep_keys_exact() {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in (0..3000).rev() {
        insert(&mut tree, ext(i * 2 + 10, 1, 1000 + u64::from(i) * 3, true)).unwrap();
        if i % 100 == 0 {
            tree.validate();
        }
    }
    assert_eq!(tree.extents().len(), 3000);
}

#[test]
fn neighbours_join_up_to_the_longest_extent() {
    let mut tree = MemoryNodes::new(BlockSize::KIB4, true);
    let half = MAX_WRITTEN / 2;
    for i in [0, 2, 1, 3] {
        insert(
            &mut tree,
            ext(i * half, half, 5000 + u64::from(i * half), false),
        )
        .unwrap();
    }
    assert_eq!(tree.extents().len(), 2);
    // Written to unwritten: one block more than an unwritten extent can hold.
    assert_eq!(convert(&mut tree, 0, MAX_END, true), 2 * MAX_WRITTEN);
    let lens: Vec<u32> = tree.extents().iter().map(|e| e.len).collect();
    assert_eq!(lens, [MAX_UNWRITTEN, 1, MAX_UNWRITTEN, 1]);
    assert_eq!(convert(&mut tree, 0, MAX_END, false), 2 * MAX_WRITTEN);
    assert!(tree.extents().iter().all(|e| !e.unwritten));
}

#[test]
fn overlaps_are_refused() {
    let mut tree = MemoryNodes::new(BlockSize::KIB4, true);
    insert(&mut tree, ext(10, 10, 500, false)).unwrap();
    for bad in [
        ext(10, 1, 1, false),
        ext(19, 5, 1, false),
        ext(5, 6, 1, false),
        ext(0, 40, 1, false),
    ] {
        assert!(matches!(insert(&mut tree, bad), Err(Error::Corrupt { .. })));
    }
    assert_eq!(tree.extents(), [ext(10, 10, 500, false)]);
    let last = ext(u32::MAX - 5, 5, 900, false);
    insert(&mut tree, last).unwrap();
    assert!(insert(&mut tree, ext(u32::MAX - 9, 10, 1, false)).is_err());
    assert_eq!(
        remove(&mut tree, 15, MAX_END, 9),
        [last, ext(15, 5, 505, false)]
    );
}

/// Space for nodes runs out at every possible place: an error, and the tree as before the step.
#[test]
fn no_space_changes_nothing() {
    let mut rng = Rng::new(9);
    let mut refused = 0;
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in 0..5000u32 {
        let before = tree.blocks.len();
        tree.room = if rng.below(4) == 0 {
            0
        } else {
            rng.below(3) as usize
        };
        let at = rng.below(1 << 20) * 4;
        let extents = (i % 50 == 0).then(|| tree.extents());
        let done = match rng.below(3) {
            0 | 1 => match find(&tree, Lblk::new(at)).unwrap() {
                Found::Hole { .. } => insert(&mut tree, ext(at, 3, 10 + u64::from(i) * 9, false)),
                Found::Extent(_) => continue,
            },
            // The middle of an extent: splits it.
            _ => {
                remove_some(&mut tree, Lblk::new(at + 1), u64::from(at) + 2, Limit::NONE).map(drop)
            }
        };
        if let Err(error) = done {
            assert_eq!(error.errno(), Error::NoSpace.errno());
            assert_eq!(tree.blocks.len(), before);
            if let Some(extents) = extents {
                assert_eq!(tree.extents(), extents);
            }
            tree.validate();
            refused += 1;
        }
    }
    assert!(refused > 50, "{refused}");
}

/// A step changes no more nodes than the credits promise: two nodes per level and one more.
#[test]
fn steps_touch_few_nodes() {
    let mut rng = Rng::new(5);
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in 0..30_000u32 {
        tree.touched.clear();
        let at = rng.below(40_000) * 4;
        if let Found::Hole { .. } = find(&tree, Lblk::new(at)).unwrap() {
            insert(&mut tree, ext(at, 3, 10 + u64::from(i) * 9, false)).unwrap();
        } else {
            remove_some(&mut tree, Lblk::new(at + 1), u64::from(at) + 2, Limit::NONE).unwrap();
        }
        assert!(tree.touched.len() <= usize::from(tree.depth().max(1)) * 2);
    }
    assert_eq!(tree.depth(), 3);
    assert!(tree.depth() < MAX_DEPTH);
}

/// A tree of the greatest depth, full on the path to its leaf, which is child `at` of each node
/// above. The leaf has every tenth block from `FIRST` on; no other child exists.
fn deepest_tree(at: u32) -> MemoryNodes {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    let full = u32::from(block_capacity(BlockSize::KIB1));
    let leaf = (0..full).map(|i| ext(FIRST + i * 10, 1, 1000 + u64::from(i) * 3, false));
    let mut entries: Vec<Slot> = leaf.map(|extent| extent.encode().unwrap()).collect();
    let mut starts = FIRST;
    let index = |lblk, child| {
        let (lblk, child) = (Lblk::new(lblk), Pblk::new(child));
        Index { lblk, child }.encode().unwrap()
    };
    for depth in 0..MAX_DEPTH {
        let node = (1 << 41) + u64::from(depth);
        tree.create(Pblk::new(node), depth, &entries).unwrap();
        // The root has room for one more entry: such a tree gets no deeper.
        let (before, all) = match depth + 1 < MAX_DEPTH {
            true => (at, full),
            false => (at * 2 / (full - 1), 3),
        };
        let behind = FIRST + u32::from(depth + 1) * 100_000;
        let (first, node) = (starts - before, index(starts, node));
        entries = (0..before).map(|i| index(first + i, 1 << 42)).collect();
        entries.push(node);
        entries.extend((before + 1..all).map(|i| index(behind + i, 1 << 42)));
        starts = first;
    }
    let mut root = [0; ROOT_BYTES];
    let mut node = NodeMut::init(&mut root, MAX_DEPTH, ROOT_CAPACITY).unwrap();
    node.insert(0, &entries).unwrap();
    tree.root = root;
    tree.touched.clear();
    tree
}

const FIRST: u32 = 10_000_000;

/// The same where every node splits: the credits hold for one extent, and for the blocks that a
/// directory gets at its end.
#[test]
fn credits_suffice_in_a_full_tree_of_the_greatest_depth() {
    let last = u32::from(block_capacity(BlockSize::KIB1)) - 1;
    for (at, lblk) in [
        (0, FIRST - 20),
        (last / 2, FIRST + 405),
        (last, FIRST + 900),
    ] {
        let mut tree = deepest_tree(at);
        for nth in 0..4 {
            // Not one extent with those before.
            let new = ext(lblk + nth, 1, 7_000_000 + u64::from(nth) * 9, false);
            prepare(&mut tree, new.lblk).unwrap();
            insert(&mut tree, new).unwrap();
            let credits = index_blocks(BlockSize::KIB1, nth + 1) as usize;
            assert!(
                tree.touched.len() <= credits,
                "child {at}: {:?}",
                tree.touched
            );
        }
        // One that was there and a new one on each level.
        assert_eq!(tree.touched.len(), usize::from(MAX_DEPTH) * 2, "child {at}");
        assert_eq!(tree.depth(), MAX_DEPTH);
    }
}

#[test]
fn a_count_is_of_its_range_and_ends_above_its_limit() {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in 0..1000 {
        insert(&mut tree, ext(i * 2, 1, 1000 + u64::from(i) * 3, false)).unwrap();
    }
    let counted = |from, to, most| {
        let counted = count(&tree, from, to, most).unwrap();
        (counted.nodes, counted.extents)
    };
    // 84 extents in a leaf, and one node above the leaves.
    assert_eq!(counted(0, 336, 99), (3, 168));
    assert_eq!(counted(0, 337, 99), (4, 169));
    assert_eq!(counted(336, 336, 99), (0, 0));
    assert_eq!(counted(0, MAX_END, 99), (13, 1000));
    // Reading ends with the first node too many.
    assert_eq!(counted(0, MAX_END, 1), (2, 84));
    assert_eq!(counted(0, MAX_END, 2), (3, 168));
}

#[test]
fn an_extent_is_cut_where_it_does_not_begin() {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    insert(&mut tree, ext(10, 8, 1000, true)).unwrap();
    for at in [9, 10, 18] {
        assert!(!split_at(&mut tree, Lblk::new(at)).unwrap(), "{at}");
    }
    assert!(split_at(&mut tree, Lblk::new(13)).unwrap());
    let parts = [ext(10, 3, 1000, true), ext(13, 5, 1003, true)];
    assert_eq!(tree.extents(), parts);
}
