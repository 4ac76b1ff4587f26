//! Threads of the model checker.

pub use shuttle::thread::*;

use std::time::Duration;

use crate::modelled::alarms;

/// As `std::thread::sleep`: other threads run meanwhile.
pub fn sleep(time: Duration) {
    alarms::sleep(time);
}

/// A point where the checker may switch to another thread.
pub fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}
