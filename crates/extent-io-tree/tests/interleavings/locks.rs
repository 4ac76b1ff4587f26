//! Lock bits: exclusion, wakes that are not lost, preferred waiters, and the question whether
//! anything is locked. A lost wake ends as a deadlock, which the checker reports.
//!
//! The twins leave out a [`Step`] of the tree, or one of its user. Preferred waiters have none:
//! without them a waiter may starve, which no finite schedule shows.

use std::sync::Arc;

use extant_extent_io_tree::{Bits, ByteRange, IoTree, Step};
use extant_testkit::schedules::check_fails;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use super::{check, range};

/// A tree, and for each of some bytes how many threads have it.
struct Shared {
    tree: IoTree,
    owners: [AtomicU64; 6],
}

impl Shared {
    fn new() -> Arc<Self> {
        Self::over(IoTree::default())
    }

    fn over(tree: IoTree) -> Arc<Self> {
        Arc::new(Self {
            tree,
            owners: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn mine(&self, range: ByteRange) -> impl Iterator<Item = &AtomicU64> {
        let all = (0..).zip(&self.owners);
        all.filter(move |(at, _)| range.contains(*at))
            .map(|(_, owners)| owners)
    }

    /// Has `range` for a moment, during which no other thread may have a byte of it.
    fn use_alone(&self, range: ByteRange) {
        let held = self.tree.lock(range, Bits::LOCKED);
        let mut others = 0;
        for owners in self.mine(range) {
            others += owners.fetch_add(1, Ordering::SeqCst);
        }
        for owners in self.mine(range) {
            owners.fetch_sub(1, Ordering::SeqCst);
        }
        drop(held);
        // Not before: to unlock is a step of the schedule, which a thread that panics cannot take.
        assert_eq!(others, 0, "two owners");
    }
}

/// The ranges that threads have, each thread one after the other.
type Threads = &'static [&'static [(u64, u64)]];

/// Three threads that want parts of what another has.
const CROSSING: Threads = &[&[(0, 3), (2, 2)], &[(2, 5), (0, 1)], &[(1, 4)]];
/// Threads that wait for the first, some of them for one another.
const FOLLOWING: Threads = &[&[(0, 5)], &[(0, 2)], &[(1, 3)], &[(3, 5)]];

fn run(tree: IoTree, threads: Threads) {
    let shared = Shared::over(tree);
    let running = threads.iter().map(|ranges| {
        let shared = shared.clone();
        thread::spawn(move || {
            for &(start, last) in *ranges {
                shared.use_alone(range(start, last));
            }
        })
    });
    let running: Vec<_> = running.collect();
    running.into_iter().for_each(|t| t.join().unwrap());
    assert!(!shared.tree.is_locked(ByteRange::ALL));
    assert_eq!(shared.tree.records(), 0);
    shared.tree.verify();
}

#[test]
fn j39_a_range_has_one_owner_and_no_wake_is_lost() {
    check(|| run(IoTree::default(), CROSSING));
}

#[test]
fn a_request_that_sees_no_owner_shares_a_range() {
    check_fails(|| run(IoTree::omitting(Step::RequestSeesOwners), CROSSING));
}

#[test]
fn a_lock_that_ends_without_a_wake_is_seen() {
    check_fails(|| run(IoTree::omitting(Step::ClearWakes), CROSSING));
}

#[test]
fn j39_waiters_that_follow_are_woken() {
    check(|| run(IoTree::default(), FOLLOWING));
}

#[test]
fn followers_that_are_not_passed_on_sleep_for_ever() {
    check_fails(|| run(IoTree::omitting(Step::ServedPassesFollowersOn), FOLLOWING));
}

/// Small requests one after the other, so that a wide one loses until it is preferred.
#[test]
fn a_preferred_waiter_is_not_overtaken() {
    const WIDE: Threads = &[
        &[(0, 0), (1, 1), (0, 0)],
        &[(3, 3), (2, 2), (3, 3)],
        &[(0, u64::MAX)],
        &[(0, 4)],
    ];
    check(|| run(IoTree::default(), WIDE));
}

#[test]
fn parts_can_be_unlocked_under_waiters() {
    check(|| {
        let shared = Shared::new();
        shared.tree.lock_bits(range(0, 5), Bits::LOCKED);
        let waiting = [(0, 1), (1, 4), (4, 5)].map(|(start, last)| {
            let shared = shared.clone();
            thread::spawn(move || shared.use_alone(range(start, last)))
        });
        shared.tree.set(range(1, 3), Bits::DELALLOC);
        shared.tree.unlock(range(3, 5), Bits::LOCKED);
        shared.tree.clear(range(0, 2), Bits::CLEAR_ALL);
        shared.tree.unlock(range(0, 2), Bits::LOCKED);
        waiting.into_iter().for_each(|t| t.join().unwrap());
        shared.tree.verify();
    });
}

/// A locked record is cut in two by another bit, and then loses its locks part by part: each part
/// wakes those that want bytes of it.
fn cut_under_waiters(tree: IoTree) {
    let shared = Shared::over(tree);
    shared.tree.lock_bits(range(0, 5), Bits::LOCKED);
    let waiting = [(0, 1), (3, 5)].map(|(start, last)| {
        let shared = shared.clone();
        thread::spawn(move || shared.use_alone(range(start, last)))
    });
    shared.tree.set(range(2, 5), Bits::DELALLOC);
    let [left, right] = waiting;
    shared.tree.unlock(range(0, 1), Bits::LOCKED);
    left.join().unwrap();
    assert!(shared.tree.is_locked(range(2, 5)));
    shared.tree.unlock(range(2, 5), Bits::LOCKED);
    right.join().unwrap();
    shared.tree.verify();
}

#[test]
fn j39_each_part_of_a_record_that_is_cut_wakes_its_waiters() {
    check(|| cut_under_waiters(IoTree::default()));
}

#[test]
fn waiters_that_are_not_divided_sleep_for_ever() {
    check_fails(|| cut_under_waiters(IoTree::omitting(Step::CutDividesWaiters)));
}

/// The rest of a range may stay locked for ever: those beside it go on when their part is
/// unlocked, be it the end or the beginning.
#[test]
fn a_part_that_is_unlocked_wakes_the_waiters_for_it_alone() {
    for (part, rest) in [((3, 5), (0, 2)), ((0, 2), (3, 5)), ((2, 3), (0, 1))] {
        check(move || {
            let shared = Shared::new();
            shared.tree.lock_bits(range(0, 5), Bits::LOCKED);
            let other = shared.clone();
            let waiter = thread::spawn(move || other.use_alone(range(part.0, part.1)));
            shared.tree.unlock(range(part.0, part.1), Bits::LOCKED);
            waiter.join().unwrap();
            assert!(shared.tree.is_locked(range(rest.0, rest.1)));
            shared.tree.unlock(ByteRange::ALL, Bits::LOCKED);
            shared.tree.verify();
        });
    }
}

#[test]
fn a_watcher_of_a_range_goes_on() {
    check(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let owner = thread::spawn(move || {
            other.use_alone(range(0, 3));
            other.use_alone(range(2, 5));
        });
        let other = shared.clone();
        let watcher = thread::spawn(move || other.tree.wait_unlocked(range(3, 3)));
        shared.use_alone(range(1, 2));
        owner.join().unwrap();
        watcher.join().unwrap();
    });
}

/// A cached overwrite takes no range: it looks whether one is locked, with the folio locked
/// (`folio`). A locker touches the bytes with the folio locked, in two steps.
fn overwrite_without_a_range(tree: IoTree, looks_inside: bool) {
    let shared = Shared::over(tree);
    let folio = Arc::new(Mutex::new([0_u64; 2]));
    let (other, other_folio) = (shared.clone(), folio.clone());
    let locker = thread::spawn(move || {
        let held = other.tree.lock(range(0, 1), Bits::LOCKED);
        other_folio.lock().unwrap()[0] = 1;
        other_folio.lock().unwrap()[1] = 1;
        drop(held);
    });
    let early = shared.tree.is_locked(range(0, 1));
    let mut bytes = folio.lock().unwrap();
    let locked = if looks_inside {
        shared.tree.is_locked(range(0, 1))
    } else {
        early
    };
    if !locked {
        assert_eq!(bytes[0], bytes[1], "in the middle of another write");
        *bytes = [2; 2];
    }
    drop(bytes);
    locker.join().unwrap();
    let bytes = folio.lock().unwrap();
    assert_eq!(bytes[0], bytes[1]);
}

#[test]
fn whether_anything_is_locked_is_known_inside_of_the_folio_lock() {
    check(|| overwrite_without_a_range(IoTree::default(), true));
}

#[test]
fn asking_before_the_folio_is_locked_is_too_early() {
    check_fails(|| overwrite_without_a_range(IoTree::default(), false));
}

#[test]
fn a_lock_that_is_not_published_is_not_seen() {
    check_fails(|| overwrite_without_a_range(IoTree::omitting(Step::LockIsPublished), true));
}

/// A holder proceeds through its range and lets go of the front; two others follow. `order`: it
/// lets go of what it has done with.
fn followed(order: bool) {
    let shared = Shared::new();
    let followers = [range(0, 2), range(1, 5)].map(|part| {
        let shared = shared.clone();
        thread::spawn(move || shared.use_alone(part))
    });
    let mut held = shared.tree.lock(range(0, 5), Bits::LOCKED);
    let use_part = |part: ByteRange| {
        for owners in shared.mine(part) {
            assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0, "two owners");
        }
        for owners in shared.mine(part) {
            owners.fetch_sub(1, Ordering::SeqCst);
        }
    };
    if order {
        use_part(range(0, 2));
        held.release_before(3);
        use_part(range(3, 5));
    } else {
        held.release_before(3);
        use_part(range(0, 5));
    }
    drop(held);
    followers.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(shared.tree.records(), 0);
    shared.tree.verify();
}

#[test]
fn j36_a_front_that_was_released_is_another_holders() {
    check(|| followed(true));
}

#[test]
fn touching_what_was_released_is_seen() {
    check_fails(|| followed(false));
}

/// The rest may stay locked for ever: waiters for the front alone go on.
fn front_released(tree: IoTree) {
    let shared = Shared::over(tree);
    let mut held = shared.tree.lock(range(0, 5), Bits::LOCKED);
    let followers = [range(0, 2), range(1, 1)].map(|part| {
        let shared = shared.clone();
        thread::spawn(move || shared.use_alone(part))
    });
    held.release_before(3);
    followers.into_iter().for_each(|t| t.join().unwrap());
    assert!(shared.tree.is_locked(range(3, 3)));
}

#[test]
fn j39_a_release_of_the_front_wakes_its_waiters() {
    check(|| front_released(IoTree::default()));
}

#[test]
fn a_front_that_is_released_without_a_wake_is_waited_for_for_ever() {
    check_fails(|| front_released(IoTree::omitting(Step::TrimWakes)));
}
