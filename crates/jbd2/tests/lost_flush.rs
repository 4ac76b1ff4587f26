//! A flush that fails, loses earlier writes and reports it once: on every path the journal
//! stops, the tail stays, and the next recovery finds every transaction that was acknowledged.

mod common;

use std::sync::Arc;

use common::*;
use extant_blockdev::{BlockDevice, LatchedDevice, MemoryDevice};
use extant_jbd2::{BlockCache, Config, Journal, JournalError, inspect};
use extant_testkit::{Loss, LossyDevice};

const LEN: u32 = 64;

struct Rig {
    host: Arc<LossyDevice<MemoryDevice>>,
    /// The device as a mount uses it.
    dev: Arc<dyn BlockDevice>,
    cache: Arc<BlockCache>,
    journal: Arc<Journal>,
}

impl Rig {
    fn new(config: Config) -> Self {
        let host = Arc::new(LossyDevice::new(formatted(LEN)));
        let dev: Arc<dyn BlockDevice> = Arc::new(LatchedDevice::new(host.clone()));
        let (cache, journal) = open(dev.clone(), LEN, config);
        Self {
            host,
            dev,
            cache,
            journal,
        }
    }

    fn fail(&self, after: u64, seed: u64) {
        self.host.fail(Loss {
            after,
            seed,
            cached: seed.is_multiple_of(2),
        });
    }

    /// The errno in the log, as the host's cache has it.
    fn errno(&self) -> i32 {
        inspect(&*self.host, BS, &log_map(LEN)).unwrap().errno()
    }

    /// The host loses its power, and the log is replayed.
    fn recovered(self, seed: u64) -> Arc<LossyDevice<MemoryDevice>> {
        let _ = self.journal.close();
        drop((self.journal, self.cache, self.dev));
        self.host.crash(seed).unwrap();
        recover_log(&*self.host, LEN);
        self.host
    }
}

fn is_aborted<T>(result: Result<T, JournalError>) -> bool {
    matches!(result, Err(JournalError::Aborted(_)))
}

#[test]
fn a_flush_that_fails_stops_the_journal_on_every_path() {
    type Path = fn(&Rig) -> Result<(), JournalError>;
    let paths: [(&str, u64, Path); 6] = [
        ("flush", 0, |rig| rig.journal.flush()),
        ("sync_all", 0, |rig| rig.journal.sync_all()),
        ("an empty transaction", 0, |rig| {
            let handle = rig.journal.start(1).unwrap();
            let tid = handle.tid();
            drop(handle);
            rig.journal.sync(tid)
        }),
        ("the commit's first", 0, |rig| {
            rig.journal.commit(put(&rig.cache, &rig.journal, &[5], 9))
        }),
        ("the commit's last", 1, |rig| {
            rig.journal.commit(put(&rig.cache, &rig.journal, &[5], 9))
        }),
        ("checkpoint", 0, |rig| rig.journal.checkpoint_all()),
    ];
    for (name, after, path) in paths {
        let rig = Rig::new(manual());
        rig.journal
            .commit(put(&rig.cache, &rig.journal, &[3, 4], 7))
            .unwrap();
        rig.fail(after, 2);
        assert!(path(&rig).is_err(), "{name}");
        assert_eq!(rig.host.failures(), 1, "{name}");
        assert!(rig.journal.abort_reason().is_some(), "{name}");
        for result in [
            rig.journal.flush(),
            rig.journal.sync_all(),
            rig.journal.start(1).map(drop),
            rig.journal.checkpoint_all(),
            rig.journal.close(),
        ] {
            assert!(is_aborted(result), "{name}");
        }
        // The threads have ended.
        assert_eq!(rig.errno(), -5, "{name}: recorded");
        let host = rig.recovered(3);
        assert_eq!([stamp_on(&*host, 3), stamp_on(&*host, 4)], [7, 7], "{name}");
    }
}

/// The error goes to an fsync of a file, not to the checkpoint whose blocks are lost.
#[test]
fn the_tail_does_not_move_after_a_flush_that_failed_elsewhere() {
    for seed in 0..16 {
        let rig = Rig::new(manual());
        for value in 1..=3 {
            let tid = put(&rig.cache, &rig.journal, &[3, 4, 5], value);
            rig.journal.commit(tid).unwrap();
        }
        // A checkpointed block is lost together with a file's data; the fsync of the file asked the
        // device itself.
        rig.fail(0, seed);
        for block in 3..6 {
            let at = BS.dev_off(extant_units::Pblk::new(block)).unwrap();
            rig.dev.write_at(at, &[0; BYTES]).unwrap();
        }
        assert!(rig.dev.flush().is_err());
        assert!(rig.journal.abort_reason().is_none(), "it cannot know yet");
        assert!(rig.journal.checkpoint_all().is_err());
        assert!(rig.journal.abort_reason().is_some());
        let host = rig.recovered(seed);
        for block in 3..6 {
            assert_eq!(stamp_on(&*host, block), 3, "{seed}");
        }
    }
}

#[test]
fn acknowledged_transactions_survive_a_failure_of_any_flush() {
    let (mut failures, mut tails) = (0, 0);
    for after in 0..60 {
        // The commit by itself, and with the flush that an fsync of unchanged metadata asks for.
        for syncs in [false, true] {
            let rig = Rig::new(manual());
            let journal = &rig.journal;
            rig.fail(after, after * 7 + 1);
            let mut acknowledged = 0;
            for value in 1..=40 {
                let blocks = [3, 4 + value % 9, 20 + value % 8];
                let Ok(mut handle) = journal.start(3) else {
                    break;
                };
                for p in blocks {
                    let block = rig
                        .cache
                        .read_unchecked(extant_units::Pblk::new(p))
                        .unwrap();
                    let _ = handle.modify(&block, |bytes| stamp(bytes, value));
                }
                let tid = handle.tid();
                drop(handle);
                let before = rig.host.failures();
                let committed = journal.commit(tid);
                if syncs && committed.is_ok() && journal.sync(tid).is_err() {
                    assert!(journal.abort_reason().is_some(), "{after}");
                }
                if committed.is_ok() {
                    assert_eq!(before, 0, "{after}: a success after the failure");
                    acknowledged = value;
                }
            }
            tails += journal.stats().tail_updates;
            failures += rig.host.failures();
            let host = rig.recovered(after);
            let found = stamp_on(&*host, 3);
            assert!(found >= acknowledged, "{after}: {found} of {acknowledged}");
            let other = (found > 0).then(|| stamp_on(&*host, 20 + found % 8));
            assert!(other.is_none_or(|other| other == found), "{after}: whole");
        }
    }
    assert!(failures > 100 && tails > 50, "{failures} {tails}");
}

#[test]
fn without_a_log_a_failed_flush_stops_changes_too() {
    let host = Arc::new(LossyDevice::new(MemoryDevice::new(1 << 20)));
    let dev: Arc<dyn BlockDevice> = Arc::new(LatchedDevice::new(host.clone()));
    let cache = BlockCache::new(dev.clone(), BS, 64 << 10);
    let journal = Journal::without_log(cache.clone(), manual());
    journal.commit(put(&cache, &journal, &[5], 1)).unwrap();
    host.fail(Loss {
        after: 0,
        seed: 1,
        cached: false,
    });
    assert!(journal.commit(put(&cache, &journal, &[5], 2)).is_err());
    assert!(is_aborted(journal.flush()));
    assert!(is_aborted(journal.close()));
}
