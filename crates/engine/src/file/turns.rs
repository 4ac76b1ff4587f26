//! The queue of those who make a file longer.
//!
//! Only one of them can be at work, and an append takes less time than putting a thread to sleep and waking it. So this queue keeps whoever
//! has the turn running and all others asleep, the next in line but for naps; nobody is woken for each append. A thread that comes
//! again at once gets its turn again, a bounded number of times; then the next in line has it, and was woken a little before, so that
//! the file does not wait for it to wake.
//!
//! # Invariants
//! * One thread has the turn at most.
//! * Whoever is next in line has the turn after a [`BATCH`] of others, or a [`NAP`] after the last who came.
//!
//! # Concurrency
//! This orders threads, and protects nothing: what they change is protected by ranges. `state` says all; the seat of the next in line is a
//! mutex, whose waiters are those asleep.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Somebody has the turn.
const TAKEN: u32 = 1;
/// Somebody is next in line.
const NEXT: u32 = 1 << 1;
/// The turn is kept for the next in line.
const KEPT: u32 = 1 << 2;
/// The next in line sleeps.
const ASLEEP: u32 = 1 << 3;

/// Turns that are taken out of line while somebody is next; long ones count as several.
const BATCH: u32 = 1024;
/// Bytes that make a turn count once more.
const LONG: u64 = 4096;
/// How many of a batch are over when the next in line is woken: what is left takes as long as waking does.
const CALL: u32 = BATCH - 96;
/// Looks at a free turn before the next in line takes it: as long as a thread needs to come again.
const PATIENCE: u32 = 8;
/// Looks at a turn that is taken before the next in line sleeps.
const LOOKS: u32 = 64;
/// The longest that the next in line sleeps before it looks again.
const NAP: Duration = Duration::from_micros(200);
/// Pauses between two looks.
const PAUSES: u32 = 16;

/// See the module.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Turns {
    state: AtomicU32,
    /// What was taken of a batch since somebody is next. Written by whoever has the turn.
    streak: AtomicU32,
    seat: Mutex<()>,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// A turn, until it is dropped.
#[must_use]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// What it counts.
    weight: u32,
}

impl Turns {
    /// Waits for a turn, to write `len` bytes.
    #[inline]
    pub(super) fn take(&self, len: u64) -> Turn<'_> {
        if !self.try_take() {
            self.line_up();
        }
        let pages = u32::try_from(len / LONG).unwrap_or(BATCH);
        Turn {
            turns: self,
            weight: pages.saturating_add(1),
        }
    }

    /// Whether somebody has the turn, or waits for it.
    #[inline]
    pub(super) fn are_wanted(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Takes the turn if nobody has it and it is kept for nobody.
    #[inline]
    fn try_take(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & (TAKEN | KEPT) == 0
            && self
                .state
                .compare_exchange(state, state | TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[cold]
    fn line_up(&self) {
        let seat = self.seat.lock();
        self.state.fetch_or(NEXT, Ordering::Relaxed);
        let mut free = 0;
        let mut looks = 0;
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & TAKEN == 0 && (state & KEPT != 0 || free >= PATIENCE) {
                // Nobody else waits awake: the next one has still to sit down.
                let taken =
                    self.state
                        .compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    break;
                }
                continue;
            }
            free = if state & TAKEN == 0 { free + 1 } else { 0 };
            looks += 1;
            if looks > LOOKS && free == 0 {
                // After a nap, one look at a turn that is taken is enough.
                looks = if self.sleep() { 0 } else { LOOKS };
            }
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
        self.streak.store(0, Ordering::Relaxed);
        drop(seat);
    }

    /// Sleeps while the turn is taken, until called, which it says, or for a nap.
    fn sleep(&self) -> bool {
        let mut held = self.sleep.lock();
        let asleep = |state: u32| (state & TAKEN != 0).then_some(state | ASLEEP);
        let slept = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, asleep);
        if slept.is_err() {
            return true;
        }
        while self.state.load(Ordering::Relaxed) & ASLEEP != 0 {
            if self.wake.wait_for(&mut held, NAP).timed_out() {
                let before = self.state.fetch_and(!ASLEEP, Ordering::Relaxed);
                return before & ASLEEP == 0;
            }
        }
        true
    }

    /// Gives the turn back, out of the shortest way: somebody is next in line.
    #[cold]
    fn give_back(&self, weight: u32) {
        let streak = self.streak.load(Ordering::Relaxed).saturating_add(weight);
        let keep = if streak >= BATCH { KEPT } else { 0 };
        let called = if streak >= CALL { ASLEEP } else { 0 };
        let left = if streak >= BATCH { 0 } else { streak };
        self.streak.store(left, Ordering::Relaxed);
        let back = |state: u32| Some(state & !(TAKEN | called) | keep);
        let before = self
            .state
            .fetch_update(Ordering::Release, Ordering::Relaxed, back);
        if before.is_ok_and(|before| before & called != 0) {
            drop(self.sleep.lock());
            self.wake.notify_one();
        }
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        let free =
            self.turns
                .state
                .compare_exchange(TAKEN, 0, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            self.turns.give_back(self.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{BATCH, KEPT, LONG, NEXT, Turns};

    #[test]
    fn one_at_a_time_and_everybody_in_the_end() {
        let turns = Turns::default();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let _mine = turns.take(0);
                        let seen = count.load(Ordering::Relaxed);
                        if round % 64 == 0 {
                            std::thread::yield_now();
                        }
                        count.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 16 * 2000);
        assert!(turns.try_take(), "nobody has it");
    }

    /// Turns that go on before one is kept for the next in line, if each writes `len` bytes.
    fn batch_of(turns: &Turns, len: u64) -> u32 {
        turns.state.store(NEXT, Ordering::Relaxed);
        let mut count = 0;
        while turns.state.load(Ordering::Relaxed) & KEPT == 0 {
            drop(turns.take(len));
            count += 1;
        }
        assert!(!turns.try_take(), "kept");
        turns.line_up();
        turns.state.store(0, Ordering::Relaxed);
        count
    }

    #[test]
    fn a_turn_comes_to_the_next_in_line_after_a_batch() {
        let turns = Turns::default();
        assert_eq!(batch_of(&turns, 1), BATCH);
        assert_eq!(batch_of(&turns, LONG), BATCH / 2);
        assert_eq!(batch_of(&turns, LONG << 8), 4);
        assert_eq!(batch_of(&turns, u64::MAX), 1);
        drop(turns.take(0));
        assert!(turns.try_take());
    }

    #[test]
    fn a_sleeper_is_woken() {
        let turns = Turns::default();
        let mine = turns.take(0);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(turns.take(0)));
            while turns.state.load(Ordering::Relaxed) & super::ASLEEP == 0 {
                std::thread::yield_now();
            }
            drop(mine);
        });
        assert!(turns.try_take());
    }
}
