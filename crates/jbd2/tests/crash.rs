//! Crashes: a cut after any write, with any subset of the unflushed writes lost. What replay leaves
//! must be the state at the end of some transaction, no older than the last one that was reported
//! durable.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use extant_blockdev::BlockDevice;
use extant_jbd2::{BlockCache, Journal};
use extant_units::{Pblk, Tid};
use parking_lot::Mutex;

const LEN: u32 = 96;
/// Operations use blocks 1..=BLOCKS; block 0 carries the number of the last operation.
const BLOCKS: u64 = 24;

/// The state of a block, as the operations see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Meta(u64),
    /// Freed; usable for data once the transaction is durable.
    Freed,
    /// Written as data, not through the journal; the number of events when the write had returned.
    Data(u64, usize),
}

struct Player {
    dev: Arc<Recorder>,
    cache: Arc<BlockCache>,
    journal: Arc<Journal>,
    rng: Rng,
    blocks: BTreeMap<u64, Is>,
    /// Freed blocks and whether the freeing transaction is durable.
    freed: BTreeMap<u64, Arc<AtomicBool>>,
    /// The state after each operation, and the operation's transaction.
    history: Vec<(Tid, BTreeMap<u64, Is>)>,
    /// (events, operation): by then that operation was durable.
    durable: Vec<(usize, usize)>,
}

impl Player {
    fn new(seed: u64) -> Self {
        let dev = Recorder::new(&formatted(LEN));
        let (cache, journal) = open(dev.clone(), LEN, manual());
        let blocks: BTreeMap<u64, Is> = (1..=BLOCKS).map(|p| (p, Is::Meta(0))).collect();
        Self {
            dev,
            cache,
            journal,
            rng: Rng(seed),
            history: vec![(Tid::new(0), blocks.clone())],
            blocks,
            freed: BTreeMap::new(),
            durable: vec![(0, 0)],
        }
    }

    fn step(&mut self) {
        let op = self.history.len() as u64;
        let mut handle = self.journal.start_with_revokes(8, 4).unwrap();
        let block = self.cache.read_unchecked(Pblk::new(0)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, op)).unwrap();
        drop(block);
        for _ in 0..1 + self.rng.below(4) {
            let p = 1 + self.rng.below(BLOCKS);
            let is = self.blocks[&p];
            let next = match is {
                Is::Meta(_) if self.rng.below(4) == 0 => {
                    handle.forget(Pblk::new(p)).unwrap();
                    let durable = Arc::new(AtomicBool::new(false));
                    let flag = durable.clone();
                    handle.on_commit(Box::new(move || flag.store(true, Ordering::SeqCst)));
                    self.freed.insert(p, durable);
                    Is::Freed
                }
                Is::Meta(_) => {
                    let block = self.cache.read_unchecked(Pblk::new(p)).unwrap();
                    handle.modify(&block, |bytes| stamp(bytes, op)).unwrap();
                    Is::Meta(op)
                }
                Is::Freed | Is::Data(..) => {
                    if self.rng.below(3) > 0 {
                        continue;
                    }
                    self.freed.remove(&p);
                    let block = handle.create(Pblk::new(p), KEY).unwrap();
                    handle.modify(&block, |bytes| stamp(bytes, op)).unwrap();
                    Is::Meta(op)
                }
            };
            self.blocks.insert(p, next);
        }
        let tid = handle.tid();
        drop(handle);
        self.history.push((tid, self.blocks.clone()));
        match self.rng.below(12) {
            0..=2 => self.journal.request_commit(tid),
            3..=5 => {
                self.journal.commit(tid).unwrap();
                self.note_durable();
            }
            6 => {
                self.journal.checkpoint_all().unwrap();
                self.note_durable();
            }
            _ => {}
        }
        self.reuse();
    }

    fn note_durable(&mut self) {
        self.durable
            .push((self.dev.position(), self.history.len() - 1));
    }

    /// Writes data to freed blocks whose transaction is durable.
    fn reuse(&mut self) {
        let ready: Vec<u64> = self
            .freed
            .iter()
            .filter(|(_, durable)| durable.load(Ordering::SeqCst))
            .map(|(p, _)| *p)
            .collect();
        for p in ready {
            self.freed.remove(&p);
            let value = u64::MAX - self.history.len() as u64;
            let mut bytes = vec![0; BYTES];
            stamp(&mut bytes, value);
            self.dev
                .write_at(BS.dev_off(Pblk::new(p)).unwrap(), &bytes)
                .unwrap();
            self.blocks.insert(p, Is::Data(value, self.dev.position()));
            if let Some((_, state)) = self.history.last_mut() {
                *state = self.blocks.clone();
            }
        }
    }

    /// Operations that were the last of their transaction.
    fn boundaries(&self) -> BTreeSet<usize> {
        let mut ends = BTreeSet::from([0]);
        for (op, pair) in self.history.windows(2).enumerate() {
            if pair[0].0 != pair[1].0 {
                ends.insert(op);
            }
        }
        ends.insert(self.history.len() - 1);
        ends
    }

    /// Recovers `crashed`, the device after `cut` events, and compares. Returns the operation it
    /// shows.
    fn check(&self, crashed: &dyn BlockDevice, cut: usize, flushed: usize, why: &str) -> usize {
        recover_log(crashed, LEN);
        let shown = usize::try_from(stamp_on(crashed, 0)).unwrap();
        let durable = self.durable.iter().rev().find(|(at, _)| *at <= cut);
        assert!(
            shown >= durable.unwrap().1,
            "{why}: shows {shown}, {durable:?} was durable"
        );
        assert!(
            self.boundaries().contains(&shown),
            "{why}: {shown} is no transaction's end"
        );
        for (&p, &is) in &self.history[shown].1 {
            let found = stamp_on(crashed, p);
            match is {
                Is::Meta(value) => assert_eq!(found, value, "{why}: block {p} at {shown}"),
                Is::Data(value, at) if at <= flushed => {
                    assert_eq!(found, value, "{why}: data in block {p} at {shown}");
                }
                Is::Data(..) | Is::Freed => {}
            }
        }
        shown
    }
}

#[test]
fn every_cut_shows_a_transaction_boundary() {
    let mut shown = BTreeSet::new();
    let mut revokes = 0;
    for seed in 1..=6 {
        let mut player = Player::new(seed * 0x9e37_79b9);
        for _ in 0..150 {
            player.step();
        }
        revokes += player.journal.stats().revokes;
        let end = player.dev.position();
        let mut rng = Rng(seed);
        for cut in (0..end).step_by(7) {
            let flushed = player.dev.last_flush(cut);
            for odds in [0, 1, 2, 4] {
                let arrived = || match odds {
                    0 => true,
                    1 => false,
                    odds => rng.below(odds) == 0,
                };
                let crashed = player.dev.crashed(cut, arrived);
                let why = format!("seed {seed}, cut {cut} of {end}, odds {odds}");
                shown.insert((seed, player.check(&crashed, cut, flushed, &why)));
            }
        }
        player.journal.close().unwrap();
        let crashed = player.dev.crashed(player.dev.position(), || false);
        player.note_durable();
        let all = player.dev.position();
        player.check(&crashed, all, all, "after close");
    }
    assert!(shown.len() > 100, "only {} states were seen", shown.len());
    assert!(revokes > 50, "only {revokes} revokes");
}

#[test]
fn a_crash_during_recovery_changes_nothing() {
    let mut player = Player::new(77);
    for _ in 0..60 {
        player.step();
    }
    player.journal.force_commit().unwrap();
    let end = player.dev.position();
    let crashed = player.dev.crashed(end, || true);
    let mut rng = Rng(5);
    let recording = Recorder::new(&crashed);
    let first = recover_log(&*recording, LEN);
    assert!(first.replayed > 5, "{first:?}");
    let wanted = recording.crashed(recording.position(), || false);
    for cut in 0..recording.position() {
        let again = recording.crashed(cut, || rng.below(2) == 0);
        recover_log(&again, LEN);
        for p in 0..LOG_AT {
            assert_eq!(
                stamp_on(&again, p),
                stamp_on(&wanted, p),
                "cut {cut}, block {p}"
            );
        }
    }
}

#[test]
fn threads_that_commit_together_lose_nothing() {
    const THREADS: u64 = 6;
    let dev = Recorder::new(&formatted(LEN));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    // Per thread: (events, value) of each commit that had returned.
    let durable: Vec<Mutex<Vec<(usize, u64)>>> = (0..THREADS).map(|_| Mutex::default()).collect();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (dev, cache, journal, durable) = (&dev, &cache, &journal, &durable);
            s.spawn(move || {
                for value in 1..=40 {
                    // Two blocks of its own and one that all share.
                    let tid = put(cache, journal, &[10 + 2 * t, 11 + 2 * t, 40], value);
                    if (value + t) % 3 != 0 {
                        journal.commit(tid).unwrap();
                        durable[usize::try_from(t).unwrap()]
                            .lock()
                            .push((dev.position(), value));
                    }
                }
            });
        }
    });
    let stats = journal.stats();
    assert!(
        stats.commits < stats.commit_waits,
        "{stats:?}: no commit was shared"
    );
    let mut rng = Rng(11);
    let end = dev.position();
    for cut in (0..=end).step_by(5).chain([end]) {
        let crashed = dev.crashed(cut, || rng.below(2) == 0);
        recover_log(&crashed, LEN);
        for t in 0..THREADS {
            let value = stamp_on(&crashed, 10 + 2 * t);
            assert_eq!(stamp_on(&crashed, 11 + 2 * t), value, "cut {cut}: torn");
            let known = durable[usize::try_from(t).unwrap()].lock();
            let least = known.iter().rev().find(|(at, _)| *at <= cut);
            let least = least.map_or(0, |(_, value)| *value);
            assert!(
                value >= least,
                "cut {cut}: thread {t} at {value}, {least} was durable"
            );
        }
    }
}
