//! The free blocks of a planned volume, as they are given out.

use std::ops::Range;

/// Runs of free blocks, in order.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    runs: Vec<Range<u64>>,
    taken: Vec<Range<u64>>,
    /// The first run that is not empty.
    first: usize,
}

impl Room {
    pub(crate) fn of(runs: Vec<Range<u64>>) -> Self {
        let taken = runs.iter().map(|run| run.start..run.start).collect();
        Self {
            runs,
            taken,
            first: 0,
        }
    }

    /// Blocks that are left.
    pub(crate) fn left(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// The runs that were taken, in order.
    pub(crate) fn taken(&self) -> &[Range<u64>] {
        &self.taken
    }

    /// Takes `len` blocks in one run: the first that is long enough.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        while self.runs.get(self.first).is_some_and(Range::is_empty) {
            self.first += 1;
        }
        let fits = |run: &Range<u64>| run.end - run.start >= len;
        let at = self.runs.iter().skip(self.first).position(fits)?;
        Some(self.cut(self.first + at, len).start)
    }

    /// Takes `len` blocks in as few runs as it needs, in order; none if there are too few.
    pub(crate) fn take_divided(&mut self, len: u64) -> Option<Vec<Range<u64>>> {
        let mut longest: Vec<usize> = (0..self.runs.len()).collect();
        longest.sort_by_key(|&at| std::cmp::Reverse(self.runs[at].end - self.runs[at].start));
        let mut sum = 0;
        let few = longest.iter().position(|&at| {
            sum += self.runs[at].end - self.runs[at].start;
            sum >= len
        })?;
        longest.truncate(few + 1);
        longest.sort_unstable();
        let mut left = len;
        let cut = |at: usize| {
            let here = self.runs[at].end - self.runs[at].start;
            let run = self.cut(at, here.min(left));
            left -= run.end - run.start;
            run
        };
        let runs: Vec<_> = longest.into_iter().map(cut).collect();
        assert_eq!(left, 0, "the runs are as long as was asked for");
        Some(runs)
    }

    fn cut(&mut self, at: usize, len: u64) -> Range<u64> {
        let run = &mut self.runs[at];
        let cut = run.start..run.start + len;
        assert!(cut.end <= run.end, "no more is cut than the run has");
        run.start = cut.end;
        debug_assert_eq!(self.taken[at].end, cut.start, "runs are cut from the front");
        self.taken[at].end = cut.end;
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_whole_where_one_is_long_enough() {
        let mut room = Room::of(vec![10..14, 20..40, 50..60]);
        assert_eq!(room.take(6), Some(20));
        assert_eq!(room.take(3), Some(10));
        assert_eq!(room.take(20), None);
        assert_eq!(room.take_divided(16), Some(vec![26..40, 50..52]));
        assert_eq!(room.take_divided(10), None);
        assert_eq!(room.left(), 9);
        assert_eq!(room.taken(), [10..13, 20..40, 50..52]);
    }
}
