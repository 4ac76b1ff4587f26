//! Ranges that are locked without a record, beside those with one: who excludes whom, and who waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

use extant_extent_io_tree::{Bits, ByteRange, Conflict, IoTree, Posted};
use extant_testkit::{Rng, Watchdog, wait_until};

const SECTOR: u64 = 512;
/// A posted range stays posted when a test fails: a thread that waits for it waits for ever.
const LIMIT: Duration = Duration::from_secs(120);

fn sectors(first: u64, count: u64) -> ByteRange {
    ByteRange::from_len(first * SECTOR, count * SECTOR).unwrap()
}

#[test]
fn what_is_posted_counts_as_locked() {
    let tree = IoTree::default();
    let posted = tree.try_post(sectors(8, 8)).unwrap();
    assert_eq!(tree.records(), 0);
    for other in [
        sectors(0, 9),
        sectors(15, 1),
        ByteRange::ALL,
        ByteRange::to_infinity(12 * SECTOR),
        ByteRange::new(5000, 5000).unwrap(),
    ] {
        assert!(tree.try_post(other).is_none(), "{other}");
        assert!(tree.try_lock(other).is_none(), "{other}");
        for bits in [Bits::LOCKED, Bits::DIO_LOCKED, Bits::LOCKS] {
            let at = other.start().max(8 * SECTOR);
            assert_eq!(tree.try_lock_bits(other, bits), Err(Conflict { at }));
            assert!(tree.is_locked_by(other, bits), "{other}");
        }
        assert_eq!(tree.records(), 0, "nothing is left of an attempt");
    }
    assert!(!tree.is_locked(sectors(0, 8)) && !tree.is_locked(ByteRange::to_infinity(8192)));
    let beside = tree.try_lock(sectors(16, 4)).unwrap();
    assert!(tree.try_post(sectors(19, 1)).is_none());
    let more = tree.try_post(sectors(20, 4)).unwrap();
    drop(beside);
    tree.unpost(posted);
    tree.unpost(more);
    assert!(!tree.is_locked(ByteRange::ALL));
    tree.verify();
}

/// Whoever locks waits for what is posted with its range held: posters cannot overtake it for ever.
#[test]
fn who_locks_keeps_new_posts_out_and_is_woken_by_the_last() {
    let _limit = Watchdog::new(LIMIT);
    let tree = IoTree::default();
    let done = AtomicBool::new(false);
    scope(|scope| {
        let first = tree.try_post(sectors(0, 8)).unwrap();
        let second = tree.try_post(sectors(32, 8)).unwrap();
        scope.spawn(|| {
            let held = tree.lock(sectors(4, 60));
            done.store(true, Ordering::SeqCst);
            drop(held);
        });
        wait_until("the range has a record", || tree.records() > 0);
        assert!(tree.try_post(sectors(48, 8)).is_none());
        tree.unpost(first);
        assert!(!done.load(Ordering::SeqCst));
        tree.unpost(second);
    });
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(tree.records(), 0);
}

/// Random posts and locks in one thread, held against who has which sector.
#[test]
fn posts_and_locks_agree_with_a_model() {
    const SECTORS: u64 = 256;
    let tree = IoTree::default();
    let mut rng = Rng::new(7);
    let mut owner = vec![None; 256];
    let mut posts: Vec<(ByteRange, Posted)> = Vec::new();
    let mut locks: Vec<(ByteRange, Bits)> = Vec::new();
    let at = |range: ByteRange| {
        let (first, last) = (range.start() / SECTOR, range.last() / SECTOR);
        usize::try_from(first).unwrap()..=usize::try_from(last.min(SECTORS - 1)).unwrap()
    };
    let (mut posted, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let first = rng.below(SECTORS);
        let count = match rng.below(8) {
            0 => SECTORS,
            1 => 1 + rng.below(64),
            _ => 1 + rng.below(8),
        };
        let range = sectors(first, count);
        match rng.below(10) {
            0..3 => match tree.try_post(range) {
                Some(post) => {
                    assert!(owner[at(range)].iter().all(Option::is_none), "{range}");
                    owner[at(range)].fill(Some(Bits::LOCKS));
                    posts.push((range, post));
                    posted += 1;
                }
                None => refused += 1,
            },
            3..5 => {
                let bits = [Bits::LOCKED, Bits::DIO_LOCKED, Bits::LOCKS][rng.index(3)];
                let is_free = |had: &Option<Bits>| had.is_none_or(|had| !had.intersects(bits));
                let free = owner[at(range)].iter().all(is_free);
                assert_eq!(tree.is_locked_by(range, bits), !free, "{range}");
                assert_eq!(tree.try_lock_bits(range, bits).is_ok(), free, "{range}");
                if free {
                    for had in &mut owner[at(range)] {
                        *had = Some(had.unwrap_or_default() | bits);
                    }
                    locks.push((range, bits));
                }
            }
            5..7 if !locks.is_empty() => {
                let (range, bits) = locks.swap_remove(rng.index(locks.len()));
                tree.unlock(range, bits);
                for had in &mut owner[at(range)] {
                    *had = had.map(|had| had - bits).filter(|had| !had.is_empty());
                }
            }
            _ if !posts.is_empty() => {
                let (range, post) = posts.swap_remove(rng.index(posts.len()));
                tree.unpost(post);
                owner[at(range)].fill(None);
            }
            _ => {}
        }
    }
    assert!(posted > 1000 && refused > 1000, "{posted} {refused}");
    posts.into_iter().for_each(|(_, post)| tree.unpost(post));
    locks
        .into_iter()
        .for_each(|(range, bits)| tree.unlock(range, bits));
    assert!(!tree.is_locked_by(ByteRange::ALL, Bits::LOCKS));
    tree.verify();
}

/// Threads that post and threads that lock count up what nothing else protects.
#[test]
fn nobody_is_ever_beside_anybody() {
    const BLOCKS: u64 = 4;
    let tree = IoTree::default();
    let owners: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let posted = AtomicU64::new(0);
    let alone = |range: ByteRange| {
        let mine = (0..).zip(&owners).filter(|(n, _)| range.contains(n * 4096));
        let mine: Vec<_> = mine.map(|(_, owner)| owner).collect();
        for owner in &mine {
            assert_eq!(owner.fetch_add(1, Ordering::SeqCst), 0, "two owners");
        }
        std::hint::spin_loop();
        for owner in &mine {
            owner.fetch_sub(1, Ordering::SeqCst);
        }
    };
    scope(|scope| {
        for thread in 0..2 {
            let (tree, alone, posted) = (&tree, &alone, &posted);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..20_000 {
                    let range = sectors(rng.below(BLOCKS) * 8, 8);
                    if let Some(post) = tree.try_post(range) {
                        alone(range);
                        tree.unpost(post);
                        posted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut rng = Rng::new(9);
            for _ in 0..2_000 {
                let range = sectors(rng.below(BLOCKS) * 8, 8 + 8 * rng.below(3));
                let held = tree.lock(range);
                alone(range);
                drop(held);
            }
        });
    });
    assert!(posted.load(Ordering::Relaxed) > 0);
    assert_eq!(tree.records(), 0);
    tree.verify();
}
