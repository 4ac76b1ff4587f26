//! Counters of a device.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests that were sent, those that were sent again included.
    pub(crate) requests: AtomicU64,
    /// Sessions after the first one.
    pub(crate) reconnects: AtomicU64,
    /// Changes that were written again after a connection was lost.
    pub(crate) resent: AtomicU64,
    /// Flushes that the device made on its own, because too much was unflushed.
    pub(crate) own_flushes: AtomicU64,
    /// Requests that were not aligned to the server's smallest block.
    pub(crate) unaligned: AtomicU64,
}

impl Counters {
    /// Adds one.
    pub(crate) fn bump(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters, by name.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("nbd_requests", get(&self.requests)),
            ("nbd_reconnects", get(&self.reconnects)),
            ("nbd_resent", get(&self.resent)),
            ("nbd_own_flushes", get(&self.own_flushes)),
            ("nbd_unaligned", get(&self.unaligned)),
        ]
    }
}
