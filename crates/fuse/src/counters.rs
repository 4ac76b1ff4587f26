//! The number of requests of each kind that were served. Each is a round trip to the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::op;

/// Counts by operation.
pub(crate) struct Counters([AtomicU64; op::COUNT]);

impl Counters {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; op::COUNT])
    }

    pub(crate) fn count(&self, opcode: u32) {
        // Requests of kinds that are not known share the first count.
        let slot = usize::try_from(opcode)
            .ok()
            .and_then(|i| self.0.get(i))
            .unwrap_or(&self.0[0]);
        slot.fetch_add(1, Ordering::Relaxed);
    }

    /// Every kind that occurred, by name.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts
            .enumerate()
            .filter(|&(_, n)| n > 0)
            .map(|(i, n)| (op::name(i), n))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_operations_are_counted_together() {
        let counters = Counters::new();
        for opcode in [op::LOOKUP, op::STATX, 99, 4096, op::LOOKUP] {
            counters.count(opcode);
        }
        assert_eq!(counters.list(), [("other", 2), ("lookup", 2), ("statx", 1)]);
    }
}
