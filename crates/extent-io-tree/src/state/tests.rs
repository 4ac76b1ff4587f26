//! Behaviour that only shows under the lock: queues, reports, and the fate of records.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::hooks::NoHooks;
use crate::locking::{Blocked, PATIENCE};
use crate::waiters::{Parker, Waiter};

fn range(start: u64, last: u64) -> ByteRange {
    ByteRange::new(start, last).unwrap()
}

fn state() -> State<NoHooks> {
    State::new(true, NoHooks)
}

fn bits(state: Bits) -> Resolved {
    let control = Bits::empty();
    Resolved { state, control }
}

impl State<NoHooks> {
    fn locks(&mut self, range: ByteRange) -> Result<Id, Blocked> {
        self.try_lock(range, Bits::LOCKED, WaiterId::NONE)
    }

    fn clears(&mut self, range: ByteRange, cleared: Bits) {
        let id = self.records.find(range.start(), Id::NONE);
        self.clear(range, bits(cleared), None, id);
    }

    /// A waiter for `range`, asleep if that is locked.
    fn waits(&mut self, range: ByteRange) -> WaiterId {
        let blocked = self.locks(range).unwrap_err();
        let waiter = Waiter::new(range, Bits::LOCKED, false, Parker::new());
        let id = self.waiters.insert(waiter);
        self.wait_for(blocked, id);
        id
    }

    /// The waiters to wake, in order; they are running from now on.
    fn woken(&mut self) -> Vec<WaiterId> {
        std::iter::from_fn(|| self.waiters.pop(&mut self.to_wake)).collect()
    }

    /// The part of a woken waiter: it takes its range, or sleeps again.
    fn retries(&mut self, id: WaiterId) -> bool {
        let range = self.waiters.get(id).range;
        match self.try_lock(range, Bits::LOCKED, id) {
            Ok(_) => self.arrived(id, Some((range, Bits::LOCKED))),
            Err(blocked) => {
                self.wait_for(blocked, id);
                return false;
            }
        }
        true
    }
}

/// The message with which `breaks` panics.
fn report(breaks: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(breaks)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn io_tree_07_only_lost_lock_bits_wake() {
    let mut state = state();
    state.set(range(0, 9), bits(Bits::DELALLOC), None, Id::NONE);
    state.locks(range(0, 9)).unwrap();
    let waiter = state.waits(range(5, 5));
    state.clears(range(0, 9), Bits::DELALLOC | Bits::NORESERVE);
    assert_eq!(state.woken(), []);
    assert_eq!(state.stats.wakes_skipped, 0);
    // Clearing one record: nothing but its bits says whether to wake.
    state.clears(range(0, 9), Bits::LOCKED);
    assert_eq!(state.woken(), [waiter]);
}

#[test]
fn io_tree_09_a_waiter_holds_no_record() {
    let mut state = state();
    let first = state.locks(range(0, 9)).unwrap();
    let waiter = state.waits(range(0, 9));
    state.clears(range(0, 9), Bits::LOCKED);
    assert_eq!(state.woken(), [waiter]);
    // Before it has run, its record is another's.
    let again = state.locks(range(100, 109)).unwrap();
    assert_eq!(again, first);
    assert!(state.retries(waiter));
    assert_eq!(state.records.len(), 2);
}

#[test]
fn io_tree_10_an_emptied_record_outside_of_the_tree_is_reported() {
    let mut state = state();
    let id = state.set(range(7, 8), bits(Bits::DIRTY), None, Id::NONE);
    state.clears(range(7, 8), Bits::DIRTY);
    *state.records.get_mut(id) = Record::new(range(7, 8), Bits::DIRTY);
    let report = report(|| {
        state.clear_one(id, bits(Bits::DIRTY), None);
    });
    assert!(report.contains("not in the tree"), "{report}");
}

#[test]
fn io_tree_02_05_a_report_names_its_place_and_the_record() {
    let mut state = state();
    let id = state.locks(range(7, 8)).unwrap();
    state.records.get_mut(id).start = 9;
    let report = report(|| state.clears(range(0, 20), Bits::LOCKED));
    assert!(report.contains("record.rs:"), "{report}");
    assert!(report.contains("ends before it starts: [9, 8]"), "{report}");
}

#[test]
fn io_tree_05_a_record_that_goes_while_a_thread_waits_is_reported() {
    let mut state = state();
    let id = state.locks(range(7, 8)).unwrap();
    state.waits(range(8, 8));
    let lost = state.records.get(id).waiters;
    state.records.get_mut(id).bits = Bits::DIRTY;
    state.locked = 0;
    let report = report(|| {
        state.clear_one(id, bits(Bits::DIRTY), None);
    });
    assert!(report.contains("without bits has waiters"), "{report}");
    assert!(report.contains("state.rs:"), "{report}");
    assert!(!lost.is_empty());
}

#[test]
fn a_cut_record_keeps_the_waiters_for_its_part() {
    let mut state = state();
    // With another bit, the record cannot be trimmed.
    state.set(range(0, 99), bits(Bits::DELALLOC), None, Id::NONE);
    state.locks(range(0, 99)).unwrap();
    let (left, right, both) = (range(10, 20), range(60, 70), range(40, 60));
    let [left, right, both] = [left, right, both].map(|r| state.waits(r));
    state.clears(range(0, 49), Bits::LOCKED);
    assert_eq!(state.woken(), [left]);
    state.clears(range(50, 99), Bits::LOCKED);
    // The one wants bytes of the other, and came later: it follows.
    assert_eq!(state.woken(), [right]);
    assert!(state.retries(right));
    assert_eq!(state.woken(), []);
    state.clears(range(60, 70), Bits::LOCKED);
    assert_eq!(state.woken(), [both]);
    assert!(state.retries(both) && state.retries(left));
    assert_eq!(state.locked, 2);
}

/// A trim of a locked record in place wakes the waiters for the bytes that are free now, and no
/// others.
#[test]
fn trimming_a_locked_record_wakes_those_beside_what_is_left() {
    let mut state = state();
    state.locks(range(10, 99)).unwrap();
    let front = state.waits(range(0, 19));
    let middle = state.waits(range(40, 50));
    state.clears(range(0, 29), Bits::LOCKED);
    assert_eq!(state.stats.trim_last, 1);
    assert_eq!(state.woken(), [front]);
    let back = state.waits(range(60, 120));
    state.clears(range(45, 99), Bits::LOCKED);
    assert_eq!(state.stats.trim_first, 1);
    assert_eq!(
        state.woken(),
        [back],
        "of the middle a byte is still locked"
    );
    assert!(state.retries(back));
    state.clears(range(0, 44), Bits::LOCKED);
    assert_eq!(state.woken(), [middle]);
}

/// Neighbours with the same bits are one record, unless they are locked: however they come to lie
/// side by side.
#[test]
fn locked_records_stay_apart() {
    for (what, records) in [(Bits::DELALLOC, 1), (Bits::LOCKED, 3)] {
        let mut state = state();
        // Behind one, in front of one, and between two.
        for part in [range(0, 9), range(20, 29), range(10, 19)] {
            let id = state.records.find(part.start(), Id::NONE);
            state.set(part, bits(what), None, id);
        }
        assert_eq!(state.records.len(), records, "{what:?}");
        // Bits that come and go leave the borders where they were.
        let id = state.records.find(0, Id::NONE);
        state.set(range(0, 29), bits(Bits::DIRTY), None, id);
        assert_eq!(state.records.len(), records, "{what:?}");
        state.clears(range(0, 29), Bits::DIRTY);
        assert_eq!(state.records.len(), records, "{what:?}");
    }
}

/// Each record that becomes one with a neighbour is counted once, whichever side that is on.
#[test]
fn merges_are_counted() {
    let mut state = state();
    let sets = |state: &mut State<NoHooks>, part: ByteRange, what: Bits| {
        let id = state.records.find(part.start(), Id::NONE);
        state.set(part, bits(what), None, id);
        (state.stats.merges, state.records.len())
    };
    assert_eq!(sets(&mut state, range(10, 19), Bits::UPTODATE), (0, 1));
    // Over a gap: behind a record, in front of one, and between two.
    assert_eq!(sets(&mut state, range(20, 29), Bits::UPTODATE), (1, 1));
    assert_eq!(sets(&mut state, range(0, 9), Bits::UPTODATE), (2, 1));
    assert_eq!(sets(&mut state, range(40, 49), Bits::UPTODATE), (2, 2));
    assert_eq!(sets(&mut state, range(30, 39), Bits::UPTODATE), (4, 1));
    // By bits that come and go in a part.
    assert_eq!(sets(&mut state, range(10, 19), Bits::DIRTY), (4, 3));
    state.clears(range(10, 19), Bits::DIRTY);
    assert_eq!((state.stats.merges, state.records.len()), (6, 1));
}

/// The slot of a waiter that was served is another's.
#[test]
fn waiting_takes_no_memory_in_the_long_run() {
    let mut state = state();
    for _ in 0..100 {
        state.locks(range(0, 9)).unwrap();
        let waiter = state.waits(range(0, 9));
        state.clears(range(0, 9), Bits::LOCKED);
        assert_eq!(state.woken(), [waiter]);
        assert!(state.retries(waiter));
        state.clears(range(0, 9), Bits::LOCKED);
    }
    assert!(
        state.waiters.capacity() < 10,
        "{}",
        state.waiters.capacity()
    );
}

#[test]
fn a_waiter_that_lost_too_often_is_not_overtaken() {
    let mut state = state();
    state.locks(range(50, 50)).unwrap();
    let wide = state.waits(range(0, 99));
    for i in 0..PATIENCE - 1 {
        assert!(state.preferred.is_none());
        // Another request is faster, for other bytes, each time it was woken.
        let (old, new) = (50 + u64::from(i), 51 + u64::from(i));
        state.locks(range(new, new)).unwrap();
        state.clears(range(old, old), Bits::LOCKED);
        assert_eq!(state.woken(), [wide]);
        assert!(!state.retries(wide));
    }
    assert_eq!(state.preferred, wide);
    assert_eq!(state.locks(range(0, 0)), Err(Blocked::Behind(wide)));
    let late = [range(0, 0), range(90, 200)].map(|r| state.waits(r));
    assert!(
        state.locks(range(100, 109)).is_ok(),
        "no waiter is preferred here"
    );
    let old = 49 + u64::from(PATIENCE);
    state.clears(range(old, old), Bits::LOCKED);
    assert_eq!(state.woken(), [wide]);
    assert!(state.locks(range(0, 0)).is_err(), "it is still on its way");
    assert!(state.retries(wide));
    assert!(state.preferred.is_none());
    assert_eq!(state.woken(), []);
    state.clears(range(0, 99), Bits::LOCKED);
    // Both had followed it. One of them meets another lock then.
    assert_eq!(state.woken(), late);
    assert!(state.retries(late[0]) && !state.retries(late[1]));
    state.clears(range(100, 109), Bits::LOCKED);
    assert_eq!(state.woken(), [late[1]]);
}

#[test]
fn a_follower_of_a_waiter_that_lost_goes_on_if_it_can() {
    let mut state = state();
    state.locks(range(0, 20)).unwrap();
    let wide = state.waits(range(0, 20));
    let small = [range(5, 5), range(0, 5)].map(|r| state.waits(r));
    state.clears(range(0, 20), Bits::LOCKED);
    assert_eq!(state.woken(), [wide]);
    state.locks(range(0, 0)).unwrap();
    assert!(!state.retries(wide));
    assert_eq!(state.woken(), [small[0]]);
    assert!(state.retries(small[0]));
    state.clears(range(0, 0), Bits::LOCKED);
    assert_eq!(state.woken(), [wide]);
}

/// A preferred waiter stands behind others in a queue: they follow it, and it follows none of them.
#[test]
fn the_preferred_waiter_goes_first_wherever_it_stood() {
    let mut state = state();
    state.locks(range(0, 9)).unwrap();
    let [first, second] = [range(0, 9), range(5, 20)].map(|r| state.waits(r));
    state.preferred = second;
    state.clears(range(0, 9), Bits::LOCKED);
    assert_eq!(state.woken(), [second]);
    assert!(state.retries(second));
    assert_eq!(state.woken(), []);
    state.clears(range(5, 20), Bits::LOCKED);
    assert_eq!(state.woken(), [first]);
    assert!(state.retries(first));
}
