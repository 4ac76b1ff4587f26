//! Files of a mount that are open for writing, and sealed ones whose pages the kernel still has.
//!
//! # Locks
//! Each is a leaf. References to inodes are dropped outside of them: the last one may delete a
//! file.

use std::collections::HashMap;
use std::time::Instant;

use extant_engine::WriteAccess;
use parking_lot::{Condvar, Mutex};

/// See the module's header.
#[derive(Default)]
pub(crate) struct OpenWriters {
    by_handle: Mutex<HashMap<u64, WriteAccess>>,
    stale: Mutex<Vec<u64>>,
    dropped: Condvar,
}

impl OpenWriters {
    /// A file is opened under `handle`.
    pub(crate) fn enter(&self, handle: u64, access: WriteAccess) {
        self.by_handle.lock().insert(handle, access);
    }

    /// `handle` is closed.
    pub(crate) fn leave(&self, handle: u64) {
        let access = self.by_handle.lock().remove(&handle);
        drop(access);
    }

    /// Notes that the kernel is to drop its pages of `nodes`, calls `wake`, and waits until it has
    /// dropped all that are noted, or until `end`.
    pub(crate) fn note_stale(&self, nodes: &[u64], end: Instant, wake: impl FnOnce()) {
        let mut stale = self.stale.lock();
        stale.extend_from_slice(nodes);
        wake();
        while !stale.is_empty() && !self.dropped.wait_until(&mut stale, end).timed_out() {}
    }

    /// Has `drop_pages` drop those of each such node. A node whose pages it says it could not drop
    /// stays one. Returns whether all were dropped.
    pub(crate) fn drop_stale(&self, drop_pages: impl Fn(u64) -> bool) -> bool {
        let stale = self.stale.lock().clone();
        let mut all_dropped = true;
        for node in stale {
            if !drop_pages(node) {
                all_dropped = false;
                continue;
            }
            self.stale.lock().retain(|one| *one != node);
            self.dropped.notify_all();
        }
        all_dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_could_not_be_dropped_stay_noted() {
        let writers = OpenWriters::default();
        let passed = Instant::now();
        writers.note_stale(&[7], passed, || ());
        writers.note_stale(&[8], passed, || ());
        assert!(!writers.drop_stale(|node| node == 7));
        assert_eq!(*writers.stale.lock(), [8]);
        assert!(writers.drop_stale(|_| true));
        assert!(writers.stale.lock().is_empty());
    }
}
