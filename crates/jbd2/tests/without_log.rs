//! A journal without a log: a commit writes the blocks' home locations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_jbd2::{BlockCache, CheckKey, Config, Journal, JournalError};
use extant_testkit::{Event, GatedDevice, Recorder, RequestKind, wait_until};
use extant_units::{BlockSize, DevOff, Pblk};

const KEY: CheckKey = CheckKey::new(1, 0);

fn setup() -> (Arc<MemoryDevice>, Arc<BlockCache>, Arc<Journal>) {
    let dev = Arc::new(MemoryDevice::new(1 << 20));
    let cache = BlockCache::new(dev.clone(), BlockSize::KIB1, 64 << 10);
    let journal = Journal::without_log(cache.clone(), Config::default());
    (dev, cache, journal)
}

fn on_device(dev: &MemoryDevice, p: u64) -> u8 {
    let mut byte = [0];
    dev.read_at(DevOff::new(p * 1024), &mut byte).unwrap();
    byte[0]
}

/// A transaction takes no more memory for larger blocks.
#[test]
fn a_transaction_is_bounded_in_blocks_and_in_bytes() {
    for (log2, most) in [(10, 32 << 10), (12, 32 << 10), (14, 8 << 10), (16, 2 << 10)] {
        let block_size = BlockSize::from_log2(log2).unwrap();
        let dev = Arc::new(MemoryDevice::new(1 << 20));
        let cache = BlockCache::new(dev, block_size, 64 << 10);
        let journal = Journal::without_log(cache, Config::default());
        assert_eq!(journal.max_credits(), most, "2^{log2}");
    }
}

#[test]
fn a_commit_writes_the_home_locations_and_runs_callbacks_first() {
    let (dev, cache, journal) = setup();
    let ran = Arc::new(AtomicU32::new(0));
    let mut handle = journal.start(2).unwrap();
    let block = cache.read_unchecked(Pblk::new(5)).unwrap();
    handle.modify(&block, |b| b[0] = 7).unwrap();
    let new = handle.create(Pblk::new(6), KEY).unwrap();
    handle.modify(&new, |b| b[0] = 8).unwrap();
    assert_eq!(handle.credits_left(), 0);
    let tid = handle.tid();
    let seen = Arc::clone(&ran);
    handle.on_commit(Box::new(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    drop(handle);
    assert!(!journal.is_durable(tid));
    assert_eq!(on_device(&dev, 5), 0);
    journal.commit(tid).unwrap();
    assert!(journal.is_durable(tid));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert_eq!((on_device(&dev, 5), on_device(&dev, 6)), (7, 8));
    assert!(!journal.force_commit().unwrap(), "nothing was left");
    assert_eq!(journal.stats().commits, 1);
}

#[test]
fn a_forgotten_block_is_not_written() {
    let (dev, cache, journal) = setup();
    let mut handle = journal.start(2).unwrap();
    let block = cache.read_unchecked(Pblk::new(5)).unwrap();
    handle.modify(&block, |b| b[0] = 7).unwrap();
    handle.forget(Pblk::new(5)).unwrap();
    drop((handle, block));
    journal.close().unwrap();
    assert_eq!(on_device(&dev, 5), 0);
    assert!(matches!(journal.start(1), Err(JournalError::Closed)));
    journal.close().unwrap();
}

/// Without a log there are no revoke records, so none are granted: the accounts of handles that
/// declare as many as a number holds add up.
#[test]
fn handles_may_declare_any_number_of_revokes() {
    let (_, cache, journal) = setup();
    let barrier = std::sync::Barrier::new(3);
    std::thread::scope(|scope| {
        for at in 5..8 {
            let (cache, journal, barrier) = (&cache, &journal, &barrier);
            scope.spawn(move || {
                let mut handle = journal.start_with_revokes(2, u32::MAX).unwrap();
                let block = cache.read_unchecked(Pblk::new(at)).unwrap();
                handle.modify(&block, |b| b[0] = 7).unwrap();
                barrier.wait();
            });
        }
    });
    assert!(journal.force_commit().unwrap());
    assert_eq!(journal.stats().credit_overflows, 0);
}

#[test]
fn an_abort_is_latched() {
    let (dev, cache, journal) = setup();
    let mut handle = journal.start(2).unwrap();
    let block = cache.read_unchecked(Pblk::new(5)).unwrap();
    handle.modify(&block, |b| b[0] = 7).unwrap();
    let tid = handle.tid();
    journal.abort("first");
    journal.abort("second");
    assert!(handle.modify(&block, |b| b[0] = 8).is_err());
    drop(handle);
    assert_eq!(journal.abort_reason().as_deref(), Some("first"));
    assert!(!journal.has_log());
    for result in [
        journal.commit(tid),
        journal.start(1).map(drop),
        journal.force_commit().map(drop),
        journal.close(),
    ] {
        assert!(matches!(result, Err(JournalError::Aborted(_))));
    }
    drop(journal);
    assert_eq!(on_device(&dev, 5), 0);
    assert_eq!(block.data()[0], 7, "the block stays readable");
}

/// A commit is durable when it returns: the device is flushed after the last block was written.
#[test]
fn a_commit_flushes_the_blocks_that_it_wrote() {
    for barrier in [true, false] {
        let dev = Arc::new(Recorder::new(MemoryDevice::new(1 << 20)));
        let cache = BlockCache::new(dev.clone(), BlockSize::KIB1, 64 << 10);
        let config = Config {
            barrier,
            ..Config::default()
        };
        let journal = Journal::without_log(cache.clone(), config);
        let mut handle = journal.start(2).unwrap();
        for number in [5, 90] {
            let block = cache.read_unchecked(Pblk::new(number)).unwrap();
            handle.modify(&block, |b| b[0] = 7).unwrap();
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).unwrap();
        let events = dev.events();
        let writes = |event: &Event| matches!(event, Event::Write { .. });
        let last = events.iter().rposition(writes).unwrap();
        let covers = |event: &Event| matches!(event, Event::Flush { covers } if *covers > last);
        assert_eq!(events.iter().any(covers), barrier, "{events:?}");
    }
}

/// With `commit_each_handle` no two handles share a transaction, and none waits for itself.
#[test]
fn handles_can_be_committed_one_by_one() {
    let dev = Arc::new(MemoryDevice::new(1 << 20));
    let cache = BlockCache::new(dev.clone(), BlockSize::KIB1, 64 << 10);
    let config = Config {
        commit_each_handle: true,
        ..Config::default()
    };
    let journal = Journal::without_log(cache.clone(), config);
    let block = cache.read_unchecked(Pblk::new(5)).unwrap();
    let mut handle = journal.start(2).unwrap();
    handle.modify(&block, |b| b[0] = 1).unwrap();
    let first = handle.tid();
    handle.restart(2).unwrap();
    assert!(journal.is_durable(first), "a restart is a start");
    assert_eq!(on_device(&dev, 5), 1);
    handle.modify(&block, |b| b[0] = 2).unwrap();
    drop(handle);
    // A handle that changed nothing requests no commit.
    drop(journal.start(1).unwrap());
    drop(journal.start(1).unwrap());
    assert_eq!(on_device(&dev, 5), 2);
    assert_eq!(journal.stats().commits, 2);
}

/// The flush of a commit that has begun may miss what is written now: a sync flushes again. One
/// that comes before shares the commit's.
#[test]
fn a_sync_relies_on_flushes_that_have_not_begun() {
    let dev = Arc::new(Recorder::new(GatedDevice::new(MemoryDevice::new(1 << 20))));
    let cache = BlockCache::new(dev.clone(), BlockSize::KIB1, 64 << 10);
    let journal = Journal::without_log(cache.clone(), Config::default());
    let block = cache.read_unchecked(Pblk::new(5)).unwrap();
    for (held, flushes) in [(RequestKind::Write, 1), (RequestKind::Flush, 2)] {
        let mut handle = journal.start(2).unwrap();
        handle.modify(&block, |b| b[0] += 1).unwrap();
        let tid = handle.tid();
        drop(handle);
        let flushed = || {
            let events = dev.events();
            let flushes = events.iter().filter(|e| matches!(e, Event::Flush { .. }));
            flushes.count()
        };
        let (before, waits) = (flushed(), journal.stats().commit_waits);
        std::thread::scope(|scope| {
            let closed = dev
                .inner()
                .gate()
                .close(move |request| request.kind == held);
            scope.spawn(|| journal.commit(tid).unwrap());
            closed.wait_for(1);
            scope.spawn(|| journal.sync(tid).unwrap());
            wait_until("the sync waits", || {
                journal.stats().commit_waits == waits + 2
            });
        });
        assert_eq!(flushed(), before + flushes, "{held:?}");
    }
}
