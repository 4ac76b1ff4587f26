//! The queue of threads that extend a file: one append ticket.
//!
//! Only one thread can extend a file at a time, and an append takes less time than putting a thread
//! to sleep and waking it. So the queue keeps the ticket's holder running and all other threads
//! asleep, the next in line but for naps; no thread is woken for each append. A thread that comes
//! again at once gets the ticket again, a bounded number of times. Then the next in line has it,
//! and was woken a little before, so that the file does not wait for it to wake.
//!
//! # Invariants
//! * One thread at most holds the ticket.
//! * The thread that is next in line gets the ticket after a [`BATCH`] of appends by others, or
//!   [`NAP`] after the last of them.
//!
//! # Concurrency
//! The queue orders threads and protects nothing: what they change is protected by range locks.
//! `state` says all. The seat of the next in line is a mutex, whose waiters are the threads asleep.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A thread holds the ticket.
const HELD: u32 = 1;
/// A thread is next in line.
const NEXT: u32 = 1 << 1;
/// The ticket is kept for the next in line.
const KEPT: u32 = 1 << 2;
/// The next in line sleeps.
const ASLEEP: u32 = 1 << 3;

/// Appends granted out of order since a thread became next in line; long ones count as several.
const BATCH: u32 = 1024;
/// Bytes that make an append count once more: a page.
const LONG: u64 = 4096;
/// Appends of a batch after which the next in line is woken: the rest takes as long as waking does.
const CALL: u32 = BATCH - 96;
/// Looks at a free ticket before the next in line takes it: as long as a thread needs to come
/// again.
const PATIENCE: u32 = 8;
/// Looks at a ticket that is held before the next in line sleeps.
const LOOKS: u32 = 64;
/// The longest that the next in line sleeps before it looks again.
const NAP: Duration = Duration::from_micros(200);
/// Pauses of the processor between two looks.
const PAUSES: u32 = 16;

/// See the module.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct AppendQueue {
    state: AtomicU32,
    /// Appends granted out of order since a thread became next in line. The ticket's holder writes
    /// it.
    streak: AtomicU32,
    seat: Mutex<()>,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// The ticket, held until this is dropped.
#[must_use]
pub(crate) struct AppendTicket<'a> {
    queue: &'a AppendQueue,
    /// How many appends this one counts for.
    weight: u32,
}

impl AppendQueue {
    /// Waits for the ticket, to write `len` bytes.
    #[inline]
    pub(crate) fn wait_for_ticket(&self, len: u64) -> AppendTicket<'_> {
        if !self.try_take() {
            self.line_up();
        }
        // The longest are a batch of their own.
        let pages = u32::try_from(len / LONG).map_or(BATCH, |pages| pages.min(BATCH));
        AppendTicket {
            queue: self,
            weight: pages + 1,
        }
    }

    /// Returns whether a thread holds the ticket or waits for it.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Takes the ticket if it is neither held nor kept.
    #[inline]
    fn try_take(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & (HELD | KEPT) == 0
            && self
                .state
                .compare_exchange(state, state | HELD, Ordering::Acquire, Ordering::Relaxed)
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
            if state & HELD == 0 && (state & KEPT != 0 || free >= PATIENCE) {
                // No other thread waits awake: the one behind still has to take the seat.
                let taken =
                    self.state
                        .compare_exchange(state, HELD, Ordering::Acquire, Ordering::Relaxed);
                if taken.is_ok() {
                    break;
                }
                continue;
            }
            free = if state & HELD == 0 { free + 1 } else { 0 };
            looks += 1;
            if looks > LOOKS && free == 0 {
                // After a nap, one look at a ticket that is held is enough.
                looks = if self.sleep() { 0 } else { LOOKS };
            }
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
        self.streak.store(0, Ordering::Relaxed);
        drop(seat);
    }

    /// Sleeps while the ticket is held. Returns whether the holder woke the thread, not the end of
    /// a nap.
    fn sleep(&self) -> bool {
        let mut held = self.sleep.lock();
        let asleep = |state: u32| (state & HELD != 0).then_some(state | ASLEEP);
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

    /// Gives the ticket back while another thread is next in line.
    #[cold]
    fn give_back(&self, weight: u32) {
        let streak = self.streak.load(Ordering::Relaxed) + weight;
        let keep = if streak >= BATCH { KEPT } else { 0 };
        let called = if streak >= CALL { ASLEEP } else { 0 };
        let left = if streak >= BATCH { 0 } else { streak };
        self.streak.store(left, Ordering::Relaxed);
        let back = |state: u32| Some(state & !(HELD | called) | keep);
        let before = self
            .state
            .fetch_update(Ordering::Release, Ordering::Relaxed, back);
        debug_assert!(before.is_ok_and(|before| before & HELD != 0), "{before:?}");
        if before.is_ok_and(|before| before & called != 0) {
            drop(self.sleep.lock());
            self.wake.notify_one();
        }
    }
}

impl Drop for AppendTicket<'_> {
    #[inline]
    fn drop(&mut self) {
        let free = self
            .queue
            .state
            .compare_exchange(HELD, 0, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            self.queue.give_back(self.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{AppendQueue, BATCH, KEPT, LONG, NEXT};

    #[test]
    fn one_thread_at_a_time_and_each_in_the_end() {
        let queue = AppendQueue::default();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let _mine = queue.wait_for_ticket(0);
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
        assert!(queue.try_take(), "it is free");
    }

    /// Appends that go on before the ticket is kept for the next in line, if each writes `len`
    /// bytes.
    fn batch_of(queue: &AppendQueue, len: u64) -> u32 {
        queue.state.store(NEXT, Ordering::Relaxed);
        let mut count = 0;
        while queue.state.load(Ordering::Relaxed) & KEPT == 0 {
            drop(queue.wait_for_ticket(len));
            count += 1;
        }
        assert!(!queue.try_take(), "kept");
        queue.line_up();
        queue.state.store(0, Ordering::Relaxed);
        count
    }

    #[test]
    fn the_ticket_comes_to_the_next_in_line_after_a_batch() {
        let queue = AppendQueue::default();
        assert_eq!(batch_of(&queue, 1), BATCH);
        assert_eq!(batch_of(&queue, LONG), BATCH / 2);
        assert_eq!(batch_of(&queue, LONG << 8), 4);
        assert_eq!(batch_of(&queue, u64::MAX), 1);
        drop(queue.wait_for_ticket(0));
        assert!(queue.try_take());
    }

    #[test]
    fn a_sleeper_is_woken() {
        let queue = AppendQueue::default();
        let mine = queue.wait_for_ticket(0);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(queue.wait_for_ticket(0)));
            while queue.state.load(Ordering::Relaxed) & super::ASLEEP == 0 {
                std::thread::yield_now();
            }
            drop(mine);
        });
        assert!(queue.try_take());
    }
}
