//! The requests that workers serve at this moment.
//!
//! # Locks
//! Each worker's slot has one, a leaf; only its worker and a thread that asks about all of them take it.

use parking_lot::Mutex;

/// A slot for each worker.
pub(crate) struct InFlight(Vec<Slot>);

#[derive(Default)]
struct Slot(Mutex<Option<u64>>);

/// A request is being served until this is dropped.
#[must_use]
pub(crate) struct Served<'a>(&'a Slot);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
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

    /// The worker begins to serve the request that the kernel calls `unique`.
    pub(crate) fn begin(&self, worker: usize, unique: u64) -> Option<Served<'_>> {
        let slot = self.0.get(worker)?;
        *slot.0.lock() = Some(unique);
        Some(Served(slot))
    }

    /// Whether no worker serves a request.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|slot| slot.0.lock().is_none())
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
        assert!(requests.begin(2, 78).is_none());
    }
}
