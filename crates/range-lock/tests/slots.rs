//! Lock slots beside records and the EOF lock, with real threads: which exclude each other, and
//! which of them wait.
#![cfg(not(extant_shuttle))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::Duration;

use extant_range_lock::{ByteRange, OwnedRangeGuard, RangeGuard, RangeLock, SlotGuard};
use extant_testkit::{Rng, Watchdog, wait_until};
use parking_lot::{RwLock, RwLockReadGuard};

const SECTOR: u64 = 512;
/// A slot stays locked when a test fails: a thread that waits for it waits for ever.
const LIMIT: Duration = Duration::from_secs(120);

fn sectors(first: u64, count: u64) -> ByteRange {
    ByteRange::from_len(first * SECTOR, count * SECTOR).unwrap()
}

/// A file's locks, without the file.
#[derive(Default)]
struct File {
    locks: Arc<RangeLock>,
    lock: RwLock<()>,
}

impl File {
    fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read()
    }

    fn slot(&self, range: ByteRange) -> Option<SlotGuard<RangeLock>> {
        RangeLock::try_lock_slot(&self.locks, range, &self.lock)
    }

    fn eof(&self, from: u64) -> bool {
        self.locks.try_lock_eof(from, &self.lock).is_some()
    }
}

/// A record with some of the two lock bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Change,
    Fill,
    Direct,
}

#[allow(dead_code, reason = "held")]
enum Record<'a> {
    Tree(RangeGuard<'a>),
    Direct(OwnedRangeGuard),
}

impl Form {
    const ALL: [Self; 3] = [Self::Change, Self::Fill, Self::Direct];

    /// Returns whether it excludes changes, and fills.
    fn excludes(self) -> (bool, bool) {
        (self != Self::Fill, self != Self::Change)
    }

    fn try_lock(self, file: &File, range: ByteRange) -> Option<Record<'_>> {
        let locks = &file.locks;
        match self {
            Self::Change => locks.try_lock(range, &file.shared()).map(Record::Tree),
            Self::Fill => locks.try_lock_fill(range).map(Record::Tree),
            Self::Direct => {
                let record = locks.try_lock_direct(range, &file.shared());
                record.map(Record::Direct)
            }
        }
    }
}

#[test]
fn a_slot_excludes_every_other_form() {
    let file = File::default();
    let slot = file.slot(sectors(8, 8)).unwrap();
    assert_eq!(file.locks.records(), 0);
    for other in [
        sectors(0, 9),
        sectors(15, 1),
        ByteRange::ALL,
        ByteRange::to_infinity(12 * SECTOR),
        ByteRange::new(5000, 5000).unwrap(),
    ] {
        assert!(file.slot(other).is_none(), "{other}");
        for form in Form::ALL {
            assert!(form.try_lock(&file, other).is_none(), "{form:?} {other}");
        }
        assert!(file.locks.is_locked(other, &file.lock), "{other}");
        assert_eq!(file.locks.records(), 0, "nothing is left of an attempt");
    }
    assert!(!file.eof(0) && !file.eof(16 * SECTOR - 1) && file.eof(16 * SECTOR));
    let is_locked = |range| file.locks.is_locked(range, &file.lock);
    assert!(!is_locked(sectors(0, 8)) && !is_locked(ByteRange::to_infinity(8192)));
    let shared = file.shared();
    let beside = file.locks.try_lock(sectors(16, 4), &shared).unwrap();
    assert!(file.slot(sectors(19, 1)).is_none());
    let more = file.slot(sectors(20, 4)).unwrap();
    let eof = file.locks.try_lock_eof(24 * SECTOR, &file.lock).unwrap();
    assert!(file.slot(sectors(24, 4)).is_none());
    drop((beside, more, shared));
    let owner = slot.unlock().unwrap();
    assert!(
        Arc::ptr_eq(&owner, &file.locks),
        "for a caller that needs it"
    );
    let exclusive = file.lock.write();
    assert!(file.slot(sectors(0, 4)).is_none() && is_locked(sectors(0, 4)));
    drop((eof, exclusive));
    assert!(!file.locks.is_any_locked());
    file.locks.verify();
}

/// The questions of tests about a file's locks tell which forms are held.
#[test]
fn each_form_that_is_held_is_told() {
    let file = File::default();
    let told = || {
        let locks = &file.locks;
        [
            locks.is_any_locked(),
            locks.is_range_locked(),
            locks.is_eof_locked(),
        ]
    };
    assert_eq!(told(), [false; 3]);
    let slot = file.slot(sectors(0, 8)).unwrap();
    assert_eq!(told(), [true, true, false]);
    drop(slot);
    for form in Form::ALL {
        let record = form.try_lock(&file, sectors(0, 8)).unwrap();
        assert_eq!(told(), [true, true, false], "{form:?}");
        drop(record);
    }
    let eof = file.locks.try_lock_eof(4096, &file.lock).unwrap();
    assert_eq!(told(), [true, false, true]);
    drop(eof);
    assert_eq!(told(), [false; 3]);
}

/// A thread that locks waits for slots with its record held: new slots cannot overtake it for ever.
#[test]
fn a_record_keeps_new_slots_out_and_is_woken_by_the_last() {
    let _limit = Watchdog::new(LIMIT);
    let file = File::default();
    let done = AtomicBool::new(false);
    scope(|scope| {
        let first = file.slot(sectors(0, 8)).unwrap();
        let second = file.slot(sectors(32, 8)).unwrap();
        scope.spawn(|| {
            let shared = file.shared();
            let held = file.locks.lock(sectors(4, 60), &shared);
            done.store(true, Ordering::SeqCst);
            drop(held);
        });
        wait_until("the range has a record", || file.locks.records() > 0);
        assert!(file.slot(sectors(48, 8)).is_none());
        drop(first);
        assert!(!done.load(Ordering::SeqCst));
        drop(second);
    });
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(file.locks.records(), 0);
}

/// A thread that waits is told apart: for a slot, for the EOF word, or for one after the other.
#[test]
fn a_wait_for_words_is_counted_once() {
    let _limit = Watchdog::new(LIMIT);
    for (has_slot, has_eof) in [(true, false), (false, true), (true, true)] {
        let file = File::default();
        scope(|scope| {
            let slot = has_slot.then(|| file.slot(sectors(0, 8)).unwrap());
            let eof = has_eof.then(|| file.locks.try_lock_eof(8192, &file.lock).unwrap());
            scope.spawn(|| drop(file.locks.lock(ByteRange::ALL, &file.shared())));
            wait_until("the thread sleeps", || file.locks.has_sleepers());
            drop(slot);
            drop(eof);
        });
        assert_eq!(file.locks.stats().lock_waits, 1, "{has_slot} {has_eof}");
        assert!(!file.locks.has_sleepers() && !file.locks.is_any_locked());
    }
}

/// An operation on the whole file sleeps until the last word is gone.
#[test]
fn a_drain_waits_for_words() {
    let _limit = Watchdog::new(LIMIT);
    for has_slot in [true, false] {
        let file = File::default();
        let drained = AtomicBool::new(false);
        scope(|scope| {
            let slot = has_slot.then(|| file.slot(sectors(0, 8)).unwrap());
            let eof = (!has_slot).then(|| file.locks.try_lock_eof(8192, &file.lock).unwrap());
            scope.spawn(|| {
                let exclusive = file.lock.write();
                RangeLock::drain(|| Some(&*file.locks), &exclusive);
                drained.store(true, Ordering::SeqCst);
            });
            let is_drained = || drained.load(Ordering::SeqCst);
            wait_until("the drain", || is_drained() || file.locks.has_sleepers());
            assert!(!is_drained(), "a slot: {has_slot}");
            drop((slot, eof));
        });
        assert!(drained.into_inner());
    }
}

/// A thread that only waits sleeps, too: for whichever form a range is locked in.
#[test]
fn a_wait_ends_once_nothing_is_locked() {
    let _limit = Watchdog::new(LIMIT);
    for form in ["a slot", "the EOF word", "a record"] {
        let file = File::default();
        let done = AtomicBool::new(false);
        scope(|scope| {
            let slot = (form == "a slot").then(|| file.slot(sectors(0, 8)).unwrap());
            let eof = (form == "the EOF word").then(|| file.locks.try_lock_eof(8192, &file.lock));
            let shared = file.shared();
            let record = (form == "a record").then(|| file.locks.lock(sectors(0, 8), &shared));
            scope.spawn(|| {
                file.locks.wait_unlocked();
                done.store(true, Ordering::SeqCst);
            });
            let is_done = || done.load(Ordering::SeqCst);
            let sleeps = || file.locks.has_sleepers() || file.locks.stats().lock_waits > 0;
            wait_until("the wait", || is_done() || sleeps());
            assert!(!is_done(), "{form}");
            drop((slot, eof, record, shared));
        });
        assert!(done.into_inner());
    }
}

/// Random slots and records in one thread, held against the owner of each sector.
#[test]
fn slots_and_records_agree_with_a_model() {
    const SECTORS: u64 = 256;
    let file = File::default();
    let mut rng = Rng::new(7);
    // Whether changes of a sector are excluded, and fills.
    let mut owners = vec![(false, false); 256];
    let mut slots: Vec<(ByteRange, SlotGuard<RangeLock>)> = Vec::new();
    let mut records: Vec<(ByteRange, Form, Record<'_>)> = Vec::new();
    let at = |range: ByteRange| {
        let (first, last) = (range.start() / SECTOR, range.last() / SECTOR);
        usize::try_from(first).unwrap()..=usize::try_from(last.min(SECTORS - 1)).unwrap()
    };
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let first = rng.below(SECTORS);
        let count = match rng.below(8) {
            0 => SECTORS,
            1 => 1 + rng.below(64),
            _ => 1 + rng.below(8),
        };
        let range = sectors(first, count);
        match rng.below(10) {
            0..3 => match file.slot(range) {
                Some(slot) => {
                    let free = owners[at(range)].iter().all(|&had| had == (false, false));
                    assert!(free, "{range}");
                    owners[at(range)].fill((true, true));
                    slots.push((range, slot));
                    granted += 1;
                }
                None => refused += 1,
            },
            3..5 => {
                let form = Form::ALL[rng.index(3)];
                let (change, fill) = form.excludes();
                let is_free = |had: &(bool, bool)| !(had.0 && change || had.1 && fill);
                let free = owners[at(range)].iter().all(is_free);
                if form == Form::Change {
                    assert_eq!(file.locks.is_locked(range, &file.lock), !free, "{range}");
                }
                let record = form.try_lock(&file, range);
                assert_eq!(record.is_some(), free, "{form:?} {range}");
                if let Some(record) = record {
                    for had in &mut owners[at(range)] {
                        *had = (had.0 || change, had.1 || fill);
                    }
                    records.push((range, form, record));
                }
            }
            5..7 if !records.is_empty() => {
                let (range, form, record) = records.swap_remove(rng.index(records.len()));
                drop(record);
                let (change, fill) = form.excludes();
                for had in &mut owners[at(range)] {
                    *had = (had.0 && !change, had.1 && !fill);
                }
            }
            _ if !slots.is_empty() => {
                let (range, slot) = slots.swap_remove(rng.index(slots.len()));
                drop(slot);
                owners[at(range)].fill((false, false));
            }
            _ => {}
        }
    }
    assert!(granted > 1000 && refused > 1000, "{granted} {refused}");
    drop((slots, records));
    assert!(!file.locks.is_any_locked());
    file.locks.verify();
}

/// Threads in all forms count up what nothing else protects.
#[test]
fn no_thread_is_ever_beside_another() {
    const BLOCKS: u64 = 4;
    let file = File::default();
    let owners: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
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
            let (file, alone) = (&file, &alone);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let mut granted = 0;
                while granted < 10_000 {
                    let range = sectors(rng.below(BLOCKS) * 8, 8);
                    if let Some(slot) = file.slot(range) {
                        alone(range);
                        drop(slot);
                        granted += 1;
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut rng = Rng::new(9);
            for round in 0..4_000 {
                let range = sectors(rng.below(BLOCKS) * 8, 8 + 8 * rng.below(3));
                let shared = file.shared();
                if round % 2 == 0 {
                    let held = file.locks.lock(range, &shared);
                    alone(range);
                    drop(held);
                } else {
                    let held = file.locks.lock_eof(range.start(), &shared);
                    alone(ByteRange::to_infinity(range.start()));
                    drop(held);
                }
            }
        });
        scope.spawn(|| {
            let mut granted = 0;
            while granted < 10_000 {
                if let Some(held) = file.locks.try_lock_eof(4096, &file.lock) {
                    alone(ByteRange::to_infinity(4096));
                    drop(held);
                    granted += 1;
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..200 {
                let exclusive = file.lock.write();
                RangeLock::drain(|| Some(&file.locks), &exclusive);
                alone(ByteRange::ALL);
                drop(exclusive);
                std::thread::yield_now();
            }
        });
    });
    assert!(!file.locks.is_any_locked());
    file.locks.verify();
}
