//! Measures memory: an allocator that counts what the process has from it, and the most it ever had.
//!
//! Whoever measures makes it the global allocator. Where nobody did, everything counts as nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted.
pub struct Meter;

fn took(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments; counting touches no memory of its.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        let got = unsafe { System.alloc(layout) };
        if !got.is_null() {
            took(layout.size());
        }
        got
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let got = unsafe { System.alloc_zeroed(layout) };
        if !got.is_null() {
            took(layout.size());
        }
        got
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` through the functions here, with this layout.
        unsafe { System.dealloc(at, layout) };
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `at` came from `System` through the functions here, with this layout.
        let got = unsafe { System.realloc(at, layout, size) };
        if !got.is_null() {
            took(size);
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        got
    }
}

/// Starts a measurement: bytes allocated now.
pub(crate) fn begin() -> usize {
    let live = LIVE.load(Ordering::Relaxed);
    PEAK.store(live, Ordering::Relaxed);
    live
}

/// The most bytes that were allocated at once since [`begin`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}
