//! The begin of an execution.

use crate::modelled::{alarms, simulated_time};

/// Forgets what the last execution left: its time, and threads that waited when it failed. Call it
/// first in an execution that must be the same in every process.
pub fn restart() {
    simulated_time::restart();
    alarms::forget();
}
