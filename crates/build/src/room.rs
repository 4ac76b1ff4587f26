//! The free blocks of a planned volume, as they are given out.

use std::ops::Range;

/// The least run that a divided file takes while there are longer ones.
const WORTH: u64 = 1024;

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

    /// What was taken, in order.
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

    /// Takes `len` blocks in as many runs as it needs; none if there are too few.
    pub(crate) fn take_divided(&mut self, len: u64) -> Option<Vec<Range<u64>>> {
        if self.left() < len {
            return None;
        }
        let mut got: Vec<Range<u64>> = Vec::new();
        let mut left = len;
        for least in [WORTH, 1] {
            for at in 0..self.runs.len() {
                let run = &self.runs[at];
                let here = run.end - run.start;
                if left > 0 && here >= least.min(left) {
                    let run = self.cut(at, here.min(left));
                    left -= run.end - run.start;
                    got.push(run);
                }
            }
        }
        Some(got)
    }

    fn cut(&mut self, at: usize, len: u64) -> Range<u64> {
        let run = &mut self.runs[at];
        let cut = run.start..run.start + len;
        run.start = cut.end;
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
