//! Failures of the device and of space. Data that was accepted and lost is reported once to each
//! opener, nothing is converted, no size moves, and data that was written is there.

mod toy;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_iomap::*;
use extant_pagecache::WritebackFault;
use extant_testkit::{Fault, FaultyDevice, Request, RequestKind};
use extant_units::{BlockSize, Pos};
use toy::{Block, Rng, STALE, Setup, Toy, ToyError};

/// A toy whose requests of one kind fail while the switch is on: 0 none, 1 reads, 2 writes.
fn fragile() -> (Arc<Toy>, Arc<AtomicU64>) {
    let switch = Arc::new(AtomicU64::new(0));
    let setup = Setup::default();
    let armed = switch.clone();
    let device = FaultyDevice::new(setup.device(), move |request: Request<'_>| {
        let fails = match request.kind {
            RequestKind::Read => armed.load(Ordering::Relaxed) == 1,
            RequestKind::Write => armed.load(Ordering::Relaxed) == 2,
            RequestKind::Flush => false,
        };
        if fails {
            Fault::Fail(ErrorKind::Other)
        } else {
            Fault::Pass
        }
    });
    (setup.build_on(Arc::new(device)), switch)
}

#[test]
fn j19_a_failed_write_converts_nothing_and_moves_no_size() {
    let (toy, switch) = fragile();
    toy.write(0, &[1; 8192]).unwrap();
    toy.sync().unwrap();
    let (early, late_size) = (toy.pages.errors().cursor(), toy.disk_size());
    toy.write(8192, &[2; 8192]).unwrap();
    let other = toy.pages.errors().cursor();
    switch.store(2, Ordering::Relaxed);
    assert!(matches!(toy.sync(), Err(ToyError::Device(_))));
    switch.store(0, Ordering::Relaxed);
    assert_eq!(toy.disk_size(), late_size);
    assert!(matches!(toy.state(2), Some(Block::Unwritten(_))));
    assert_eq!(toy.pages.dirty_bytes(), 0, "no dirty data piles up");
    assert_eq!(toy.cache.stats().writeback_bytes, 0);
    for cursor in [&early, &other] {
        assert_eq!(toy.pages.errors().check(cursor), Some(WritebackFault::Io));
        assert_eq!(toy.pages.errors().check(cursor), None);
    }
    assert!(!toy.on_disk().contains(&STALE));
    // The file goes on: what is written again arrives.
    toy.write(8192, &[3; 8192]).unwrap();
    toy.sync().unwrap();
    assert_eq!(toy.on_disk()[8192..], [3; 8192]);
}

#[test]
fn a_failed_read_is_reported_and_not_cached() {
    let (toy, switch) = fragile();
    let data = Rng(5).bytes(100_000);
    toy.write(0, &data).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    switch.store(1, Ordering::Relaxed);
    let mut buf = vec![0; 1000];
    let failed = read(
        &*toy,
        &toy.recent,
        Miss::Fill(&toy.readahead),
        Pos::ZERO,
        &mut buf[..],
    )
    .unwrap_err();
    assert!(matches!(failed.error, ToyError::Device(_)));
    assert_eq!(failed.done, 0);
    // The block around a partial write cannot be read either; whole blocks can be written.
    assert!(toy.write(10, &[1; 10]).is_err());
    toy.write(4096, &[1; 4096]).unwrap();
    switch.store(0, Ordering::Relaxed);
    assert!(toy.read(0, 4096) == data[..4096]);
    assert_eq!(toy.read(4096, 4096), [1; 4096]);
    toy.check_idle();
}

#[test]
fn no_space_is_reported_by_the_write_and_keeps_what_was_written() {
    let toy = Setup {
        blocks: 100,
        ..Setup::default()
    }
    .build();
    let mut accepted = 0;
    let full = loop {
        match toy.write(accepted, &vec![7; 30_000]) {
            Ok(done) => accepted += done as u64,
            Err(stopped) => break accepted + stopped.done,
        }
    };
    toy.check_idle();
    toy.sync().unwrap();
    assert_eq!(toy.size(), full);
    assert_eq!(toy.on_disk(), vec![7; usize::try_from(full).unwrap()]);
    toy.truncate(0);
    toy.write(0, &vec![8; 100 * 4096]).unwrap();
    toy.sync().unwrap();
}

#[test]
fn a_reservation_without_space_is_recorded_as_no_space() {
    let toy = Setup {
        blocks: 10,
        block: BlockSize::KIB4,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[1; 8 * 4096]).unwrap();
    let cursor = toy.pages.errors().cursor();
    toy.steal(6);
    assert!(matches!(toy.sync(), Err(ToyError::NoSpace)));
    let reported = toy.pages.errors().check(&cursor);
    assert_eq!(reported, Some(WritebackFault::NoSpace));
    assert_eq!(toy.reserved(), 0);
    toy.check_idle();
    // What was lost needs space again before it can be dirty again.
    assert!(toy.write(5 * 4096, &[2; 100]).is_err());
    toy.check_idle();
    assert_eq!(toy.pages.dirty_bytes(), 0);
}

#[test]
fn what_follows_a_lost_old_end_does_not_move_the_size_past_it() {
    // Three runs: a block far before the old end, the block of the old end, and new blocks. One is
    // lost.
    for (lost, size) in [(0, 5 * 4096), (1, 10_000), (2, 3 * 4096)] {
        let calls = Arc::new(AtomicU64::new(u64::MAX));
        let (setup, left) = (Setup::default(), calls.clone());
        let device = FaultyDevice::new(setup.device(), move |request: Request<'_>| {
            let counted =
                request.kind == RequestKind::Write && left.load(Ordering::Relaxed) != u64::MAX;
            if counted && left.fetch_sub(1, Ordering::Relaxed) == 0 {
                left.store(u64::MAX, Ordering::Relaxed);
                return Fault::Fail(ErrorKind::Other);
            }
            Fault::Pass
        });
        let toy = setup.build_on(Arc::new(device));
        toy.write(0, &[1; 10_000]).unwrap();
        toy.sync().unwrap();
        toy.write(100, &[2; 100]).unwrap();
        toy.write(10_000, &[3; 5 * 4096 - 10_000]).unwrap();
        calls.store(lost, Ordering::Relaxed);
        assert_eq!(toy.disk_size(), 10_000);
        toy.sync().unwrap_err();
        assert_eq!(toy.disk_size(), size, "write {lost} was lost");
    }
}
