//! Commits on the thread of the caller that waits for them, beside those of the commit thread.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use extant_blockdev::MemoryDevice;
use extant_jbd2::{BlockCache, Config, Journal};
use extant_testkit::{Fault, FaultyDevice, GatedDevice, Request, RequestKind, wait_until};
use extant_units::Pblk;

const LEN: u32 = 128;

#[test]
fn a_caller_makes_its_commit_by_itself() {
    let own = std::thread::current().id();
    let by_others = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&by_others);
    let plan = move |request: Request<'_>| {
        let is_foreign = request.kind == RequestKind::Write && std::thread::current().id() != own;
        count.fetch_add(u64::from(is_foreign), Ordering::SeqCst);
        Fault::Pass
    };
    let dev = Arc::new(FaultyDevice::new(formatted(LEN), plan));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    for value in 1..=3 {
        let tid = put(&cache, &journal, &[3, 4], value);
        journal.sync_here(tid).unwrap();
        assert!(journal.is_durable(tid));
        let stats = journal.stats();
        assert_eq!((stats.commits, stats.own_commits), (value, value));
        journal.sync_here(tid).unwrap();
    }
    assert_eq!(
        by_others.load(Ordering::SeqCst),
        0,
        "writes of other threads"
    );
    assert_eq!(journal.stats().commit_waits, 3);
    // The commit thread goes on where it is asked.
    journal.commit(put(&cache, &journal, &[5], 9)).unwrap();
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.own_commits), (4, 3));
    assert!(by_others.load(Ordering::SeqCst) > 0);
    recover_log(&*dev, LEN);
    let stamps = [3, 4, 5].map(|block| stamp_on(&*dev, block));
    assert_eq!(stamps, [3, 3, 9]);
}

/// A journal whose commits wait at the gate before their commit record, and a transaction that a
/// caller has begun to commit: `work` runs meanwhile.
fn beside_a_caller(work: impl FnOnce(&BlockCache, &Arc<Journal>)) {
    let dev = Arc::new(GatedDevice::new(formatted(LEN)));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let tid = put(&cache, &journal, &[3], 1);
    let record = BS.dev_off(log_map(LEN).block(3).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let is_record = move |r: &Request<'_>| r.kind == RequestKind::Write && r.offset == record;
        let closed = dev.gate().close(is_record);
        let syncer = scope.spawn(|| journal.sync_here(tid).unwrap());
        closed.wait_for(1);
        assert_eq!(journal.stats().own_commits, 1);
        work(&cache, &journal);
        drop(closed);
        syncer.join().unwrap();
    });
}

/// What is asked of the commit thread while a caller commits is done when that has ended.
#[test]
fn a_commit_that_is_requested_beside_a_callers_follows_it() {
    let kept = std::cell::RefCell::new(None);
    beside_a_caller(|cache, journal| {
        let tid = put(cache, journal, &[4], 2);
        // Long enough for the commit thread to see that it is not its turn.
        journal.request_commit(tid);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!journal.is_durable(tid));
        *kept.borrow_mut() = Some((Arc::clone(journal), tid));
    });
    let (journal, tid) = kept.take().unwrap();
    wait_until("the request is served", || journal.is_durable(tid));
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.own_commits), (2, 1));
}

/// A second caller commits after the first, also where nothing is asked of the commit thread.
#[test]
fn callers_commit_one_after_the_other() {
    let syncers = std::cell::RefCell::new(Vec::new());
    beside_a_caller(|cache, journal| {
        let tid = put(cache, journal, &[4], 2);
        for _ in 0..2 {
            let journal = Arc::clone(journal);
            let syncer = std::thread::spawn(move || {
                journal.sync_here(tid).unwrap();
                journal.stats()
            });
            syncers.borrow_mut().push(syncer);
        }
        wait_until("both wait", || journal.stats().commit_waits == 3);
    });
    for syncer in syncers.take() {
        let stats = syncer.join().unwrap();
        assert_eq!((stats.commits, stats.own_commits), (2, 2));
    }
}

/// The commit thread is not woken for each new transaction: it watches the age of later ones all
/// the same.
#[test]
fn transactions_after_those_of_callers_are_committed_by_age() {
    let config = Config {
        commit_interval: Duration::from_millis(30),
        ..Config::default()
    };
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, config);
    for round in 0..3 {
        for value in 0..20 {
            journal
                .sync_here(put(&cache, &journal, &[3], value))
                .unwrap();
        }
        let tid = put(&cache, &journal, &[4], round);
        wait_until("it is old", || journal.is_durable(tid));
    }
}

#[test]
fn a_panic_in_a_callers_commit_stops_the_journal() {
    let (_, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let mut handle = journal.start(1).unwrap();
    handle.on_commit(Box::new(|| panic!("planned")));
    drop(handle.create(Pblk::new(5), KEY).unwrap());
    let tid = handle.tid();
    drop(handle);
    assert!(journal.sync_here(tid).is_err());
    assert!(journal.abort_reason().unwrap().contains("panicked"));
    assert!(journal.sync_here(tid).is_err() && journal.start(1).is_err());
    assert!(journal.close().is_err());
}

#[test]
fn a_failed_commit_of_a_caller_is_its_error_and_stops_the_journal() {
    let fails = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&fails);
    let plan = move |request: Request<'_>| {
        let is_hit = armed.load(Ordering::SeqCst) && request.kind == RequestKind::Write;
        match is_hit {
            true => Fault::Fail(std::io::ErrorKind::Other),
            false => Fault::Pass,
        }
    };
    let dev = Arc::new(FaultyDevice::new(formatted(LEN), plan));
    let (cache, journal) = open(dev, LEN, manual());
    let tid = put(&cache, &journal, &[3], 1);
    journal.sync_here(tid).unwrap();
    fails.store(true, Ordering::SeqCst);
    let tid = put(&cache, &journal, &[3], 2);
    assert!(journal.sync_here(tid).is_err());
    fails.store(false, Ordering::SeqCst);
    assert!(journal.sync_here(tid).is_err() && journal.commit(tid).is_err());
    assert!(journal.close().is_err());
}

/// Threads that commit by themselves, through the commit thread or not at all.
#[test]
fn callers_and_the_commit_thread_lose_nothing_together() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 60;
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dev, cache, journal) = (&dev, &cache, &journal);
            scope.spawn(move || {
                for value in 1..=ROUNDS {
                    let tid = put(cache, journal, &[10 + thread, 40], value);
                    match (value + thread) % 4 {
                        0 => journal.commit(tid).unwrap(),
                        1 => continue,
                        _ => journal.sync_here(tid).unwrap(),
                    }
                    let crashed = MemoryDevice::from_bytes(&dev.to_bytes());
                    recover_log(&crashed, LEN);
                    assert_eq!(stamp_on(&crashed, 10 + thread), value, "thread {thread}");
                }
            });
        }
    });
    assert!(journal.stats().own_commits > 0);
    journal.close().unwrap();
    assert!((0..THREADS).all(|thread| stamp_on(&*dev, 10 + thread) == ROUNDS));
}
