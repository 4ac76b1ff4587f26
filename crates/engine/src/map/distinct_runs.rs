//! Runs of blocks on the volume, no block twice. Tells a sound map from one that names the same
//! blocks repeatedly.

use std::collections::BTreeMap;

/// Runs of blocks: their first, and one past their last. Adjacent runs are joined.
#[derive(Default)]
pub(crate) struct DistinctRuns(BTreeMap<u64, u64>);

impl DistinctRuns {
    /// Adds `start..end`. Returns false if some of it is there already.
    pub(crate) fn add(&mut self, start: u64, end: u64) -> bool {
        debug_assert!(start < end, "a run of no blocks");
        let before = self.0.range(..=start).next_back();
        let before = before.map(|(&first, &last)| (first, last));
        let after = self.0.range(start..).next();
        let after = after.map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| last > start)
            || after.is_some_and(|(first, _)| first < end)
        {
            return false;
        }
        let first = before
            .filter(|&(_, last)| last == start)
            .map(|(first, _)| first);
        let end = match after.filter(|&(first, _)| first == end) {
            Some((first, last)) => {
                self.0.remove(&first);
                last
            }
            None => end,
        };
        self.0.insert(first.unwrap_or(start), end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_meet_only_once() {
        let mut runs = DistinctRuns::default();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (28, 30), (5, 10), (25, 28)] {
            assert!(runs.add(start, end), "{start}..{end}");
        }
        assert_eq!(runs.0, BTreeMap::from([(5, 40)]));
        for (start, end) in [(5, 6), (39, 40), (12, 13), (0, 6), (39, 50), (0, 50)] {
            assert!(!runs.add(start, end), "{start}..{end}");
        }
        assert!(runs.add(0, 5) && runs.add(40, 41));
        assert_eq!(runs.0, BTreeMap::from([(0, 41)]));
    }
}
