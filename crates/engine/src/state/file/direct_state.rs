//! What a file remembers of direct I/O.

use std::sync::atomic::{AtomicBool, Ordering};

use extant_pagecache::AddressSpace;

/// What a file remembers of direct I/O.
#[derive(Default)]
pub(crate) struct Direct {
    /// Fills hold what they read.
    used: AtomicBool,
    /// All of them do: those that began before have ended.
    fills_know: AtomicBool,
}

impl Direct {
    /// Whether fills need a hold of what they read.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    /// Before the first direct I/O: from here on fills stay out of ranges that are locked. Takes
    /// the invalidate lock for a moment, if that is new.
    pub(crate) fn announce(&self, mapping: &AddressSpace) {
        if self.fills_know.load(Ordering::Acquire) {
            return;
        }
        self.used.store(true, Ordering::SeqCst);
        drop(mapping.invalidate_lock().write());
        self.fills_know.store(true, Ordering::Release);
    }
}
