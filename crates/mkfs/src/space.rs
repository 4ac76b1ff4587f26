//! Which blocks are taken, as runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// The blocks of a volume, taken or free. Runs that touch are one.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// First block of each taken run, and the block behind it.
    taken: BTreeMap<u64, u64>,
    /// The first block there is.
    start: u64,
    /// The block behind the last one.
    end: u64,
}

impl Space {
    /// All of `range` free.
    pub(crate) fn of(range: Range<u64>) -> Self {
        Self {
            taken: BTreeMap::new(),
            start: range.start,
            end: range.end,
        }
    }

    /// Takes `range`, whatever it was.
    pub(crate) fn take(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        debug_assert!(self.start <= start && end <= self.end || start >= end);
        if start >= end {
            return;
        }
        while let Some((&from, &to)) = self.taken.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.taken.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.taken.insert(start, end);
    }

    /// The end of the taken run that `block` lies in.
    fn taken_until(&self, block: u64) -> Option<u64> {
        let (_, &end) = self.taken.range(..=block).next_back()?;
        (end > block).then_some(end)
    }

    /// The end of the free run that begins at `block`, which is free.
    fn free_until(&self, block: u64) -> u64 {
        let next = self.taken.range(block..).next();
        next.map_or(self.end, |(&start, _)| start.min(self.end))
    }

    /// The first block of `from..until` where `len` free blocks begin.
    pub(crate) fn first_fit(&self, from: u64, until: u64, len: u64) -> Option<u64> {
        let mut at = from.max(self.start);
        while at < until {
            if let Some(end) = self.taken_until(at) {
                at = end;
                continue;
            }
            let end = self.free_until(at);
            // `at` may lie past the end, where nothing is free.
            if end.saturating_sub(at) >= len {
                return Some(at);
            }
            at = end.max(at + 1);
            if end >= self.end {
                return None;
            }
        }
        None
    }

    /// The first free run at or behind `goal`, or else from the beginning.
    pub(crate) fn free_run(&self, goal: u64) -> Option<Range<u64>> {
        let ahead = self.first_fit(goal, self.end, 1);
        let at = ahead.or_else(|| self.first_fit(self.start, goal, 1))?;
        Some(at..self.free_until(at))
    }

    /// The taken runs of `range`, cut to it.
    pub(crate) fn taken_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.taken.range(..range.start).next_back();
        let inside = self.taken.range(range.clone());
        let cut = move |(&start, &end): (&u64, &u64)| start.max(range.start)..end.min(range.end);
        before
            .into_iter()
            .chain(inside)
            .map(cut)
            .filter(|run| run.start < run.end)
    }

    /// How many blocks of `range` are free.
    pub(crate) fn free_in(&self, range: Range<u64>) -> u64 {
        let all = range.end - range.start;
        debug_assert!(range.start >= self.start && range.end <= self.end);
        let taken: u64 = self.taken_in(range).map(|run| run.end - run.start).sum();
        all - taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_are_one() {
        let mut space = Space::of(0..100);
        for range in [10..20, 30..40, 20..30, 35..50, 5..5] {
            space.take(range);
        }
        assert!(space.taken_in(0..100).eq(std::iter::once(10..50)));
        assert!(space.taken_in(15..45).eq(std::iter::once(15..45)));
        assert_eq!(space.free_in(0..100), 60);
        assert_eq!(space.free_in(45..60), 10);
    }

    #[test]
    fn the_first_place_that_fits_is_found() {
        let mut space = Space::of(1..100);
        space.take(4..10);
        space.take(12..90);
        assert_eq!(space.first_fit(0, 100, 3), Some(1));
        assert_eq!(space.first_fit(2, 100, 3), Some(90));
        assert_eq!(space.first_fit(0, 5, 10), None);
        assert_eq!(space.first_fit(0, 100, 11), None);
        assert_eq!(space.free_run(11), Some(11..12));
        assert_eq!(space.free_run(12), Some(90..100));
        space.take(90..100);
        assert_eq!(space.free_run(50), Some(1..4));
    }
}
