//! Fast commits, with a source that numbers what was done: a crash shows each number that was
//! reported durable, none that was not done, and none twice after a commit of the whole.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::jbd2::fast_commit::{FastCommitWriter, Operation, Operations};
use extant_disk::jbd2::superblock::Incompat;
use extant_jbd2::{BlockCache, Config, Journal, OperationSource, inspect, recover_to_fast_commits};
use extant_testkit::{Event, GatedDevice, Request, RequestKind, wait_until};
use extant_units::{Blocks, Ino, Lblk, Pblk, Tid};
use parking_lot::Mutex;

/// As many as other readers ask for, and an area.
const LEN: u32 = 1024 + 32;
/// The block that every operation changes: its stamp is the number of the last one.
const BLOCK: u64 = 3;

/// Numbers of the operations that no fast commit has told yet.
#[derive(Default, Debug)]
struct Numbers(Mutex<Vec<(Tid, u32)>>);

impl OperationSource for Numbers {
    fn tell(&self, tid: Tid, fast: &mut FastCommitWriter) -> bool {
        let mut numbers = self.0.lock();
        for (of, number) in numbers.drain(..) {
            if of == tid {
                let operation = Operation::DelRange {
                    ino: Ino::ROOT,
                    lblk: Lblk::ZERO,
                    len: number,
                };
                fast.add(&operation).unwrap();
            }
        }
        true
    }
}

/// A device whose log has an area of `area` blocks.
fn with_area(area: u32) -> MemoryDevice {
    let dev = formatted(LEN);
    let superblock = BS.dev_off(log_map(LEN).block(0).unwrap()).unwrap();
    let field = superblock.checked_add(0x54).unwrap();
    dev.write_at(field, &area.to_be_bytes()).unwrap();
    dev
}

struct Rig {
    cache: Arc<BlockCache>,
    journal: Arc<Journal>,
    numbers: Arc<Numbers>,
    last: AtomicU32,
}

impl Rig {
    fn on(dev: Arc<dyn BlockDevice>) -> Self {
        let numbers = Arc::new(Numbers::default());
        let config = Config {
            operations: Some(Arc::clone(&numbers) as _),
            ..manual()
        };
        let (cache, journal) = open(dev, LEN, config);
        Self {
            cache,
            journal,
            numbers,
            last: AtomicU32::new(0),
        }
    }

    /// Does one more operation, told or not.
    fn step(&self, told: bool) -> (Tid, u32) {
        let mut handle = self.journal.start(1).unwrap();
        let tid = handle.tid();
        let block = self.cache.read_unchecked(Pblk::new(BLOCK)).unwrap();
        // The number is chosen with the block held, so that stamps grow.
        let mut number = 0;
        let change = |bytes: &mut [u8]| {
            number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
            stamp(bytes, number.into());
            self.numbers.0.lock().push((tid, number));
        };
        match told {
            true => handle.telling(|handle| handle.modify(&block, change)),
            false => handle.modify(&block, change),
        }
        .unwrap();
        (tid, number)
    }

    fn fast(&self) -> (u64, u64) {
        let stats = self.journal.stats();
        (stats.fast_commits, stats.commits)
    }
}

/// The number of the last operation after a replay of `dev`. Numbers of fast commits follow each
/// other, and come behind that of the transactions.
fn last_on(dev: &dyn BlockDevice) -> u32 {
    let blocks = Blocks::new(LOG_AT);
    let (_, fast) = recover_to_fast_commits(dev, BS, &log_map(LEN), blocks, 1 << 20).unwrap();
    let mut last = u32::try_from(stamp_on(dev, BLOCK)).unwrap();
    let commits = fast.iter().flat_map(|fast| fast.records());
    for operation in commits.flat_map(Operations::of) {
        match operation.unwrap() {
            Operation::DelRange { len, .. } => {
                assert_eq!(len, last + 1, "an operation is missing or told twice");
                last = len;
            }
            other => assert_eq!(other, Operation::Nothing),
        }
    }
    last
}

#[test]
fn a_told_change_is_one_block_and_the_transaction_runs_on() {
    let dev = Arc::new(with_area(32));
    let rig = Rig::on(dev.clone());
    for value in 1..=3 {
        let (tid, _) = rig.step(true);
        let before = rig.journal.stats().log_blocks_written;
        rig.journal.sync_here(tid).unwrap();
        assert_eq!(rig.journal.stats().log_blocks_written, before);
        assert_eq!(rig.fast(), (value, 0));
        assert!(!rig.journal.is_durable(tid), "it runs");
        rig.journal.sync_here(tid).unwrap();
        assert_eq!(rig.fast(), (value, 0), "nothing is new");
    }
    assert_eq!(rig.journal.stats().fast_blocks, 3);
    let copy = MemoryDevice::from_bytes(&dev.to_bytes());
    assert_eq!(last_on(&copy), 3);
    // The whole makes the fast commits a part of the past.
    rig.journal.force_commit().unwrap();
    let copy = MemoryDevice::from_bytes(&dev.to_bytes());
    assert_eq!(last_on(&copy), 3);
    let (tid, _) = rig.step(true);
    rig.journal.commit_here(tid).unwrap();
    assert_eq!(rig.fast(), (4, 1));
    assert_eq!(last_on(&*dev), 4);
}

/// As Linux leaves it: systems that do not know the feature read an empty log.
#[test]
fn an_empty_log_has_the_feature_no_more() {
    let dev = Arc::new(with_area(32));
    let has = || {
        let superblock = inspect(&*dev, BS, &log_map(LEN)).unwrap();
        superblock.incompat().contains(Incompat::FAST_COMMIT)
    };
    let rig = Rig::on(dev.clone());
    for number in 1..=3 {
        assert!(!has());
        rig.journal.sync_here(rig.step(true).0).unwrap();
        assert!(has());
        let copy = MemoryDevice::from_bytes(&dev.to_bytes());
        assert_eq!(last_on(&copy), number);
        rig.journal.checkpoint_all().unwrap();
    }
    rig.journal.close().unwrap();
    assert!(!has());
    let rig = Rig::on(dev.clone());
    rig.journal.sync_here(rig.step(true).0).unwrap();
    assert_eq!(rig.fast(), (1, 0));
}

#[test]
fn a_change_that_is_not_told_commits_the_whole() {
    let dev = Arc::new(with_area(32));
    let rig = Rig::on(dev.clone());
    rig.journal.sync_here(rig.step(true).0).unwrap();
    rig.step(false);
    let (tid, _) = rig.step(true);
    rig.journal.sync_here(tid).unwrap();
    assert!(rig.journal.is_durable(tid));
    assert_eq!(rig.fast(), (1, 1));
    assert_eq!(rig.journal.stats().fast_untold, 1);
    // The next transaction has no such change.
    rig.journal.sync_here(rig.step(true).0).unwrap();
    assert_eq!(rig.fast(), (2, 1));
    assert_eq!(last_on(&*dev), 4);
}

#[test]
fn a_full_area_commits_the_whole() {
    let dev = Arc::new(with_area(6));
    let rig = Rig::on(dev.clone());
    for number in 1..=10 {
        let (tid, _) = rig.step(true);
        rig.journal.sync_here(tid).unwrap();
        let copy = MemoryDevice::from_bytes(&dev.to_bytes());
        assert_eq!(last_on(&copy), number);
    }
    // One block stands between the log and the area, and the last one stays unused.
    assert_eq!(rig.fast(), (8, 2));
    assert_eq!(rig.journal.stats().fast_no_room, 2);
}

#[test]
fn without_an_area_or_a_source_every_commit_is_a_whole() {
    for area in [0, LEN - 1023] {
        let rig = Rig::on(Arc::new(with_area(area)));
        assert!(!rig.journal.has_fast_commits());
        rig.journal.sync_here(rig.step(true).0).unwrap();
        assert_eq!(rig.fast(), (0, 1), "an area of {area}");
    }
    let (cache, journal) = open(Arc::new(with_area(32)), LEN, manual());
    assert!(!journal.has_fast_commits());
    journal.sync_here(put(&cache, &journal, &[3], 1)).unwrap();
    assert_eq!(journal.stats().commits, 1);
}

/// A power cut after any write, with any of the unflushed ones lost.
#[test]
fn every_cut_shows_what_was_reported() {
    for seed in 1..=60 {
        let mut rng = Rng(seed * 0x9e37_79b9 + 1);
        let dev = Recorder::new(&with_area(8));
        let rig = Rig::on(dev.clone());
        let opened = dev.position();
        // (events, number): by then the operation was durable.
        let mut durable = vec![(0, 0)];
        let mut done = vec![(dev.position(), 0)];
        for _ in 0..40 {
            let (tid, number) = rig.step(rng.below(12) > 0);
            done.push((dev.position(), number));
            match rng.below(8) {
                0 => rig.journal.commit(tid).unwrap(),
                1 => rig.journal.checkpoint_all().unwrap(),
                2..=5 => rig.journal.sync_here(tid).unwrap(),
                _ => continue,
            }
            durable.push((dev.position(), number));
        }
        assert!(rig.journal.stats().fast_commits > 4, "seed {seed}");
        for cut in opened..=dev.position() {
            let crashed = dev.crashed(cut, || rng.below(2) == 0);
            let found = last_on(&crashed);
            let promised = durable.iter().rfind(|&&(at, _)| at <= cut).unwrap().1;
            let most = done.iter().rfind(|&&(at, _)| at <= cut).unwrap().1;
            assert!(
                (promised..=most).contains(&found),
                "seed {seed}, cut {cut}: {found}, not {promised} to {most}"
            );
            // A mount goes on behind what it found.
            assert_eq!(last_on(&crashed), found, "seed {seed}, cut {cut}: again");
        }
    }
}

/// A caller whose changes came while another one's fast commit was written needs one more.
#[test]
fn a_fast_commit_serves_those_that_came_before_its_snapshot() {
    let dev = Arc::new(GatedDevice::new(with_area(32)));
    let rig = Rig::on(dev.clone());
    rig.journal.sync_here(rig.step(true).0).unwrap();
    let (first, _) = rig.step(true);
    let area = BS
        .dev_off(log_map(LEN).block(LEN - 32 + 2).unwrap())
        .unwrap();
    std::thread::scope(|scope| {
        let is_second = move |r: &Request<'_>| r.kind == RequestKind::Write && r.offset == area;
        let closed = dev.gate().close(is_second);
        let one = scope.spawn(|| rig.journal.sync_here(first).unwrap());
        closed.wait_for(1);
        // Handles go on while it is written.
        let (second, _) = rig.step(true);
        let waits = rig.journal.stats().commit_waits;
        let rig = &rig;
        let two = scope.spawn(move || rig.journal.sync_here(second).unwrap());
        wait_until("it waits", || rig.journal.stats().commit_waits > waits);
        assert_eq!(rig.fast(), (1, 0));
        drop(closed);
        one.join().unwrap();
        two.join().unwrap();
    });
    assert_eq!(rig.fast(), (3, 0));
    let copy = MemoryDevice::from_bytes(&dev.inner().to_bytes());
    assert_eq!(last_on(&copy), 3);
}

#[test]
fn threads_find_their_operations_on_the_device() {
    let dev = Arc::new(with_area(16));
    let rig = Rig::on(dev.clone());
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..60 {
                    let (tid, _) = rig.step((round + thread) % 31 != 0);
                    match thread {
                        5 => rig.journal.commit(tid).unwrap(),
                        _ => rig.journal.sync_here(tid).unwrap(),
                    }
                    if thread == 0 && round % 8 == 0 {
                        rig.journal.checkpoint_all().unwrap();
                    }
                }
            });
        }
    });
    let (tid, number) = rig.step(true);
    rig.journal.sync_here(tid).unwrap();
    let copy = MemoryDevice::from_bytes(&dev.to_bytes());
    assert_eq!(last_on(&copy), number);
    assert_eq!(number, 6 * 60 + 1);
    assert!(rig.fast().0 > 0, "{:?}", rig.journal.stats());
}

/// A transaction that is in the log, and the head of its fast commits, are what e2fsck refuses.
#[test]
fn the_head_is_cleared_durably() {
    let dev = Arc::new(extant_testkit::Recorder::new(with_area(32)));
    let rig = Rig::on(dev.clone());
    let head = BS.dev_off(log_map(LEN).block(LEN - 32 + 1).unwrap());
    rig.journal.sync_here(rig.step(true).0).unwrap();
    rig.journal.sync_here(rig.step(false).0).unwrap();
    assert_eq!(rig.fast(), (1, 1));
    let events = dev.events();
    let of_head =
        |event: &Event| matches!(event, Event::Write { offset, .. } if Some(*offset) == head);
    let last = events.iter().rposition(of_head).unwrap();
    assert!(matches!(&events[last], Event::Write { data, .. } if data.iter().all(|b| *b == 0)));
    let covered = |event: &Event| matches!(event, Event::Flush { covers } if *covers > last);
    assert!(events.iter().any(covered), "{last} of {}", events.len());
}

/// The head of a first fast commit of several blocks comes behind all others: a cut leaves the
/// whole, or nothing that a replay begins to read.
#[test]
fn a_head_is_written_last() {
    let dev = Arc::new(GatedDevice::new(with_area(32)));
    let rig = Rig::on(dev.clone());
    let (tid, _) = (0..400).map(|_| rig.step(true)).last().unwrap();
    let place = |at| {
        BS.dev_off(log_map(LEN).block(LEN - 32 + at).unwrap())
            .unwrap()
    };
    // One block stands between the log and the area.
    let (head, second) = (place(1), place(2));
    std::thread::scope(|scope| {
        let is_head = move |r: &Request<'_>| r.kind == RequestKind::Write && r.offset == head;
        let closed = dev.gate().close(is_head);
        let one = scope.spawn(|| rig.journal.sync_here(tid).unwrap());
        closed.wait_for(1);
        let mut bytes = [0; 64];
        dev.inner().read_at(second, &mut bytes).unwrap();
        drop(closed);
        one.join().unwrap();
        assert_ne!(bytes, [0; 64], "the second block is there before the first");
    });
    assert_eq!(rig.fast(), (1, 0));
    let copy = MemoryDevice::from_bytes(&dev.inner().to_bytes());
    assert_eq!(last_on(&copy), 400);
}
