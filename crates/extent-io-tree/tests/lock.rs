//! Lock bits: which request is granted, which waits, and which is woken.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, yield_now};

use extant_extent_io_tree::{Bits, ByteRange, IoTree, TreeTuning};

fn range(start: u64, last: u64) -> ByteRange {
    ByteRange::new(start, last).unwrap()
}

/// Returns as soon as `waits` calls have gone to sleep.
fn until_asleep(tree: &IoTree, waits: u64) {
    while tree.stats().lock_waits < waits {
        yield_now();
    }
}

#[test]
fn a_range_has_one_owner() {
    let tree = IoTree::default();
    assert!(!tree.is_locked(ByteRange::ALL));
    let held = tree.lock(range(100, 199), Bits::LOCKED);
    assert_eq!(held.range(), range(100, 199));
    for other in [range(0, 100), range(150, 160), ByteRange::to_infinity(199)] {
        assert!(tree.try_lock(other, Bits::LOCKED).is_none(), "{other}");
        assert!(tree.is_locked(other));
    }
    let beside = [range(0, 99), ByteRange::to_infinity(200)];
    let more = beside.map(|other| tree.try_lock(other, Bits::LOCKED).unwrap());
    tree.verify();
    assert_eq!(tree.records(), 3, "locked neighbours are not one record");
    drop(held);
    assert!(!tree.is_locked(range(100, 199)) && tree.is_locked(range(99, 199)));
    drop(more);
    assert!(!tree.is_locked(ByteRange::ALL));
    assert_eq!(tree.records(), 0);
    assert_eq!(tree.stats().wakes, 0);
    assert_eq!(tree.stats().wakes_skipped, 3);
    tree.verify();
}

#[test]
fn j36_a_request_that_is_blocked_takes_nothing() {
    let tree = IoTree::default();
    let held = [range(10, 19), range(30, 39)].map(|r| tree.lock(r, Bits::LOCKED));
    assert!(tree.try_lock(range(0, 35), Bits::LOCKED).is_none());
    assert!(tree.try_lock(range(20, 39), Bits::LOCKED).is_none());
    assert_eq!(tree.records(), 2);
    assert!(!tree.is_locked(range(0, 9)) && !tree.is_locked(range(20, 29)));
    // One that sleeps holds nothing either, not even what no other thread has.
    let done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            let _all = tree.lock(range(0, 50), Bits::LOCKED);
            done.store(true, Ordering::Relaxed);
        });
        until_asleep(&tree, 1);
        assert!(!tree.is_locked(range(0, 9)) && !tree.is_locked(range(20, 29)));
        drop(tree.try_lock(range(0, 9), Bits::LOCKED).unwrap());
        let [first, second] = held;
        drop(first);
        until_asleep(&tree, 1);
        assert!(!done.load(Ordering::Relaxed));
        drop(second);
    });
    assert!(done.load(Ordering::Relaxed));
    tree.verify();
}

#[test]
fn direct_and_buffered_locks_are_two() {
    let tree = Arc::new(IoTree::default());
    let reads = tree.try_lock_owned(range(0, 99), Bits::DIO_LOCKED).unwrap();
    assert!(!tree.is_locked(ByteRange::ALL));
    assert!(tree.is_locked_by(range(0, 9), Bits::LOCKS));
    let buffered = tree.lock(range(50, 59), Bits::LOCKED);
    tree.verify();
    assert!(tree.try_lock_owned(range(99, 99), Bits::LOCKS).is_none());
    assert!(tree.try_lock(range(55, 120), Bits::LOCKED).is_none());
    drop(buffered);
    // A guard may end in another thread, as the last owner of the tree.
    let weak = Arc::downgrade(&tree);
    drop(tree);
    std::thread::spawn(move || {
        drop(reads);
    })
    .join()
    .unwrap();
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_question_says_what_a_request_would_meet() {
    let tree = IoTree::default();
    assert!(!tree.would_block(ByteRange::ALL, Bits::LOCKS));
    let change = tree.lock(range(10, 19), Bits::LOCKED);
    assert!(tree.would_block(range(0, 10), Bits::LOCKED));
    assert!(tree.would_block(range(19, 30), Bits::LOCKS));
    assert!(!tree.would_block(range(20, 30), Bits::LOCKED));
    assert!(!tree.would_block(range(10, 19), Bits::DIO_LOCKED));
    drop(change);
    let fill = tree.lock(range(10, 19), Bits::DIO_LOCKED);
    assert_eq!(fill.range(), range(10, 19));
    assert!(tree.would_block(range(0, 10), Bits::LOCKS));
    assert!(!tree.would_block(range(0, 10), Bits::LOCKED));
    tree.wait_unlocked(range(10, 19));
    drop(fill);
    assert!(!tree.would_block(ByteRange::ALL, Bits::LOCKS));
    assert_eq!(tree.stats().lock_waits, 0);
    tree.note_wait();
    assert_eq!(tree.stats().lock_waits, 1);
}

#[test]
fn a_part_can_be_unlocked_below_the_guards() {
    let tree = IoTree::default();
    tree.lock_bits(range(0, 99), Bits::LOCKED);
    tree.unlock(range(40, 59), Bits::LOCKED);
    tree.verify();
    drop(tree.try_lock(range(40, 59), Bits::LOCKED).unwrap());
    assert!(tree.try_lock(range(40, 60), Bits::LOCKED).is_none());
    tree.unlock(ByteRange::ALL, Bits::LOCKED);
    assert!(!tree.is_locked(ByteRange::ALL));
    tree.verify();
}

#[test]
fn a_release_wakes_the_waiters_that_can_go_on_alone() {
    let tree = IoTree::default();
    let order = AtomicU64::new(0);
    scope(|scope| {
        let held = tree.lock(range(0, 99), Bits::LOCKED);
        let other = tree.lock(range(200, 299), Bits::LOCKED);
        // Of ten that want the same bytes one is woken at a time.
        for i in 0..10 {
            let (tree, order) = (&tree, &order);
            scope.spawn(move || {
                let _mine = tree.lock(range(5, 20 + i), Bits::LOCKED);
                // In the order in which they came.
                assert_eq!(order.fetch_add(1, Ordering::Relaxed), i);
            });
            until_asleep(tree, i + 1);
        }
        assert_eq!(tree.stats().wakes, 0);
        drop(other);
        assert_eq!(tree.stats().wakes, 0, "no thread waits for those bytes");
        drop(held);
    });
    assert_eq!(order.into_inner(), 10);
    // Each is woken once by the one before it; a herd would take 10 + 9 + 8 ...
    let stats = tree.stats();
    assert_eq!((stats.wakes, stats.lock_waits), (10, 10));
    assert!(!tree.is_locked(ByteRange::ALL));
    tree.verify();
}

#[test]
fn waiters_for_different_bytes_are_woken_together() {
    let tree = IoTree::default();
    let inside = AtomicU64::new(0);
    scope(|scope| {
        let held = tree.lock(ByteRange::ALL, Bits::LOCKED);
        for i in 0..12 {
            let (tree, inside) = (&tree, &inside);
            scope.spawn(move || {
                let _mine = tree.lock(range(10 * i, 10 * i + 9), Bits::LOCKED);
                // None of them lets go before all have theirs.
                inside.fetch_add(1, Ordering::Relaxed);
                while inside.load(Ordering::Relaxed) < 12 {
                    yield_now();
                }
            });
            until_asleep(tree, i + 1);
        }
        drop(held);
    });
    assert_eq!(tree.stats().wakes, 12);
    tree.verify();
}

/// Threads that look without the tree's lock see a range that its owner has waited for.
#[test]
fn a_range_that_was_waited_for_is_seen_as_locked() {
    let tree = IoTree::default();
    scope(|scope| {
        let held = tree.lock(range(0, 99), Bits::LOCKED);
        scope.spawn(|| {
            let _mine = tree.lock(range(50, 99), Bits::LOCKED);
            assert!(tree.is_locked(range(99, 99)));
        });
        until_asleep(&tree, 1);
        drop(held);
    });
    assert!(!tree.is_locked(ByteRange::ALL));
}

#[test]
fn waiting_for_a_range_takes_nothing() {
    let tree = IoTree::default();
    tree.wait_unlocked(ByteRange::ALL);
    assert_eq!(tree.stats().lock_waits, 0);
    scope(|scope| {
        let held = tree.lock(range(0, 99), Bits::LOCKED);
        tree.wait_unlocked(range(100, 200));
        for i in 0..4 {
            scope.spawn(|| tree.wait_unlocked(range(99, 99)));
            until_asleep(&tree, i + 1);
        }
        drop(held);
    });
    assert_eq!(tree.stats().wakes, 4);
    assert_eq!(tree.records(), 0);
}

/// A wide request beside a stream of small ones that never leaves a moment without any.
#[test]
fn a_wide_request_is_not_overtaken_for_ever() {
    let tree = IoTree::default();
    let stop = AtomicBool::new(false);
    let all_held = |at: u64| {
        let (mut held, mut at) = (tree.lock(range(at, at), Bits::LOCKED), at);
        while !stop.load(Ordering::Relaxed) {
            at = (at + 2) % 1000;
            match tree.try_lock(range(at, at), Bits::LOCKED) {
                Some(next) => held = next,
                None => {
                    drop(held);
                    held = tree.lock(range(at, at), Bits::LOCKED);
                }
            }
        }
        drop(held);
    };
    scope(|scope| {
        (0..2).for_each(|i| drop(scope.spawn(move || all_held(i))));
        for _ in 0..20 {
            drop(tree.lock(ByteRange::ALL, Bits::LOCKED));
        }
        stop.store(true, Ordering::Relaxed);
    });
    tree.verify();
}

/// Bytes that are written without any other protection than the range lock.
#[test]
fn writers_of_random_ranges_exclude_each_other() {
    const CELLS: u64 = 64;
    let cells: Vec<AtomicU64> = (0..CELLS).map(|_| AtomicU64::new(0)).collect();
    let tree = IoTree::default();
    let total = AtomicU64::new(0);
    scope(|scope| {
        for seed in 1..=6_u64 {
            let (tree, cells, total) = (&tree, &cells, &total);
            scope.spawn(move || {
                let state = Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let random = |below: u64| {
                    let mut x = state.get();
                    x ^= x << 13;
                    x ^= x >> 7;
                    x ^= x << 17;
                    state.set(x);
                    x % below
                };
                for _ in 0..4000 {
                    let start = random(CELLS);
                    let last = start + random(CELLS - start);
                    let wanted = if random(8) == 0 {
                        ByteRange::to_infinity(start)
                    } else {
                        range(start, last)
                    };
                    let held = if random(4) == 0 {
                        tree.try_lock(wanted, Bits::LOCKED)
                    } else {
                        Some(tree.lock(wanted, Bits::LOCKED))
                    };
                    if held.is_some() {
                        let mine = start..=last;
                        for (_, cell) in (0..).zip(cells).filter(|(at, _)| mine.contains(at)) {
                            // Not one step: an overlap of two owners loses one of them.
                            cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        }
                        total.fetch_add(last - start + 1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let sum: u64 = cells.iter().map(|c| c.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, total.into_inner());
    assert_eq!(tree.records(), 0);
    tree.verify();
}

#[test]
fn locking_takes_no_memory_in_the_long_run() {
    let tree = IoTree::default();
    assert_eq!(tree.stats().grows, 0);
    for i in 0..1000 {
        let _a = tree.lock(range(i * 10, i * 10 + 9), Bits::LOCKED);
        let _b = tree.lock(range(i * 10 + 10, i * 10 + 19), Bits::LOCKED);
    }
    let stats = tree.stats();
    assert!(stats.grows <= 2, "{stats:?}");
    assert_eq!(stats.grows_inside, 0);
}

/// A holder that proceeds through its range lets others have what it has passed: each release trims
/// the record.
#[test]
fn io_tree_01_a_guard_lets_go_of_its_front() {
    for trim_on_clear in [true, false] {
        let tree = IoTree::new(TreeTuning {
            trim_on_clear,
            ..TreeTuning::default()
        });
        let mut held = tree.lock(range(0, 99), Bits::LOCKED);
        for at in [0, 100, 200] {
            held.release_before(at);
            assert_eq!(
                held.range(),
                range(0, 99),
                "nothing before {at}, or no rest"
            );
        }
        held.release_before(30);
        held.release_before(50);
        held.release_before(40);
        assert_eq!(held.range(), range(50, 99));
        assert_eq!(tree.dump(), [(range(50, 99), Bits::LOCKED)]);
        tree.verify();
        let follower = tree.try_lock(range(0, 49), Bits::LOCKED).unwrap();
        assert!(tree.try_lock(range(49, 50), Bits::LOCKED).is_none());
        let stats = tree.stats();
        let trims = if trim_on_clear { 2 } else { 0 };
        assert_eq!((stats.trim_last, stats.splits), (trims, 2 - trims));
        drop((held, follower));
        assert_eq!(tree.records(), 0);
    }
}

/// A holder of two locks of the same bytes lets go of the front of both by one clear; of others one
/// by one.
#[test]
fn two_locks_of_the_same_bytes_are_released_by_one_trim() {
    let tree = IoTree::default();
    let (mut change, mut fill) = (
        tree.lock(range(0, 99), Bits::LOCKED),
        tree.lock(range(0, 99), Bits::DIO_LOCKED),
    );
    let before = tree.stats();
    change.release_both_before(&mut fill, 30);
    let stats = tree.stats();
    let trims = stats.trim_last - before.trim_last;
    let clears = stats.clears - before.clears;
    assert_eq!((trims, clears, stats.splits), (1, 1, 0), "{stats:?}");
    assert_eq!([change.range(), fill.range()], [range(30, 99); 2]);
    assert_eq!(tree.dump(), [(range(30, 99), Bits::LOCKS)]);
    drop(tree.try_lock(range(0, 29), Bits::LOCKS).unwrap());
    // The locks stay two: one may end before the other.
    fill.release_before(50);
    change.release_both_before(&mut fill, 60);
    assert_eq!([change.range(), fill.range()], [range(60, 99); 2]);
    drop(fill);
    assert_eq!(tree.dump(), [(range(60, 99), Bits::LOCKED)]);
    drop(change);
    assert_eq!(tree.records(), 0);
    tree.verify();
}
