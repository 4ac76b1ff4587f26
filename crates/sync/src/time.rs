//! The clocks.

#[cfg(extant_shuttle)]
pub use crate::modelled::simulated_time::{Instant, pass, system_now};
#[cfg(not(extant_shuttle))]
pub use std::time::Instant;

/// The time of day.
#[cfg(not(extant_shuttle))]
#[must_use]
#[inline]
pub fn system_now() -> std::time::SystemTime {
    std::time::SystemTime::now()
}
