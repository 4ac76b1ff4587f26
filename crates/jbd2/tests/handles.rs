//! Handles: credits, growing, restarting, many threads.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use extant_blockdev::MemoryDevice;
use extant_jbd2::{Config, JournalError};
use extant_testkit::{Fault, FaultyDevice, Request, wait_until};
use extant_units::Pblk;

const LEN: u32 = 128;

#[test]
fn a_block_costs_a_credit_once_per_transaction() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev, LEN, manual());
    let block = cache.read_unchecked(Pblk::new(3)).unwrap();
    let mut handle = journal.start(2).unwrap();
    for value in 0..5 {
        handle.modify(&block, |bytes| stamp(bytes, value)).unwrap();
    }
    assert_eq!(handle.credits_left(), 1);
    assert!(handle.ensure(1).unwrap());
    assert_eq!(handle.credits_left(), 1);
    assert!(handle.ensure(4).unwrap());
    assert_eq!(handle.credits_left(), 4);
    let tid = handle.tid();
    drop(handle);
    let mut next = journal.start(1).unwrap();
    assert_eq!(next.tid(), tid);
    next.modify(&block, |bytes| stamp(bytes, 9)).unwrap();
    assert_eq!(next.credits_left(), 1, "it is in the transaction already");
}

#[test]
fn extending_ends_where_the_transaction_is_full_and_restart_goes_on() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let max = journal.max_credits();
    let mut handle = journal.start(1).unwrap();
    let first = handle.tid();
    let mut grown = 1;
    while handle.extend(1).unwrap() {
        grown += 1;
    }
    assert!(grown >= max, "{grown} of {max}");
    for p in 0..u64::from(max) * 3 {
        if !handle.ensure(1).unwrap() {
            let before = handle.tid();
            handle.restart(1).unwrap();
            assert_ne!(handle.tid(), before);
        }
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, p + 1)).unwrap();
    }
    let last = handle.tid();
    assert!(last.is_after(first.next()));
    drop(handle);
    journal.commit(last).unwrap();
    recover_log(&*dev, LEN);
    for p in 0..u64::from(max) * 3 {
        assert_eq!(stamp_on(&*dev, p), p + 1);
    }
    assert_eq!(journal.stats().credit_overflows, 0);
}

#[test]
fn a_requested_commit_refuses_to_extend() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev, LEN, manual());
    let mut handle = journal.start(1).unwrap();
    let block = cache.read_unchecked(Pblk::new(3)).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
    let tid = handle.tid();
    journal.request_commit(tid);
    while handle.extend(1).unwrap() {
        std::thread::yield_now();
    }
    assert!(!journal.is_durable(tid));
    handle.restart(1).unwrap();
    journal.request_commit(handle.tid());
    drop(handle);
    journal.commit(tid).unwrap();
}

#[test]
fn using_more_than_declared_is_counted_where_it_is_tolerated() {
    let dev = Arc::new(formatted(LEN));
    let config = Config {
        tolerate_overflow: true,
        ..manual()
    };
    let (cache, journal) = open(dev.clone(), LEN, config);
    let overflow = |blocks: u64, value: u64| {
        let mut handle = journal.start(2).unwrap();
        for p in 0..blocks {
            let block = cache.read_unchecked(Pblk::new(p)).unwrap();
            handle.modify(&block, |bytes| stamp(bytes, value)).unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid)
    };
    // Each takes most of the log: the commit itself has to wait for room.
    for value in 1..4 {
        overflow(90, value).unwrap();
        let crashed = MemoryDevice::from_bytes(&dev.to_bytes());
        recover_log(&crashed, LEN);
        assert!((0..90).all(|p| stamp_on(&crashed, p) == value));
    }
    assert_eq!(journal.stats().credit_overflows, 3 * 88);
    // And one that no log of this length can hold stops the journal before anything is written.
    assert!(overflow(200, 4).is_err());
    assert!(
        journal
            .abort_reason()
            .unwrap()
            .contains("does not fit the log")
    );
    recover_log(&*dev, LEN);
    assert!((0..90).all(|p| stamp_on(&*dev, p) == 3));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a handle of 1 credits uses 2")]
fn using_more_than_declared_asserts() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let mut handle = journal.start(1).unwrap();
    for p in 0..2 {
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "this thread holds a handle")]
fn waiting_for_a_commit_with_a_handle_asserts() {
    let (_, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let handle = journal.start(1).unwrap();
    let _ = journal.commit(handle.tid());
}

#[test]
fn a_panic_under_a_handle_stops_the_journal() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let inner = journal.clone();
    let panicked = std::thread::spawn(move || {
        let mut handle = inner.start(1).unwrap();
        let block = cache.read_unchecked(Pblk::new(3)).unwrap();
        handle.modify(&block, |_| panic!("half way")).unwrap()
    });
    assert!(panicked.join().is_err());
    assert!(journal.abort_reason().is_some());
    assert!(matches!(journal.start(1), Err(JournalError::Aborted(_))));
}

#[test]
fn a_panicking_callback_stops_the_journal_and_wakes_waiters() {
    let (_, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let mut handle = journal.start(1).unwrap();
    handle.on_commit(Box::new(|| panic!("planned")));
    let tid = handle.tid();
    drop(handle);
    assert!(journal.commit(tid).is_err());
    assert!(journal.abort_reason().unwrap().contains("jbd2-commit"));
    assert!(journal.close().is_err());
    assert!(journal.close().is_err(), "the same for a later caller");
}

/// A panic while the log is emptied stops the journal: no later call begins again with it, the drop
/// included, and none waits for what will not happen.
#[test]
fn a_panic_while_the_log_is_emptied_stops_the_journal() {
    for closes in [false, true] {
        let panics = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicU64::new(0));
        let (armed, count) = (Arc::clone(&panics), Arc::clone(&asked));
        let plan = move |_: Request<'_>| {
            if armed.load(Ordering::SeqCst) {
                count.fetch_add(1, Ordering::SeqCst);
                panic!("planned");
            }
            Fault::Pass
        };
        let dev = Arc::new(FaultyDevice::new(formatted(LEN), plan));
        let (cache, journal) = open(dev.clone(), LEN, manual());
        journal.commit(put(&cache, &journal, &[3], 7)).unwrap();
        panics.store(true, Ordering::SeqCst);
        let emptied = catch_unwind(AssertUnwindSafe(|| match closes {
            true => journal.close(),
            false => journal.checkpoint_all(),
        }));
        assert!(emptied.is_err(), "{emptied:?}");
        assert!(journal.abort_reason().unwrap().contains("panic"));
        assert!(journal.start(1).is_err());
        assert!(journal.checkpoint_all().is_err());
        assert!(journal.close().is_err());
        drop(journal);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "requests");
        panics.store(false, Ordering::SeqCst);
        recover_log(&*dev, LEN);
        assert_eq!(stamp_on(&*dev, 3), 7);
    }
}

#[test]
fn the_commit_interval_commits_and_leaves_an_empty_transaction_alone() {
    let dev = Arc::new(formatted(LEN));
    let config = Config {
        commit_interval: Duration::from_millis(20),
        ..Config::default()
    };
    let (cache, journal) = open(dev, LEN, config);
    drop(journal.start(1).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(journal.stats().commits, 0);
    let tid = put(&cache, &journal, &[3], 1);
    while !journal.is_durable(tid) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(journal.stats().commits, 1);
}

#[test]
fn a_sync_handle_commits_without_being_waited_for() {
    let (_, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let mut handle = journal.start(1).unwrap();
    drop(handle.create(Pblk::new(5), KEY).unwrap());
    handle.set_sync();
    let tid = handle.tid();
    drop(handle);
    while !journal.is_durable(tid) {
        std::thread::yield_now();
    }
}

#[test]
fn commits_and_checkpoints_wait_for_open_handles_of_others() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let released = AtomicBool::new(false);
    std::thread::scope(|s| {
        let mut handle = journal.start(2).unwrap();
        let block = cache.read_unchecked(Pblk::new(3)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
        let waiting = s.spawn(|| {
            journal.checkpoint_all().unwrap();
            assert!(released.load(Ordering::SeqCst));
        });
        std::thread::sleep(Duration::from_millis(20));
        handle.modify(&block, |bytes| stamp(bytes, 2)).unwrap();
        released.store(true, Ordering::SeqCst);
        drop(handle);
        waiting.join().unwrap();
    });
    assert_eq!(journal.stats().blocks_checkpointed, 1);
    drop(journal.start(1).unwrap());
}

#[test]
fn a_freed_block_that_a_checkpoint_writes_is_not_reusable_before_the_write_ends() {
    let dev = Arc::new(Gate::before(3, formatted(LEN)));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    // Fill half of the log, and no more: the checkpoint thread begins with block 3 and stands at
    // the gate. No other thread may.
    let mut value = 0;
    while journal.stats().log_blocks_written <= u64::from(LEN / 2) {
        value += 1;
        let blocks: &[u64] = if value == 1 { &[3, 4, 5] } else { &[4, 5, 6] };
        journal
            .commit(put(&cache, &journal, blocks, value))
            .unwrap();
    }
    dev.wait_for_arrival();
    let mut handle = journal.start_with_revokes(1, 1).unwrap();
    handle.forget(Pblk::new(3)).unwrap();
    let opened = Arc::new(AtomicBool::new(false));
    let reused_early = Arc::new(AtomicBool::new(true));
    let (gate, early) = (opened.clone(), reused_early.clone());
    handle.on_commit(Box::new(move || {
        early.store(!gate.load(Ordering::SeqCst), Ordering::SeqCst);
    }));
    let tid = handle.tid();
    drop(handle);
    let commit_records = dev.durable_writes.load(Ordering::SeqCst);
    journal.request_commit(tid);
    while dev.durable_writes.load(Ordering::SeqCst) == commit_records {
        std::thread::yield_now();
    }
    // The record is written. Time for a callback that does not wait to show itself.
    std::thread::sleep(Duration::from_millis(30));
    opened.store(true, Ordering::SeqCst);
    dev.open();
    journal.commit(tid).unwrap();
    assert!(!reused_early.load(Ordering::SeqCst));
}

#[test]
fn many_threads_lose_nothing_in_a_tiny_log() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, Config::default());
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (cache, journal) = (&cache, &journal);
            s.spawn(move || {
                let mut rng = Rng(t + 1);
                let own = 100 + t;
                for round in 1..=ROUNDS {
                    let mut handle = journal.start_with_revokes(4, 1).unwrap();
                    // A counter that all threads share, one of its own, and one that comes and
                    // goes.
                    for p in [50, own] {
                        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
                        let add = |bytes: &mut [u8]| {
                            let old = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                            stamp(bytes, old + 1);
                        };
                        handle.modify(&block, add).unwrap();
                    }
                    let temporary = Pblk::new(200 + t);
                    if round % 2 == 1 {
                        let block = handle.create(temporary, KEY).unwrap();
                        handle.modify(&block, |bytes| stamp(bytes, round)).unwrap();
                    } else {
                        handle.forget(temporary).unwrap();
                    }
                    let tid = handle.tid();
                    if rng.below(10) == 0 {
                        handle.restart(2).unwrap();
                    }
                    drop(handle);
                    match rng.below(20) {
                        0 => journal.commit(tid).unwrap(),
                        1 => journal.request_commit(tid),
                        2 => journal.checkpoint_all().unwrap(),
                        3 => journal.sync(tid).unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    journal.force_commit().unwrap();
    let crashed = MemoryDevice::from_bytes(&dev.to_bytes());
    recover_log(&crashed, LEN);
    journal.close().unwrap();
    for dev in [&crashed, &*dev] {
        assert_eq!(stamp_on(dev, 50), THREADS * ROUNDS);
        for t in 0..THREADS {
            assert_eq!(stamp_on(dev, 100 + t), ROUNDS);
        }
    }
    let stats = journal.stats();
    assert_eq!(stats.credit_overflows, 0, "{stats:?}");
    assert!(stats.cow_copies > 0 && stats.revokes > 0, "{stats:?}");
}

/// A block of a transaction or of the log is newer than the device; one that is home is not.
#[test]
fn a_block_is_newer_than_the_device_until_it_is_home() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev, LEN, manual());
    let (p, other) = (Pblk::new(3), Pblk::new(4));
    let block = cache.read_unchecked(p).unwrap();
    assert!(journal.newer_than_device(p).is_none());
    let mut handle = journal.start(1).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 77)).unwrap();
    let seen = |p| journal.newer_than_device(p).map(|bytes| bytes.to_vec());
    let newer = Some(block.data().to_vec());
    assert_eq!(seen(p), newer, "in the running transaction");
    drop(handle);
    journal.force_commit().unwrap();
    assert_eq!(seen(p), newer, "in the log");
    assert_eq!(seen(other), None);
    journal.checkpoint_all().unwrap();
    assert_eq!(seen(p), None, "home");
}

/// A thread that waits for room in the next transaction learns that there will be none.
#[test]
fn an_abort_wakes_threads_that_wait_to_start() {
    let (_, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    std::thread::scope(|s| {
        let handle = journal.start(journal.max_credits()).unwrap();
        let waiting = s.spawn(|| journal.start(journal.max_credits()).map(drop));
        std::thread::sleep(Duration::from_millis(20));
        journal.abort("a fault");
        let result = waiting.join().unwrap();
        assert!(matches!(result, Err(JournalError::Aborted(_))));
        drop(handle);
    });
}

/// Threads that would start meanwhile wait for the end of a checkpoint of everything, and start.
#[test]
fn handles_start_after_a_checkpoint_of_everything() {
    let dev = Arc::new(Gate::before(3, formatted(LEN)));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    put(&cache, &journal, &[3], 1);
    std::thread::scope(|s| {
        let checkpoint = s.spawn(|| journal.checkpoint_all().unwrap());
        dev.wait_for_arrival();
        let starting = s.spawn(|| drop(journal.start(1).unwrap()));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!starting.is_finished());
        dev.open();
        checkpoint.join().unwrap();
        starting.join().unwrap();
    });
}

/// The work of a handle before a restart is committed although nothing else asks for it.
#[test]
fn a_restart_has_the_work_so_far_committed() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let block = cache.read_unchecked(Pblk::new(3)).unwrap();
    let mut handle = journal.start(2).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
    let before = handle.tid();
    handle.restart(1).unwrap();
    drop(handle);
    wait_until("the commit", || journal.is_durable(before));
}

/// A revoke record takes its room when it is made, though no handle has declared it.
#[test]
fn revokes_that_no_handle_declared_leave_less_to_extend() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    journal.commit(put(&cache, &journal, &[3], 1)).unwrap();
    let grown = |revokes: bool| {
        let mut handle = journal.start(1).unwrap();
        if revokes {
            handle.forget(Pblk::new(3)).unwrap();
        }
        let mut grown = 0;
        while handle.extend(1).unwrap() {
            grown += 1;
        }
        grown
    };
    let without = grown(false);
    assert_eq!(
        grown(true),
        without - 1,
        "a block of the log for the record"
    );
}

/// A failure of a handle leaves metadata in between if it has changed any since its last restart.
#[test]
fn changes_count_since_the_last_restart() {
    let (cache, journal) = open(Arc::new(formatted(LEN)), LEN, manual());
    let block = cache.read_unchecked(Pblk::new(3)).unwrap();
    let mut handle = journal.start(2).unwrap();
    let begin = handle.changes();
    assert!(!handle.has_changed_since(begin));
    handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
    assert!(handle.has_changed_since(begin));
    assert!(!handle.has_changed_since(handle.changes()));
    handle.restart(2).unwrap();
    assert!(!handle.has_changed_since(begin));
    handle.forget(Pblk::new(3)).unwrap();
    assert!(handle.has_changed_since(begin));
}
