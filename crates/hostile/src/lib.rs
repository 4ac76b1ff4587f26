//! Attempts on hostile images: the bodies of the fuzz targets.
//!
//! The fuzzer (`fuzz/`) and the short round of the tests (`tests/hostile.rs`) call the same
//! [`run`]. A target takes any bytes. For those that need an image the bytes are a [`recipe`]:
//! which of the [`seeds`] it starts from, how it is mutated (`extant_testkit::mutate`), and what is
//! done with it. So inputs stay small, a corpus of them too, and a fuzzer's cutting and joining of
//! bytes is cutting and joining of mutations.
//!
//! # The contract
//! Whatever the bytes: no panic in any thread, at most [`MEMORY`] bytes of memory beyond the image,
//! at most [`DEVICE_READS`] bytes read from it, and an answer within [`SECONDS`]. Where a recipe
//! leaves its sound image as it was, nothing may fail that does not fail on a sound image, and what
//! operations leave behind must pass `check`.
//!
//! Concurrency: one call of [`run`] at a time; the measurement of memory is the process's.
#![forbid(unsafe_code)]

pub mod disk;
mod feed;
pub mod meter;
pub mod recipe;
pub mod samples;
pub mod seeds;
mod target;
mod targets;

pub use target::Target;

use std::sync::atomic::{AtomicU64, Ordering};

/// The most memory that an image may cost, beyond its own bytes.
pub const MEMORY: usize = 16 << 20;
/// The most bytes that may be read from an image's device, in multiples of its length.
pub const DEVICE_READS: u64 = 64;
/// The longest that an image may take, in seconds.
pub const SECONDS: u64 = 10;

/// Executions, and what the costliest of them took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Executions.
    pub runs: u64,
    /// The most memory beyond the image, in bytes.
    pub peak_memory: usize,
    /// The most bytes read from a device, in percent of the image's length.
    pub peak_reads: u64,
}

static RUNS: AtomicU64 = AtomicU64::new(0);
static PEAK_MEMORY: AtomicU64 = AtomicU64::new(0);
static PEAK_READS: AtomicU64 = AtomicU64::new(0);

/// Gives `data` to `target`.
///
/// # Panics
/// If the contract is broken.
pub fn run(target: Target, data: &[u8]) {
    seeds::all();
    let before = meter::begin();
    let cost = targets::run(target, data);
    let own = cost.image_bytes * 2 + cost.held_bytes;
    let peak = meter::peak().saturating_sub(before).saturating_sub(own);
    assert!(
        peak <= MEMORY,
        "{} bytes of memory for an image of {} bytes",
        peak,
        cost.image_bytes
    );
    if let Some(percent) = (cost.read_bytes * 100).checked_div(cost.image_bytes as u64) {
        assert!(
            percent <= DEVICE_READS * 100,
            "{} bytes read from an image of {} bytes",
            cost.read_bytes,
            cost.image_bytes
        );
        PEAK_READS.fetch_max(percent, Ordering::Relaxed);
    }
    RUNS.fetch_add(1, Ordering::Relaxed);
    PEAK_MEMORY.fetch_max(peak as u64, Ordering::Relaxed);
}

/// Has e2fsck judge every `nth` state of a sound image after a power cut as well; with 0, which it
/// is at first, none.
pub fn e2fsck_every(nth: u64) {
    targets::e2fsck_every(nth);
}

/// Totals since the process began.
pub fn totals() -> Totals {
    Totals {
        runs: RUNS.load(Ordering::Relaxed),
        peak_memory: usize::try_from(PEAK_MEMORY.load(Ordering::Relaxed)).unwrap_or(usize::MAX),
        peak_reads: PEAK_READS.load(Ordering::Relaxed),
    }
}
