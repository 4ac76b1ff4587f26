//! The fast path of a write: what it writes, what it leaves to the mapped path, and that it
//! respects range locks.

mod toy;

use std::sync::atomic::{AtomicBool, Ordering};

use extant_iomap::*;
use extant_pagecache::RecentFolios;
use extant_testkit::{Stop, wait_until};
use extant_units::{BlockSize, PageIdx, Pos};
use parking_lot::RwLock;
use toy::{Rng, Setup};

#[test]
fn it_takes_cached_bytes_of_a_few_folios_below_the_end() {
    let toy = Setup {
        order: 2,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 40_000]).unwrap();
    let quick = |pos: u64, len: usize| {
        let done = try_overwrite(&*toy, &toy.recent, Pos::new(pos), &vec![2; len][..], || {
            true
        });
        (done, toy.read(pos, len).iter().all(|&byte| byte == 2))
    };
    let before = toy.stats.snapshot();
    assert_eq!(quick(5, 100), (true, true));
    assert_eq!(quick(16_384, 16_384), (true, true), "a whole folio");
    assert_eq!(quick(16_000, 1000), (true, true), "two folios");
    assert_eq!(quick(39_999, 1), (true, true));
    assert_eq!(toy.size(), 40_000);
    let past_end = try_overwrite(&*toy, &toy.recent, Pos::new(39_999), &[3; 2][..], || true);
    assert!(!past_end, "the size would change");
    let held = try_overwrite(&*toy, &toy.recent, Pos::new(7), &[9; 10][..], || false);
    assert!(!held);
    assert_eq!(toy.read(7, 10), [2; 10]);
    let after = toy.stats.snapshot();
    assert_eq!(after.overwrites, before.overwrites + 5);
    assert_eq!(after.begins, before.begins);
    toy.sync().unwrap();
    assert_eq!(quick(8000, 10), (true, true), "clean, and still backed");
    toy.pages.drop_clean(Pos::new(20_000), Pos::MAX);
    let dropped = try_overwrite(&*toy, &toy.recent, Pos::new(20_000), &[4; 10][..], || true);
    assert!(!dropped, "not cached any more");
    toy.sync().unwrap();
    assert_eq!(toy.on_disk()[8000..8010], [2; 10]);
}

/// Blocks whose space a short write gave back ask the map for it again.
#[test]
fn it_leaves_blocks_that_a_short_write_gave_back() {
    let toy = Setup::default().build();
    toy.truncate(3 * 4096);
    let mut short = &[1; 4096][..];
    let done = write(&*toy, Pos::ZERO, 3 * 4096, &mut short).unwrap();
    assert_eq!((done, toy.reserved()), (4096, 1));
    let whole =
        |pos: u64| try_overwrite(&*toy, &toy.recent, Pos::new(pos), &[2; 4096][..], || true);
    assert!(whole(0) && !whole(2 * 4096));
    toy.sync().unwrap();
    toy.check_idle();
}

#[test]
fn several_folios_are_written_at_once_or_not_at_all() {
    let toy = Setup {
        order: 0,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 40_960]).unwrap();
    let quick = |pos: u64, len: usize| {
        try_overwrite(&*toy, &toy.recent, Pos::new(pos), &vec![2; len][..], || {
            true
        })
    };
    let untouched = || toy.read(0, 40_960).iter().all(|&byte| byte == 1);
    assert!(!quick(100, 16_384), "five folios");
    let third = toy.pages.get(PageIdx::new(2)).unwrap();
    let held = toy.pages.lock(&third).unwrap();
    assert!(
        !quick(4096, 10_000),
        "another thread holds one: the fast path does not wait"
    );
    drop(held);
    let refused = try_overwrite(&*toy, &toy.recent, Pos::new(4000), &[2; 200][..], || false);
    assert!(!refused);
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::new(8192), Pos::new(12_288));
    assert!(!quick(4096, 10_000), "one is not cached");
    assert!(untouched());
    let before = toy.stats.snapshot();
    assert!(quick(20_480, 16_000));
    let after = toy.stats.snapshot();
    assert_eq!(after.overwrites, before.overwrites + 4);
    assert_eq!((after.begins, toy.size()), (before.begins, 40_960));
    assert!(toy.read(20_480, 16_000).iter().all(|&byte| byte == 2));
    let around = [toy.read(20_479, 1), toy.read(36_480, 1)].concat();
    assert_eq!(around, [1, 1]);
    toy.sync().unwrap();
    assert!(toy.on_disk() == toy.read(0, 40_960));
    toy.check_idle();
}

#[test]
fn it_extends_within_blocks_that_are_there() {
    let toy = Setup {
        order: 0,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 5000]).unwrap();
    let before = toy.stats.snapshot();
    let longer =
        |pos: u64, len: usize| try_extend(&*toy, &toy.recent, Pos::new(pos), &vec![2; len][..]);
    assert!(longer(5000, 10));
    assert_eq!(toy.size(), 5010);
    assert!(longer(5000, 3192), "to the end of the block");
    assert_eq!(toy.size(), 8192);
    assert!(!longer(8190, 3), "another folio");
    assert!(!longer(8192, 3), "nothing is there");
    assert_eq!(toy.size(), 8192);
    assert_eq!(toy.stats.snapshot().begins, before.begins);
    assert_eq!(
        toy.read(0, 9000),
        [[1; 5000].as_slice(), &[2; 3192]].concat()
    );
    toy.sync().unwrap();
    assert!(toy.on_disk() == toy.read(0, 8192));
}

#[test]
fn truncated_blocks_are_left_to_the_mapped_path() {
    let toy = Setup::default().build();
    toy.write(0, &[1; 100_000]).unwrap();
    toy.sync().unwrap();
    toy.truncate(50_000);
    toy.truncate(100_000);
    // The folio is cached and the bytes are in the file, but they have lost their space.
    let quick = |pos: u64| try_overwrite(&*toy, &toy.recent, Pos::new(pos), &[2; 10][..], || true);
    assert!(!quick(60_000));
    toy.check_idle();
}

/// Writers without range locks beside a thread that truncates the file and extends it again: bytes
/// that were cut off never come back.
#[test]
fn writers_without_the_lock_stay_out_of_a_truncation() {
    const SIZE: u64 = 300_000;
    let toy = Setup {
        block: BlockSize::KIB1,
        order: 5,
        ..Setup::default()
    }
    .build();
    let lock = RwLock::new(());
    let stop = AtomicBool::new(false);
    toy.write(0, &vec![1; 300_000]).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (toy, lock, stop) = (&toy, &lock, &stop);
            scope.spawn(move || {
                let recent = RecentFolios::default();
                let mut rng = Rng(0xF00D + seed);
                while !stop.load(Ordering::Relaxed) {
                    let pos = Pos::new(rng.below(SIZE - 3000));
                    let alone = || !lock.is_locked_exclusive();
                    try_overwrite(&**toy, &recent, pos, &[7; 3000][..], alone);
                }
            });
        }
        let _stop = Stop::at_end(&stop);
        let mut rng = Rng(17);
        for _ in 0..60 {
            let guard = lock.write();
            let size = rng.below(SIZE);
            toy.truncate(size);
            toy.truncate(SIZE);
            let cut = usize::try_from(SIZE - size).unwrap();
            let shown = toy.read(size, cut);
            assert!(shown.iter().all(|&byte| byte == 0), "cut at {size}");
            toy.check_idle();
            drop(guard);
            let guard = lock.write();
            // Space for all of it again, so that the others have something to do.
            toy.write(0, &vec![1; 300_000]).unwrap();
            drop(guard);
            wait_until("an overwrite", || toy.stats.snapshot().overwrites > 0);
        }
    });
    toy.sync().unwrap();
    assert!(toy.on_disk() == toy.read(0, 300_000));
}
