//! The requests that workers serve at this moment, and how one is interrupted.
//!
//! # Invariants
//! An interruption reaches the request it names and no other: it is set under the lock of the slot
//! that has the request, and a slot whose interruption was set gets a new one for the next request.
//!
//! An INTERRUPT has no reply. The kernel would take `EAGAIN` for a wish to send it again, at once
//! and before all other requests: as many of those as there are workers would keep all workers.
//! So what comes before its request is served is remembered, and a request that waits for space
//! is found there (`space`).
//!
//! # Locks
//! Each worker's slot has one, a leaf; only its worker and a thread that asks about all of them
//! take it. The early interruptions have another, a leaf too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use extant_engine::Interrupt;
use parking_lot::Mutex;

/// A slot for each worker.
pub(crate) struct InFlight {
    slots: Vec<Slot>,
    early: EarlyInterrupts,
}

/// Interruptions of requests that no worker served when they came.
#[derive(Default)]
struct EarlyInterrupts {
    /// How many there are, at most [`MAX_EARLY`]: with none, a request looks no further.
    count: AtomicUsize,
    noted: Mutex<EarlyList>,
}

#[derive(Default)]
struct EarlyList {
    /// Interrupted requests, and the count of requests at which each is forgotten.
    uniques: VecDeque<(u64, u64)>,
    /// Requests that have looked for an early interruption.
    requests_seen: u64,
}

/// How many early interruptions are remembered. Most are of requests that were just answered.
const MAX_EARLY: usize = 64;
/// An early interruption is dropped after so many further requests: its own one was read by then.
const EARLY_LIFETIME_REQUESTS: u64 = 1 << 16;

/// The slot of one worker, which writes to it for each request. Aligned to two cache lines, as
/// processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Slot(Mutex<Current>);

#[derive(Default)]
struct Current {
    /// What the kernel calls the request that is served.
    unique: Option<u64>,
    interrupt: Interrupt,
}

/// Marks a request as being served until it is dropped.
#[must_use]
pub(crate) struct ServingGuard<'a> {
    slot: &'a Slot,
    /// Ends the request's walks in the engine.
    pub(crate) interrupt: Interrupt,
}

impl Drop for ServingGuard<'_> {
    fn drop(&mut self) {
        self.slot.0.lock().unique = None;
    }
}

impl InFlight {
    pub(crate) fn new(workers: usize) -> Self {
        let slots = std::iter::repeat_with(Slot::default);
        Self {
            slots: slots.take(workers).collect(),
            early: EarlyInterrupts::default(),
        }
    }

    /// How many workers there are slots for.
    pub(crate) fn workers(&self) -> usize {
        self.slots.len()
    }

    /// Worker `worker`, one of [`InFlight::workers`], begins to serve the request that the kernel
    /// calls `unique`.
    pub(crate) fn begin(&self, worker: usize, unique: u64) -> ServingGuard<'_> {
        let slot = &self.slots[worker];
        let mut current = slot.0.lock();
        current.unique = Some(unique);
        if current.interrupt.is_set() {
            current.interrupt = Interrupt::new();
        }
        let interrupt = current.interrupt.clone();
        drop(current);
        if self.early.count.load(Ordering::SeqCst) > 0 && self.early.take(unique) {
            interrupt.set();
        }
        ServingGuard { slot, interrupt }
    }

    /// Interrupts request `unique` now or, if no worker serves it yet, when one begins to. The
    /// kernel tells of an interruption once, and the numbers of its requests do not come back.
    ///
    /// An interruption is remembered (1) before the slots are looked at (2); a worker fills its
    /// slot (3) before it looks at what is remembered (4). So if (2) misses the request, (3) comes
    /// after it, and (4) finds what (1) remembered.
    pub(crate) fn interrupt(&self, unique: u64) {
        self.early.remember(unique);
        if self.with_slot_of(unique, |current| current.interrupt.set()) {
            self.forget_interruption(unique);
        }
    }

    /// The request of an interruption has ended.
    pub(crate) fn forget_interruption(&self, unique: u64) {
        self.early.take(unique);
    }

    /// Returns whether request `unique`, which a worker serves, was interrupted.
    pub(crate) fn is_interrupted(&self, unique: u64) -> bool {
        let mut is_set = false;
        self.with_slot_of(unique, |current| is_set = current.interrupt.is_set());
        is_set
    }

    /// Calls `act` with the slot that has request `unique`; returns whether one has it.
    fn with_slot_of(&self, unique: u64, mut act: impl FnMut(&Current)) -> bool {
        self.slots.iter().any(|slot| {
            let current = slot.0.lock();
            let found = current.unique == Some(unique);
            if found {
                act(&current);
            }
            found
        })
    }

    /// Whether no worker serves a request.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.0.lock().unique.is_none())
    }
}

impl EarlyInterrupts {
    fn remember(&self, unique: u64) {
        let mut noted = self.noted.lock();
        let end = noted.requests_seen + EARLY_LIFETIME_REQUESTS;
        let uniques = &mut noted.uniques;
        if uniques.len() == MAX_EARLY {
            uniques.pop_front();
        }
        uniques.push_back((unique, end));
        self.count.store(uniques.len(), Ordering::SeqCst);
    }

    /// Forgets the interruption of `unique`; returns whether there was one.
    fn take(&self, unique: u64) -> bool {
        let mut noted = self.noted.lock();
        let EarlyList {
            uniques,
            requests_seen,
        } = &mut *noted;
        *requests_seen += 1;
        let mut found = false;
        uniques.retain(|&(one, end)| {
            found |= one == unique;
            one != unique && *requests_seen < end
        });
        self.count.store(uniques.len(), Ordering::SeqCst);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_flight_until_it_was_served() {
        let requests = InFlight::new(2);
        assert!(requests.is_empty() && requests.workers() == 2);
        let one = requests.begin(1, 77);
        assert!(!requests.is_empty());
        drop(one);
        assert!(requests.is_empty());
    }

    #[test]
    fn an_interruption_reaches_its_request_only() {
        let requests = InFlight::new(3);
        let (one, two) = (requests.begin(0, 10), requests.begin(2, 12));
        requests.interrupt(11);
        assert!(!requests.is_interrupted(10) && !requests.is_interrupted(12));
        requests.interrupt(12);
        assert!(two.interrupt.is_set() && !one.interrupt.is_set());
        assert!(requests.is_interrupted(12) && !requests.is_interrupted(10));
        drop(two);
        assert!(!requests.is_interrupted(12), "served");
        assert!(!requests.begin(2, 14).interrupt.is_set());
    }

    #[test]
    fn an_interruption_may_come_before_its_request() {
        let requests = InFlight::new(2);
        for unique in 0..2 * MAX_EARLY as u64 {
            requests.interrupt(unique);
        }
        assert!(!requests.begin(0, 3).interrupt.is_set(), "long forgotten");
        assert!(requests.begin(0, 100).interrupt.is_set());
        assert!(!requests.begin(0, 100).interrupt.is_set(), "told once");
        requests.forget_interruption(101);
        assert!(!requests.begin(0, 101).interrupt.is_set(), "it had ended");
        let served = requests.begin(1, 7);
        requests.interrupt(7);
        assert!(served.interrupt.is_set());
        drop(served);
        assert!(!requests.begin(1, 7).interrupt.is_set());
    }

    #[test]
    fn an_interruption_that_came_too_late_is_forgotten() {
        let requests = InFlight::new(1);
        requests.interrupt(1);
        for unique in 0..EARLY_LIFETIME_REQUESTS {
            assert_eq!(requests.early.count.load(Ordering::SeqCst), 1);
            drop(requests.begin(0, 2 + unique));
        }
        assert_eq!(requests.early.count.load(Ordering::SeqCst), 0);
    }
}
