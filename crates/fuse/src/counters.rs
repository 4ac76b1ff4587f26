//! How long the requests of each kind took to serve, and so how many there were. Each is a round
//! trip to the kernel.
//!
//! The time is that between the parsing of a request and its reply: without the way to the kernel
//! and back, and without the time that a reply waits which another thread sends later.

use std::iter::repeat_with;
use std::time::Duration;

use extant_counter::{BUCKETS, Histogram};

use crate::abi::op;

/// Durations by operation.
pub(crate) struct Counters(Box<[Histogram]>);

impl Counters {
    pub(crate) fn new() -> Self {
        Self(repeat_with(Histogram::default).take(op::COUNT).collect())
    }

    /// A request was served, and took so long.
    pub(crate) fn count(&self, opcode: u32, duration: Duration) {
        // Requests of kinds that are not known share the first histogram.
        let slot = usize::try_from(opcode).ok().and_then(|i| self.0.get(i));
        slot.unwrap_or(&self.0[0]).count(duration);
    }

    /// The number of requests of every kind that occurred, by name.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
        let latencies = self.latencies();
        latencies
            .map(|(name, counts)| (name, counts.iter().sum()))
            .collect()
    }

    /// The same numbers by duration: see [`Histogram`].
    pub(crate) fn latencies(&self) -> impl Iterator<Item = (&'static str, [u64; BUCKETS])> {
        let kinds = self.0.iter().map(Histogram::buckets).enumerate();
        kinds
            .filter(|(_, counts)| counts.iter().any(|n| *n > 0))
            .map(|(i, counts)| (op::name(i), counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operations_are_counted_together() {
        let counters = Counters::new();
        for opcode in [op::LOOKUP, op::STATX, 99, 4096, op::LOOKUP] {
            counters.count(opcode, Duration::from_micros(u64::from(opcode)));
        }
        assert_eq!(counters.list(), [("other", 2), ("lookup", 2), ("statx", 1)]);
        let buckets = |name: &str| -> Vec<usize> {
            let (_, counts) = counters.latencies().find(|(n, _)| *n == name).unwrap();
            (0..BUCKETS).filter(|&b| counts[b] > 0).collect()
        };
        assert_eq!(
            (buckets("other"), buckets("lookup")),
            (vec![7, 13], vec![1])
        );
        assert_eq!(buckets("statx"), [6]);
    }
}
