//! The rows of the seed about clearing bits, one by one, as a caller sees them. What only shows
//! inside is tested beside the code.

use std::sync::Arc;

use extant_extent_io_tree::Hooks;
use extant_extent_io_tree::{Bits, ByteRange, Changeset, ClearProbe, IoTree, Totals, TreeTuning};

fn range(start: u64, last: u64) -> ByteRange {
    ByteRange::new(start, last).unwrap()
}

fn tuning(trim_on_clear: bool) -> TreeTuning {
    TreeTuning {
        trim_on_clear,
        ..TreeTuning::default()
    }
}

/// A tree with one record of delayed, dirty bytes.
fn tree(trim_on_clear: bool, delayed: ByteRange) -> IoTree {
    let tree = IoTree::new(tuning(trim_on_clear));
    tree.set(delayed, Bits::DELALLOC | Bits::DIRTY);
    tree
}

const BOTH: Bits = Bits::DELALLOC.union(Bits::DIRTY);

#[test]
fn io_tree_01_clearing_the_last_record_trims_its_front() {
    for bits in [BOTH, Bits::CLEAR_ALL, BOTH | Bits::CLEAR_DATA_RESV] {
        let (trims, splits) = (tree(true, range(10, 99)), tree(false, range(10, 99)));
        for tree in [&trims, &splits] {
            tree.clear(range(0, 49), bits);
            assert_eq!(tree.dump(), [(range(50, 99), BOTH)]);
            tree.verify();
        }
        let (with, without) = (trims.stats(), splits.stats());
        assert_eq!((with.trim_last, with.trim_first, with.splits), (1, 0, 0));
        assert_eq!((with.prealloc_allocs, without.prealloc_allocs), (0, 1));
        assert_eq!((without.trim_last, without.splits), (0, 1));
    }
}

#[test]
fn io_tree_11_clearing_the_first_record_trims_its_end() {
    for bits in [BOTH, Bits::CLEAR_ALL, BOTH | Bits::CLEAR_DATA_RESV] {
        let (trims, splits) = (tree(true, range(10, 99)), tree(false, range(10, 99)));
        for tree in [&trims, &splits] {
            tree.clear(range(50, 120), bits);
            assert_eq!(tree.dump(), [(range(10, 49), BOTH)]);
            tree.verify();
        }
        let (with, without) = (trims.stats(), splits.stats());
        assert_eq!((with.trim_first, with.trim_last, with.splits), (1, 0, 0));
        assert_eq!((with.prealloc_allocs, without.prealloc_allocs), (0, 1));
        assert_eq!((without.trim_first, without.splits), (0, 1));
    }
}

/// A record that goes on at both sides has to be cut once, and its rest is trimmed.
#[test]
fn io_tree_11_a_hole_in_the_middle_costs_one_cut() {
    let (trims, splits) = (tree(true, range(10, 99)), tree(false, range(10, 99)));
    for tree in [&trims, &splits] {
        tree.clear(range(50, 59), Bits::CLEAR_ALL);
        assert_eq!(tree.dump(), [(range(10, 49), BOTH), (range(60, 99), BOTH)]);
        tree.verify();
    }
    let (with, without) = (trims.stats(), splits.stats());
    assert_eq!((with.trim_first, with.trim_last, with.splits), (0, 1, 1));
    assert_eq!(without.splits, 2);
}

/// With a bit left over, the part is a record of its own.
#[test]
fn io_tree_11_a_record_that_keeps_a_bit_is_cut() {
    let tree = tree(true, range(10, 99));
    tree.clear(range(50, 120), Bits::DIRTY);
    let expected = [(range(10, 49), BOTH), (range(50, 99), Bits::DELALLOC)];
    assert_eq!(tree.dump(), expected);
    let stats = tree.stats();
    assert_eq!((stats.trim_first, stats.splits), (0, 1));
    // Nor is one trimmed whose lock stays: that is not the caller's to clear.
    let _held = tree.try_lock(range(0, 49), Bits::LOCKED).unwrap();
    tree.clear(range(20, 99), Bits::CLEAR_ALL);
    assert!(tree.is_locked(range(20, 49)));
    assert_eq!(tree.stats().trim_first, 0);
}

#[test]
fn io_tree_06_a_changeset_has_what_was_flipped_either_way() {
    let tree = tree(true, range(10, 19));
    let mut changes = Changeset::new();
    tree.set_with_changes(range(0, 29), Bits::DELALLOC, &mut changes);
    assert_eq!(changes.bytes(), 20);
    assert_eq!(changes.ranges(), [range(0, 9), range(20, 29)]);
    changes.clear();
    tree.set_with_changes(range(0, 29), Bits::DELALLOC, &mut changes);
    assert_eq!(changes, Changeset::new());
    tree.clear_with_changes(range(5, 24), Bits::DIRTY, &mut changes);
    assert_eq!(changes.ranges(), [range(10, 19)]);
    changes.clear();
    // Through both trims: the first record's end and the last one's front.
    tree.clear_with_changes(range(12, 39), Bits::DELALLOC, &mut changes);
    tree.clear_with_changes(range(0, 4), Bits::DELALLOC, &mut changes);
    assert_eq!(changes.ranges(), [range(12, 29), range(0, 4)]);
    assert_eq!(changes.bytes(), 23);
    assert_eq!((tree.stats().trim_first, tree.stats().trim_last), (1, 1));
}

#[test]
fn io_tree_08_without_waiters_no_thread_is_woken() {
    let tree = IoTree::default();
    for _ in 0..100 {
        drop(tree.lock(range(0, 9), Bits::LOCKED));
    }
    tree.set(range(0, 9), BOTH);
    tree.clear(range(0, 9), BOTH);
    let stats = tree.stats();
    // What is not locked needs no wake that could be left out.
    assert_eq!((stats.wakes, stats.wakes_skipped), (0, 100));
    std::thread::scope(|scope| {
        let held = tree.lock(range(0, 9), Bits::LOCKED);
        scope.spawn(|| drop(tree.lock(range(9, 9), Bits::LOCKED)));
        while tree.stats().lock_waits == 0 {
            std::thread::yield_now();
        }
        drop(held);
    });
    let stats = tree.stats();
    assert_eq!((stats.wakes, stats.wakes_skipped), (1, 101));
}

/// Memory of a call with [`Bits::NOWAIT`] is taken inside of the tree's lock; no other ever is.
#[test]
fn memory_comes_from_outside_of_the_lock() {
    let tree = IoTree::default();
    for i in 0..10_000 {
        tree.set(range(i * 10, i * 10 + 4), Bits::DIRTY);
    }
    let stats = tree.stats();
    assert!(stats.grows > 0 && stats.grows < 20, "{stats:?}");
    assert_eq!(stats.grows_inside, 0);
    // The records that a tree once had are enough for later ones.
    tree.clear(range(0, 90_000), Bits::CLEAR_ALL);
    for i in 0..9_000 {
        tree.set(range(i * 10, i * 10 + 4), Bits::DIRTY | Bits::UPTODATE);
    }
    assert_eq!(tree.stats().grows, stats.grows);
    let atomic = IoTree::default();
    atomic.set(range(0, 9), Bits::DIRTY | Bits::NOWAIT);
    let stats = atomic.stats();
    assert_eq!((stats.grows, stats.grows_inside), (0, 1));
    // So is that of a changeset, once until its list is full.
    let mut changes = Changeset::new();
    atomic.set_with_changes(range(20, 29), Bits::DIRTY | Bits::NOWAIT, &mut changes);
    atomic.set_with_changes(range(40, 49), Bits::DIRTY | Bits::NOWAIT, &mut changes);
    assert_eq!(atomic.stats().grows_inside, 2);
    let mut changes = Changeset::new();
    tree.set_with_changes(range(7, 8), Bits::DIRTY, &mut changes);
    assert_eq!((changes.bytes(), tree.stats().grows_inside), (2, 0));
}

#[test]
fn what_trees_did_adds_up_when_they_are_gone() {
    let totals = Arc::new(Totals::default());
    for trees in 0..3 {
        let tree = IoTree::counted(tuning(true), &totals);
        drop(tree.lock(range(0, 9), Bits::LOCKED));
        let gone = totals.get();
        assert_eq!(
            (gone.sets, gone.clears, gone.wakes_skipped),
            (trees, trees, trees)
        );
    }
    let all = totals.get();
    let counted = all.all().filter(|(_, count)| *count == 3);
    let names: Vec<&str> = counted.map(|(name, _)| name).collect();
    assert_eq!(names, ["sets", "clears", "grows", "wakes_skipped"]);
}

#[test]
fn tunings_with_different_probes_differ() {
    let probe = |probe| TreeTuning {
        clear_probe: Some(ClearProbe(probe)),
        ..TreeTuning::default()
    };
    let [one, other]: [fn(u64); 2] = [|took| assert!(took < 1), |took| assert!(took < 2)];
    assert_eq!(probe(one), probe(one));
    assert_ne!(probe(one), probe(other));
    assert_ne!(probe(one), TreeTuning::default());
}

#[test]
fn a_probe_learns_of_every_clear() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let tree = IoTree::new(TreeTuning {
        clear_probe: Some(ClearProbe(|_| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        })),
        ..TreeTuning::default()
    });
    drop(tree.lock(range(0, 9), Bits::LOCKED));
    tree.set(range(0, 9), BOTH);
    tree.clear(range(0, 4), Bits::CLEAR_ALL);
    assert_eq!(CALLS.load(Ordering::Relaxed), tree.stats().clears);
    assert_eq!(tree.stats().clears, 2);
}

/// Bytes that were paid for, and bytes that are set.
#[derive(Default)]
struct Account {
    paid: u64,
    set: u64,
}

impl Hooks for Account {
    fn set(&mut self, range: ByteRange, _had: Bits, _bits: Bits, _control: Bits) {
        self.set += range.bytes();
        assert!(self.set <= self.paid, "set before it was paid for");
    }
}

#[test]
fn bits_are_set_after_what_pays_for_them() {
    let tree = IoTree::with_hooks(tuning(true), Account::default());
    tree.set_accounted(range(0, 99), Bits::DELALLOC, |account| account.paid += 100);
    assert_eq!(tree.dump(), [(range(0, 99), Bits::DELALLOC)]);
    assert_eq!(
        tree.hooks(|account| (account.paid, account.set)),
        (100, 100)
    );
}
