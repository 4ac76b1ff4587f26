//! The requests that workers serve at this moment, and how one is interrupted.
//!
//! # Invariants
//! An interruption reaches the request it names and no other: it is set under the lock of the slot
//! that has the request, and a slot whose interruption was set gets a new one for the next request.
//!
//! # Locks
//! Each worker's slot has one, a leaf; only its worker and a thread that asks about all of them
//! take it.

use extant_engine::Interrupt;
use parking_lot::Mutex;

/// A slot for each worker.
pub(crate) struct InFlight(Vec<Slot>);

#[derive(Default)]
struct Slot(Mutex<Current>);

#[derive(Default)]
struct Current {
    /// What the kernel calls the request that is served.
    unique: Option<u64>,
    interrupt: Interrupt,
}

/// A request is being served until this is dropped.
#[must_use]
pub(crate) struct Served<'a> {
    slot: &'a Slot,
    /// Ends the request's walks in the engine.
    pub(crate) interrupt: Interrupt,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.slot.0.lock().unique = None;
    }
}

impl InFlight {
    pub(crate) fn new(workers: usize) -> Self {
        let slots = std::iter::repeat_with(Slot::default);
        Self(slots.take(workers).collect())
    }

    /// How many workers there are slots for.
    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Worker `worker`, one of [`InFlight::workers`], begins to serve the request that the kernel
    /// calls `unique`.
    pub(crate) fn begin(&self, worker: usize, unique: u64) -> Served<'_> {
        let slot = &self.0[worker];
        let mut current = slot.0.lock();
        current.unique = Some(unique);
        if current.interrupt.is_set() {
            current.interrupt = Interrupt::new();
        }
        let interrupt = current.interrupt.clone();
        drop(current);
        Served { slot, interrupt }
    }

    /// Interrupts request `unique`; false if no worker serves it.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        self.0.iter().any(|slot| {
            let current = slot.0.lock();
            let found = current.unique == Some(unique);
            if found {
                current.interrupt.set();
            }
            found
        })
    }

    /// Whether no worker serves a request.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|slot| slot.0.lock().unique.is_none())
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
        assert!(!requests.interrupt(11));
        assert!(requests.interrupt(12));
        assert!(two.interrupt.is_set() && !one.interrupt.is_set());
        drop(two);
        assert!(!requests.interrupt(12), "served");
        assert!(!requests.begin(2, 14).interrupt.is_set());
    }
}
