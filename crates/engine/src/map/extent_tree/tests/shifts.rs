//! Shifts of the end of a tree, leaf by leaf.

use extant_disk::extent::{Extent, MAX_END};
use extant_units::{BlockSize, Lblk};

use super::super::{Shift, insert, shift_some};
use super::memory_nodes::MemoryNodes;
use super::tree_model::ext;
use crate::test_support::test_rng::Rng;
use crate::types::error::Error;

/// Extents in a leaf of 1 KiB that was filled by appending.
const LEAF: u32 = 84;

/// A tree of `count` extents of one block, at every third block from `first` on.
fn tree_of(first: u32, count: u32) -> MemoryNodes {
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    for i in 0..count {
        let new = ext(first + i * 3, 1, 1000 + u64::from(i) * 3, i % 2 == 0);
        insert(&mut tree, new).unwrap();
    }
    tree
}

/// Shifts everything from `from` on. Returns what was left to do after each step.
fn shift_all(tree: &mut MemoryNodes, from: u32, shift: Shift) -> Vec<(u64, u64)> {
    let mut steps = Vec::new();
    let mut left = Some((u64::from(from), MAX_END));
    while let Some((from, to)) = left {
        left = shift_some(tree, from, to, shift).unwrap();
        tree.validate();
        steps.extend(left);
        assert!(steps.len() < 100, "each step finishes a leaf");
    }
    steps
}

/// `extents` with those from `from` on `by` blocks further right.
fn moved(extents: &[Extent], from: u32, by: i64) -> Vec<Extent> {
    let moved = |e: &Extent| match e.lblk.get() < from {
        true => *e,
        false => Extent {
            lblk: Lblk::new(u32::try_from(i64::from(e.lblk.get()) + by).unwrap()),
            ..*e
        },
    };
    extents.iter().map(moved).collect()
}

#[test]
fn a_shift_to_the_right_goes_from_the_last_leaf_to_the_first() {
    // Three leaves, the last of them not full.
    let start = |leaf: u32| 10 + leaf * LEAF * 3;
    let (second, third) = (u64::from(start(1)), u64::from(start(2)));
    for (from, steps) in [
        // In front of all, in a hole or at the first extent.
        (4, vec![(4, third), (4, second), (4, 10)]),
        (10, vec![(10, third), (10, second)]),
        (13, vec![(13, third), (13, second)]),
        // In the second leaf: behind its first extent, in a hole, and at its first extent.
        (start(1) + 3, vec![(u64::from(start(1)) + 3, third)]),
        (start(1) + 2, vec![(u64::from(start(1)) + 2, third)]),
        (start(1), vec![(second, third)]),
        // The last of its extents, and the hole behind it: nothing is in that leaf.
        (start(2) - 3, vec![(third - 3, third)]),
        (start(2) - 2, vec![(third - 2, third)]),
        (start(2), vec![]),
        (start(2) + 3, vec![]),
        (start(3) - 3, vec![]),
    ] {
        let mut tree = tree_of(10, 250);
        assert_eq!(tree.blocks.len(), 3);
        let expected = moved(&tree.extents(), from, 7);
        assert_eq!(shift_all(&mut tree, from, Shift::Right(7)), steps, "{from}");
        assert!(tree.extents() == expected, "{from}");
    }
    // A hole in front of all that ends where they begin.
    let none = shift_some(&mut tree_of(10, 250), 4, 10, Shift::Right(7));
    assert_eq!(none.unwrap(), None);
    // Extents in the inode itself have no leaf before theirs.
    let mut tree = tree_of(10, 4);
    let expected = moved(&tree.extents(), 13, 7);
    assert_eq!(shift_all(&mut tree, 13, Shift::Right(7)), []);
    assert_eq!(tree.extents(), expected);
}

#[test]
fn a_shift_to_the_left_goes_from_the_first_leaf_to_the_last() {
    let start = |leaf: u32| 10 + leaf * LEAF * 3;
    let (second, third) = (u64::from(start(1)), u64::from(start(2)));
    for (from, steps) in [
        (10, vec![(second, MAX_END), (third, MAX_END)]),
        (start(1) - 3, vec![(second, MAX_END), (third, MAX_END)]),
        // Behind the last extent of a leaf: the next one is the first with some.
        (start(1) - 2, vec![(third, MAX_END)]),
        (start(1), vec![(third, MAX_END)]),
        (start(2), vec![]),
    ] {
        let mut tree = tree_of(10, 250);
        let expected = moved(&tree.extents(), from, -2);
        assert_eq!(shift_all(&mut tree, from, Shift::Left(2)), steps, "{from}");
        assert!(tree.extents() == expected, "{from}");
    }
}

#[test]
fn a_shift_stops_at_what_stays_and_at_the_ends_of_a_file() {
    let parts = [
        ext(5, 10, 1000, false),
        ext(20, 10, 1010, false),
        ext(40, 10, 5000, false),
    ];
    let mut tree = MemoryNodes::new(BlockSize::KIB1, true);
    parts
        .iter()
        .for_each(|part| insert(&mut tree, *part).unwrap());
    let room = u32::try_from(MAX_END - 50).unwrap();
    for (from, shift) in [
        (20, Shift::Left(6)),
        (5, Shift::Left(6)),
        (20, Shift::Right(room + 1)),
        (20, Shift::Right(u32::MAX)),
    ] {
        let refused = shift_some(&mut tree, from, MAX_END, shift);
        assert!(
            matches!(refused, Err(Error::Corrupt { .. })),
            "{shift:?}: {refused:?}"
        );
        assert_eq!(tree.extents(), parts, "{shift:?}");
    }
    // Nothing from there on: nothing to do.
    let none = shift_some(&mut tree, 50, MAX_END, Shift::Left(50));
    assert_eq!(none.unwrap(), None);
    // As far as it goes: what touches then, on disk too, becomes one extent.
    shift_all(&mut tree, 20, Shift::Left(5));
    let joined = [ext(5, 20, 1000, false), ext(35, 10, 5000, false)];
    assert_eq!(tree.extents(), joined);
    shift_all(&mut tree, 5, Shift::Left(5));
    shift_all(&mut tree, 30, Shift::Right(room + 10));
    let last = u32::try_from(MAX_END - 10).unwrap();
    let ends = [ext(0, 20, 1000, false), ext(last, 10, 5000, false)];
    assert_eq!(tree.extents(), ends);
}

#[test]
fn random_shifts_there_and_back_leave_the_tree_as_it_was() {
    let mut rng = Rng::new(20);
    for round in 0..200 {
        let mut tree = tree_of(rng.below(40), 1 + rng.below(700));
        let before = tree.extents();
        let (from, by) = (rng.below(2200), 1 + rng.below(500));
        shift_all(&mut tree, from, Shift::Right(by));
        let there = moved(&before, from, i64::from(by));
        assert!(tree.extents() == there, "{round}: {from} by {by}");
        shift_all(&mut tree, from + by, Shift::Left(by));
        assert!(tree.extents() == before, "{round}: {from} by {by}");
    }
}
