//! Counters.

/// Counters.
#[derive(Default)]
pub(crate) struct Stats {}
