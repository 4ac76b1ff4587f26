//! Measures memory: what the process has from its allocator, and the most it ever had.
//!
//! A program that measures makes [`Meter`] its global allocator. Elsewhere all figures are 0.

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
