//! Commits, replay, wrap, revokes, checkpoints: the contents of the log and what replay makes of
//! it.

mod common;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use common::*;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_jbd2::{BlockCache, Config, Journal, JournalError, inspect, recover};
use extant_testkit::{Event, Fault, FaultyDevice, GatedDevice, Request, RequestKind, wait_until};
use extant_units::{Blocks, DevOff, Pblk};
use parking_lot::Mutex;

const LEN: u32 = 128;

#[test]
fn a_committed_transaction_is_replayed_and_an_open_one_is_not() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let tid = put(&cache, &journal, &[3, 4, 5], 0x1111);
    journal.commit(tid).unwrap();
    put(&cache, &journal, &[3, 6], 0x2222);
    assert_eq!(
        stamp_on(&*dev, 3),
        0,
        "nothing is written before a checkpoint"
    );
    let copy = extant_blockdev::MemoryDevice::from_bytes(&dev.to_bytes());
    let recovery = recover_log(&copy, LEN);
    assert_eq!((recovery.transactions, recovery.replayed), (1, 3));
    for p in [3, 4, 5] {
        assert_eq!(stamp_on(&copy, p), 0x1111);
    }
    assert_eq!(stamp_on(&copy, 6), 0);
    let again = copy.to_bytes();
    assert!(recover_log(&copy, LEN).was_clean);
    assert_eq!(copy.to_bytes(), again);
    // And the log goes on after a recovery.
    let copy = Arc::new(copy);
    let (cache, journal) = open(copy.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[9], 7)).unwrap();
    recover_log(&*copy, LEN);
    assert_eq!(stamp_on(&*copy, 9), 7);
}

#[test]
fn close_checkpoints_everything_and_empties_the_log() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    put(&cache, &journal, &[3, 4], 5);
    journal.close().unwrap();
    assert_eq!((stamp_on(&*dev, 3), stamp_on(&*dev, 4)), (5, 5));
    assert_eq!(inspect(&*dev, BS, &log_map(LEN)).unwrap().start(), 0);
    assert!(recover_log(&*dev, LEN).was_clean);
    assert_eq!(journal.stats().commits, 1);
}

#[test]
fn an_untouched_log_is_not_written() {
    let dev = Recorder::new(&formatted(LEN));
    let (_, journal) = open(dev.clone(), LEN, manual());
    let after_open = dev.writes.load(Ordering::SeqCst);
    drop(journal.start(3).unwrap());
    journal.close().unwrap();
    assert_eq!(dev.writes.load(Ordering::SeqCst), after_open);
}

#[test]
fn the_log_wraps_many_times() {
    let dev = Recorder::new(&formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    for round in 1..200u64 {
        let blocks = [round % 7, 10 + round % 13, 30 + round % 3];
        let tid = put(&cache, &journal, &blocks, round);
        journal.commit(tid).unwrap();
        let crashed = dev.crashed(dev.position(), || true);
        recover_log(&crashed, LEN);
        for p in blocks {
            assert_eq!(stamp_on(&crashed, p), round, "round {round}");
        }
    }
    let stats = journal.stats();
    assert_eq!(stats.commits, 199);
    assert!(stats.log_blocks_written > 5 * u64::from(LEN), "{stats:?}");
    assert!(stats.tail_updates > 5, "{stats:?}");
    assert!(stats.blocks_checkpointed < stats.blocks_logged, "{stats:?}");
}

#[test]
fn blocks_that_look_like_headers_survive() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let mut handle = journal.start(2).unwrap();
    let block = cache.read_unchecked(Pblk::new(8)).unwrap();
    let fake = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2, 0, 0, 0, 2];
    handle
        .modify(&block, |bytes| bytes[..12].copy_from_slice(&fake))
        .unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    let magic = |p: u64| {
        let mut start = [0; 4];
        dev.read_at(BS.dev_off(Pblk::new(p)).unwrap(), &mut start)
            .unwrap();
        start == fake[..4]
    };
    let headers = (LOG_AT..dev.len() / 1024).filter(|&p| magic(p)).count();
    assert_eq!(headers, 3, "superblock, descriptor, commit record");
    recover_log(&*dev, LEN);
    let mut bytes = [0; 12];
    dev.read_at(BS.dev_off(Pblk::new(8)).unwrap(), &mut bytes)
        .unwrap();
    assert_eq!(bytes, fake);
}

#[test]
fn a_freed_block_is_revoked_and_its_next_owner_survives_replay() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[3, 4], 1)).unwrap();
    let mut handle = journal.start_with_revokes(1, 2).unwrap();
    handle.forget(Pblk::new(3)).unwrap();
    handle.forget(Pblk::new(77)).unwrap();
    let reusable = Arc::new(AtomicU64::new(0));
    let flag = reusable.clone();
    handle.on_commit(Box::new(move || flag.store(1, Ordering::SeqCst)));
    let tid = handle.tid();
    drop(handle);
    assert_eq!(reusable.load(Ordering::SeqCst), 0);
    journal.commit(tid).unwrap();
    assert_eq!(reusable.load(Ordering::SeqCst), 1);
    assert_eq!(journal.stats().revokes, 1, "only 3 was in the log");
    // The block is data now.
    let at = BS.dev_off(Pblk::new(3)).unwrap();
    dev.write_at(at, &99u64.to_le_bytes()).unwrap();
    let copy = extant_blockdev::MemoryDevice::from_bytes(&dev.to_bytes());
    let recovery = recover_log(&copy, LEN);
    assert_eq!((recovery.replayed, recovery.revoked), (1, 1));
    assert_eq!((stamp_on(&copy, 3), stamp_on(&copy, 4)), (99, 1));
    // Neither does a checkpoint write it.
    journal.close().unwrap();
    assert_eq!((stamp_on(&*dev, 3), stamp_on(&*dev, 4)), (99, 1));
}

#[test]
fn journalling_a_block_again_cancels_its_revoke() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[3, 4], 1)).unwrap();
    // Within one transaction.
    let mut handle = journal.start_with_revokes(1, 1).unwrap();
    handle.forget(Pblk::new(3)).unwrap();
    let block = handle.create(Pblk::new(3), KEY).unwrap();
    assert!(block.data().iter().all(|&byte| byte == 0));
    handle.modify(&block, |bytes| stamp(bytes, 2)).unwrap();
    // And in a later one than the revoke.
    handle.forget(Pblk::new(4)).unwrap();
    let tid = handle.tid();
    drop((handle, block));
    journal.commit(tid).unwrap();
    assert_eq!(journal.stats().revokes, 1);
    let mut handle = journal.start(1).unwrap();
    let block = handle.create(Pblk::new(4), KEY).unwrap();
    handle.modify(&block, |bytes| stamp(bytes, 3)).unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    let recovery = recover_log(&*dev, LEN);
    assert_eq!((recovery.replayed, recovery.revoked), (2, 0));
    assert_eq!((stamp_on(&*dev, 3), stamp_on(&*dev, 4)), (2, 3));
}

#[test]
fn a_block_freed_while_its_transaction_commits_is_revoked() {
    // The commit of the first transaction has begun (or ended) when the second frees its block.
    for _ in 0..200 {
        let dev = Arc::new(formatted(LEN));
        let (cache, journal) = open(dev.clone(), LEN, manual());
        let first = put(&cache, &journal, &[3], 1);
        journal.request_commit(first);
        let mut handle = loop {
            let handle = journal.start_with_revokes(1, 1).unwrap();
            if handle.tid() != first {
                break handle;
            }
            drop(handle);
            std::thread::yield_now();
        };
        handle.forget(Pblk::new(3)).unwrap();
        let second = handle.tid();
        drop(handle);
        journal.commit(second).unwrap();
        assert_eq!(journal.stats().revokes, 1);
        assert_eq!(recover_log(&*dev, LEN).replayed, 0);
    }
}

#[test]
fn large_transactions_need_several_descriptors_and_fill_the_log() {
    let len = 1000;
    let dev = Arc::new(formatted(len));
    let (cache, journal) = open(dev.clone(), len, manual());
    let max = journal.max_credits();
    assert!(max > 200, "{max}");
    let blocks: Vec<u64> = (0..u64::from(max)).collect();
    for round in 1..20 {
        let tid = put(&cache, &journal, &blocks, round);
        if round % 3 == 0 {
            journal.commit(tid).unwrap();
        }
    }
    journal.force_commit().unwrap();
    recover_log(&*dev, len);
    for p in blocks {
        assert_eq!(stamp_on(&*dev, p), 19);
    }
    assert!(matches!(
        journal.start(max + 1),
        Err(JournalError::TooManyCredits { .. })
    ));
}

#[test]
fn a_dirty_log_is_not_opened() {
    let dev = Arc::new(formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[3], 1)).unwrap();
    let result = extant_jbd2::Journal::open(cache, dev, log_map(LEN), manual());
    assert!(matches!(result, Err(JournalError::NeedsRecovery)));
}

#[test]
fn a_failed_log_write_stops_the_journal_and_nothing_follows() {
    let dev = Recorder::new(&formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    journal.commit(put(&cache, &journal, &[3], 1)).unwrap();
    let tid = put(&cache, &journal, &[3, 4], 2);
    dev.fail_writes.store(true, Ordering::SeqCst);
    let error = journal.commit(tid).unwrap_err();
    assert!(matches!(error, JournalError::Aborted(_)), "{error}");
    assert!(journal.abort_reason().unwrap().contains("writing"));
    assert!(journal.start(1).is_err());
    assert!(journal.commit(tid).is_err());
    assert!(journal.checkpoint_all().is_err());
    assert!(journal.close().is_err());
    drop(journal);
    // The fault is recorded in the log's superblock, perhaps after the waiters have returned:
    // nothing else is tried.
    let superblock = BS.dev_off(log_map(LEN).block(0).unwrap()).unwrap();
    let mut refused = std::mem::take(&mut *dev.refused.lock()).into_iter();
    assert!(refused.next().is_some_and(|at| at != superblock));
    assert!(refused.all(|at| at == superblock));
    dev.fail_writes.store(false, Ordering::SeqCst);
    let crashed = dev.crashed(dev.position(), || true);
    recover_log(&crashed, LEN);
    assert_eq!((stamp_on(&crashed, 3), stamp_on(&crashed, 4)), (1, 0));
}

#[test]
fn sync_covers_data_written_before_it() {
    let dev = Recorder::new(&formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let tid = put(&cache, &journal, &[3], 1);
    journal.commit(tid).unwrap();
    let at = BS.dev_off(Pblk::new(90)).unwrap();
    dev.write_at(at, &7u64.to_le_bytes()).unwrap();
    // The transaction was durable already: only the flush is missing.
    journal.sync(tid).unwrap();
    let crashed = dev.crashed(dev.position(), || false);
    assert_eq!(stamp_on(&crashed, 90), 7);
    for value in 8..10 {
        dev.write_at(at, &u64::to_le_bytes(value)).unwrap();
        // First nothing runs, then an empty transaction does.
        let handle = (value == 9).then(|| journal.start(1).unwrap());
        drop(handle);
        journal.sync_all().unwrap();
        let crashed = dev.crashed(dev.position(), || false);
        assert_eq!(stamp_on(&crashed, 90), value);
    }
    assert_eq!(journal.stats().commits, 1);
    // The empty transaction left no gap in the log.
    journal.commit(put(&cache, &journal, &[3], 2)).unwrap();
    let crashed = dev.crashed(dev.position(), || false);
    assert_eq!(recover_log(&crashed, LEN).transactions, 2);
    assert_eq!(stamp_on(&crashed, 3), 2);
}

#[test]
fn a_full_cache_is_checkpointed_before_the_log_is_full() {
    const LEN: u32 = 4096;
    let dev = Arc::new(formatted(LEN));
    // Its cache has room for 256 blocks.
    let (cache, journal) = open(dev, LEN, manual());
    for round in 0..10 {
        let blocks: Vec<u64> = (round * 40..(round + 1) * 40).map(|p| p + 1).collect();
        journal.commit(put(&cache, &journal, &blocks, 7)).unwrap();
    }
    assert!(journal.stats().log_blocks_written < u64::from(LEN) / 4);
    wait_until("the blocks that its cache must drop", || {
        journal.stats().blocks_checkpointed >= 144
    });
    journal.close().unwrap();
}

/// A commit that waits for a checkpoint's write of a block that it frees ends when that write
/// fails.
#[test]
fn a_failed_checkpoint_wakes_the_commit_that_waits_for_it() {
    let home = BS.dev_off(Pblk::new(3)).unwrap();
    let (begun, begins) = channel();
    let (fail, fails) = channel();
    let fails = Mutex::new(fails);
    let plan = move |request: Request<'_>| {
        if request.kind == RequestKind::Write && request.offset == home {
            // A test that ended early waits for neither.
            let _ = begun.send(());
            let _ = fails.lock().recv();
            return Fault::Fail(std::io::ErrorKind::Other);
        }
        Fault::Pass
    };
    let dev = Arc::new(FaultyDevice::new(formatted(LEN), plan));
    let (cache, journal) = open(dev, LEN, manual());
    // Goes before the journal, whose end waits for the write.
    let fail = fail;
    // More than half of the log: the checkpoint thread begins with block 3, and no other thread
    // needs the room.
    let mut value = 0;
    while journal.stats().log_blocks_written <= u64::from(LEN / 2) {
        value += 1;
        let blocks: &[u64] = if value == 1 { &[3, 4, 5] } else { &[4, 5, 6] };
        journal
            .commit(put(&cache, &journal, blocks, value))
            .unwrap();
    }
    wait_until("the checkpoint's write", || begins.try_recv().is_ok());
    let mut handle = journal.start_with_revokes(1, 1).unwrap();
    handle.forget(Pblk::new(3)).unwrap();
    let tid = handle.tid();
    drop(handle);
    let written = journal.stats().log_blocks_written;
    journal.request_commit(tid);
    wait_until("the commit's first write", || {
        journal.stats().log_blocks_written != written
    });
    // Time for the commit to begin its wait; without it, it finds that the journal has stopped.
    std::thread::sleep(Duration::from_millis(50));
    fail.send(()).unwrap();
    assert!(journal.commit(tid).is_err());
    assert!(journal.close().is_err());
}

/// A log on a device of its own names no transaction before the data's device has flushed what the
/// transaction relies on, and forgets none before the blocks are durable at their home locations.
#[test]
fn a_log_elsewhere_waits_for_the_flush_of_the_data() {
    let data = Arc::new(extant_testkit::Recorder::new(MemoryDevice::new(1 << 20)));
    let cache = BlockCache::new(data.clone(), BS, 256 << 10);
    let log = Arc::new(formatted(LEN));
    let journal = Journal::open(cache.clone(), log, log_map(LEN), manual()).unwrap();
    let is_flushed = || {
        let events = data.events();
        let last = events
            .iter()
            .rposition(|e| matches!(e, Event::Write { .. }));
        let last = last.unwrap();
        let covers = |e: &Event| matches!(e, Event::Flush { covers } if *covers > last);
        events.iter().any(covers)
    };
    let at = BS.dev_off(Pblk::new(90)).unwrap();
    data.write_at(at, &[7; BYTES]).unwrap();
    journal.commit(put(&cache, &journal, &[3], 1)).unwrap();
    assert!(is_flushed());
    assert_eq!(stamp_on(&*data, 3), 0);
    journal.checkpoint_all().unwrap();
    assert_eq!(stamp_on(&*data, 3), 1);
    assert!(is_flushed());
}

/// The flush of a commit record that is being written may miss what is written now.
#[test]
fn a_sync_beside_a_commit_record_flushes_again() {
    let dev = GatedDevice::new(formatted(LEN));
    let dev = Arc::new(extant_testkit::Recorder::new(dev));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    let tid = put(&cache, &journal, &[3], 1);
    // Behind a descriptor and a copy.
    let record = BS.dev_off(log_map(LEN).block(3).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let is_record = move |r: &Request<'_>| r.kind == RequestKind::Write && r.offset == record;
        let closed = dev.inner().gate().close(is_record);
        scope.spawn(|| journal.commit(tid).unwrap());
        closed.wait_for(1);
        scope.spawn(|| journal.sync(tid).unwrap());
        wait_until("the sync waits", || journal.stats().commit_waits == 2);
    });
    // The recorder has a flush of the record itself, too.
    let events = dev.events();
    let last = events
        .iter()
        .rposition(|e| matches!(e, Event::Write { .. }));
    let behind = &events[last.unwrap() + 1..];
    assert_eq!(behind.len(), 2, "{behind:?}");
}

/// Once the log is empty, no replay repairs what a host has lost: its blocks are flushed, whether
/// or not commits are.
#[test]
fn a_log_is_emptied_behind_a_flush() {
    let dev = Arc::new(extant_testkit::Recorder::new(formatted(LEN)));
    let config = Config {
        barrier: false,
        ..manual()
    };
    let (cache, journal) = open(dev.clone(), LEN, config);
    journal.commit(put(&cache, &journal, &[3], 1)).unwrap();
    let is_flush = |event: &Event| matches!(event, Event::Flush { .. });
    assert!(!dev.events().iter().any(is_flush));
    journal.checkpoint_all().unwrap();
    let events = dev.events();
    let flush = events.iter().rposition(is_flush).unwrap();
    assert!(flush + 1 < events.len(), "the superblock comes afterwards");
}

/// A device that stops the journal as soon as a block of the file system is written.
struct StopsAtHome {
    inner: MemoryDevice,
    journal: Mutex<Weak<Journal>>,
    /// Blocks of the file system that were written.
    written: AtomicU64,
}

impl StopsAtHome {
    const LEN: u32 = 8192;
    /// The log with the block between its two runs.
    const LOG: Range<u64> = LOG_AT..LOG_AT + 2 + Self::LEN as u64;
}

impl BlockDevice for StopsAtHome {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        if !Self::LOG.contains(&(offset.get() / BYTES as u64)) {
            let blocks = (buf.len() / BYTES) as u64;
            self.written.fetch_add(blocks, Ordering::SeqCst);
            let journal = self.journal.lock().upgrade();
            if let Some(journal) = journal {
                journal.abort("stopped by the test");
            }
        }
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A journal that stops while blocks are written home leaves the log as it is, and writes no batch
/// behind the one that is under way.
#[test]
fn a_checkpoint_ends_when_the_journal_stops() {
    const LEN: u32 = StopsAtHome::LEN;
    const BATCH: u64 = 1024;
    for blocks in [4, LOG_AT + 4] {
        let dev = Arc::new(StopsAtHome {
            inner: formatted(LEN),
            journal: Mutex::default(),
            written: AtomicU64::new(0),
        });
        // Large enough: the checkpoint thread has nothing to do.
        let cache = BlockCache::new(dev.clone(), BS, 8 << 20);
        let journal = Journal::open(cache.clone(), dev.clone(), log_map(LEN), manual()).unwrap();
        // Those past the log are the file system's, too.
        let home = |p| {
            if p < LOG_AT {
                p
            } else {
                p + u64::from(LEN) + 2
            }
        };
        let all: Vec<u64> = (0..blocks).map(home).collect();
        journal.commit(put(&cache, &journal, &all, 1)).unwrap();
        *dev.journal.lock() = Arc::downgrade(&journal);
        assert!(journal.checkpoint_all().is_err());
        assert_eq!(dev.written.load(Ordering::SeqCst), blocks.min(BATCH));
        let superblock = inspect(&dev.inner, BS, &log_map(LEN)).unwrap();
        assert_ne!(superblock.start(), 0, "the log is not empty");
        let crashed = MemoryDevice::from_bytes(&dev.inner.to_bytes());
        let device = Blocks::new(crashed.len() / BYTES as u64);
        recover(&crashed, BS, &log_map(LEN), device).unwrap();
        assert!(all.iter().all(|&p| stamp_on(&crashed, p) == 1));
    }
}

#[test]
fn a_fault_that_a_caller_met_is_recorded_in_the_log() {
    let dev = Arc::new(formatted(LEN));
    let (_, journal) = open(dev.clone(), LEN, manual());
    journal.abort_on_fault("a fault elsewhere");
    let why = journal.abort_reason();
    assert_eq!(why.as_deref(), Some("a fault elsewhere"));
    assert_eq!(inspect(&*dev, BS, &log_map(LEN)).unwrap().errno(), -5);
}
