//! Starts that find no room in the log.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use extant_blockdev::MemoryDevice;
use extant_jbd2::OrderedData;
use extant_units::{Pblk, Tid};
use parking_lot::{Condvar, Mutex};

const LEN: u32 = 128;

#[test]
fn starts_wait_for_room_and_run_the_checkpoint() {
    let dev = Arc::new(Gate::before(3, formatted(LEN)));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            for value in 1..100 {
                let blocks = [3, 10 + value % 9, 20 + value % 8];
                journal
                    .commit(put(&cache, &journal, &blocks, value))
                    .unwrap();
            }
        });
        // With the gate shut nothing leaves the log: the writer must stop, before it overwrites its
        // tail.
        while journal.stats().space_waits == 0 {
            assert!(!writer.is_finished());
            std::thread::sleep(Duration::from_millis(1));
        }
        let stats = journal.stats();
        assert!(stats.log_blocks_written < u64::from(LEN), "{stats:?}");
        let crashed = MemoryDevice::from_bytes(&dev.inner.to_bytes());
        recover_log(&crashed, LEN);
        assert_eq!(stamp_on(&crashed, 3), stats.commits);
        dev.open();
        writer.join().unwrap();
    });
    assert_eq!(journal.stats().commits, 99);
    recover_log(&*dev, LEN);
    assert_eq!(stamp_on(&*dev, 3), 99);
}

/// Data that a commit waits for until it is let go.
#[derive(Default)]
struct Held {
    /// The first says that a commit waits, the second that it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl OrderedData for Held {
    fn write_and_wait(&self, _: Tid) {
        let mut state = self.state.lock();
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            self.changed.wait(&mut state);
        }
    }
}

impl Held {
    fn wait_for_commit(&self) {
        let mut state = self.state.lock();
        while !state.0 {
            self.changed.wait(&mut state);
        }
    }

    fn let_go(&self) {
        self.state.lock().1 = true;
        self.changed.notify_all();
    }
}

/// A start waits for the commit under way only where a checkpoint has made no room.
#[test]
fn a_start_goes_on_once_a_checkpoint_has_made_room_though_a_commit_is_under_way() {
    let dev = Arc::new(Gate::before(3, formatted(LEN)));
    let (cache, journal) = open(dev.clone(), LEN, manual());
    // Each takes five blocks of the log. The checkpoint thread stands at the gate from the middle
    // of the log on.
    for value in 1..=18 {
        journal
            .commit(put(&cache, &journal, &[3, 4, 5], value))
            .unwrap();
    }
    dev.wait_for_arrival();
    // The largest transaction still fits beside what is in the log, but not beside this one too.
    let held = Arc::new(Held::default());
    let mut handle = journal.start(10).unwrap();
    for p in 10..20 {
        let block = cache.read_unchecked(Pblk::new(p)).unwrap();
        handle.modify(&block, |bytes| stamp(bytes, 1)).unwrap();
    }
    let ordered: Arc<dyn OrderedData> = held.clone();
    handle.order(&ordered);
    let tid = handle.tid();
    drop(handle);
    journal.request_commit(tid);
    held.wait_for_commit();
    let before = journal.stats();
    assert_eq!(before.space_waits, 0, "{before:?}");
    let (started, starts) = mpsc::channel();
    let (is_in_time, after) = std::thread::scope(|s| {
        s.spawn(|| {
            drop(journal.start(1).unwrap());
            // Nothing receives it once the limit has passed.
            let _ = started.send(());
        });
        while journal.stats().space_waits == 0 {
            std::thread::yield_now();
        }
        dev.open();
        let is_in_time = starts.recv_timeout(Duration::from_secs(30)).is_ok();
        let after = journal.stats();
        held.let_go();
        (is_in_time, after)
    });
    assert!(is_in_time, "the start has waited for the commit");
    assert_eq!((after.space_waits, after.commits), (1, 18), "{after:?}");
    journal.commit(tid).unwrap();
}
