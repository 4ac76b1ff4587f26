//! The time that a request is going to take, by that of the last one of its kind.
//!
//! Before a request that may take long a worker at `/dev/fuse` wakes another one (`pool`), which
//! costs as much as a short request does. How long a write or an fsync takes depends on the device
//! under the image, so the last one tells. Where it tells wrong, the supervisor of the workers
//! wakes one within two ticks.
//!
//! # Concurrency
//! Workers read and write the flags without order: each value is one that was right lately.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::abi::op;

/// The longest time of a short request: half a tick of the supervisor.
const SHORT: Duration = Duration::from_micros(150);

/// See the module's header. Of a kind that was not served yet a request may be long.
#[derive(Default)]
pub(super) struct ServiceTimes {
    is_fsync_short: AtomicBool,
    is_write_short: AtomicBool,
}

impl ServiceTimes {
    fn of(&self, opcode: u32) -> Option<&AtomicBool> {
        match opcode {
            op::FSYNC => Some(&self.is_fsync_short),
            op::WRITE => Some(&self.is_write_short),
            _ => None,
        }
    }

    /// A request took so long.
    pub(super) fn note(&self, opcode: u32, took: Duration) {
        let is_short = took <= SHORT;
        // A flag that stays is not written: workers share its cache line.
        if let Some(flag) = self.of(opcode)
            && flag.load(Ordering::Relaxed) != is_short
        {
            flag.store(is_short, Ordering::Relaxed);
        }
    }

    /// Returns whether a request is to be expected to take long.
    pub(super) fn is_long(&self, opcode: u32) -> bool {
        let flag = self.of(opcode);
        flag.is_none_or(|is_short| !is_short.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_of_a_kind_tells() {
        let times = ServiceTimes::default();
        let are_long = || [op::FSYNC, op::WRITE, op::FALLOCATE].map(|kind| times.is_long(kind));
        assert_eq!(are_long(), [true; 3], "nothing is known");
        times.note(op::FSYNC, SHORT);
        times.note(op::FALLOCATE, Duration::ZERO);
        assert_eq!(are_long(), [false, true, true]);
        times.note(op::WRITE, Duration::ZERO);
        times.note(op::FSYNC, SHORT + Duration::from_nanos(1));
        assert_eq!(are_long(), [true, false, true]);
    }
}
