//! Measures memory: what the process has from its allocator, and the most it ever had.
//!
//! Whoever measures makes [`Meter`] the global allocator. Where nobody did, everything counts as
//! nothing.

pub use peak_alloc::PeakAlloc as Meter;

/// Starts a measurement: bytes allocated now.
pub(crate) fn begin() -> usize {
    Meter.reset_peak_usage();
    Meter.current_usage()
}

/// The most bytes that were allocated at once since [`begin`].
pub(crate) fn peak() -> usize {
    Meter.peak_usage()
}
