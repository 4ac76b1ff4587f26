//! The EOF lock with real threads: the word, and the record that stands in for it.
#![cfg(not(extant_shuttle))]

use std::sync::atomic::{AtomicU64, Ordering};

use extant_range_lock::{ByteRange, RangeLock};
use parking_lot::RwLock;

#[test]
fn the_eof_lock_is_one_word_unless_a_range_is_in_the_way() {
    let (locks, lock) = (RangeLock::default(), RwLock::new(()));
    let shared = lock.read();
    let eof = locks.lock_eof(4096, &shared);
    assert_eq!(locks.records(), 0, "by the word");
    assert!(locks.try_lock_eof(8192, &shared).is_none(), "one at a time");
    assert!(
        locks
            .try_lock(ByteRange::to_infinity(8192), &shared)
            .is_none()
    );
    let range = ByteRange::from_len(0, 4096).unwrap();
    let below = locks.try_lock(range, &shared).unwrap();
    drop(eof);
    assert!(locks.try_lock_eof(4095, &shared).is_none());
    let eof = locks.try_lock_eof(4096, &shared).unwrap();
    drop((eof, below));
    // A range of another operation that ends while the end is waited for.
    std::thread::scope(|scope| {
        let held = locks.lock(ByteRange::from_len(8192, 1).unwrap(), &shared);
        let waiter = scope.spawn(|| {
            let eof = locks.lock_eof(4096, &lock.read());
            assert_eq!(locks.records(), 1, "by a record");
            drop(eof);
        });
        while locks.stats().lock_waits == 0 {
            std::thread::yield_now();
        }
        drop(held);
        waiter.join().unwrap();
    });
    let locked = lock.try_write();
    assert!(locked.is_none());
    drop(shared);
    let exclusive = lock.write();
    assert!(locks.try_lock_eof(0, &lock).is_none(), "the file is locked");
    drop(exclusive);
    assert!(!locks.is_any_locked());
}

/// Some take the EOF word, the others lock in the tree, as the writers of a file do: no two of
/// them overlap.
#[test]
fn the_eof_word_and_records_exclude_each_other() {
    let (locks, lock) = (RangeLock::default(), RwLock::new(()));
    let inside = AtomicU64::new(0);
    let count = |by: u64| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        (0..by).for_each(|_| std::hint::spin_loop());
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let range = ByteRange::to_infinity(100);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let shared = lock.read();
                    let _mine = locks.lock(range, &shared);
                    count(round % 8);
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    if let Some(_mine) = locks.try_lock_eof(range.start(), &lock) {
                        count(round % 8);
                        continue;
                    }
                    let shared = lock.read();
                    let _mine = locks.lock_eof(range.start(), &shared);
                    count(round % 8);
                }
            });
        }
    });
}
