//! Figures of growth, and how they are taken.

use std::time::Instant;

use extant_host::Result;

/// A size that is measured: how rows call it, and how much it is.
pub(super) type Step = (&'static str, u32);

/// A figure of a call.
pub(super) struct Figure {
    pub(super) call: &'static str,
    /// The column, where it is not the variant's own.
    pub(super) column: Option<&'static str>,
    pub(super) value: f64,
}

impl Figure {
    pub(super) fn of(call: &'static str, value: f64) -> Figure {
        Figure {
            call,
            column: None,
            value,
        }
    }
}

/// Nanoseconds of each of `count` things that `work` does.
pub(super) fn each(count: u32, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(count))
}

/// Milliseconds of `work`, and what it returns.
pub(super) fn milliseconds<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = work()?;
    Ok((done, start.elapsed().as_secs_f64() * 1e3))
}
