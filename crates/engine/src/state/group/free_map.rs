//! The blocks of one group that may be handed out now.
//!
//! A copy of the group's bitmap with more bits set than on disk: those of blocks freed by a
//! transaction that is not durable yet, and of blocks kept for a growing file. Plain data under the
//! group's lock.

use std::ops::Range;

use extant_disk::bitmap;

/// Runs that a search examines before it takes the best so far.
const RUNS_PER_SEARCH: u32 = 256;

/// Usable blocks of a group: a clear bit may be handed out.
#[derive(Debug)]
pub(crate) struct FreeMap {
    bits: Box<[u8]>,
    len: u32,
    usable: u32,
    /// Blocks that are free on disk but not usable. A map with such blocks cannot be rebuilt from
    /// the bitmap.
    held: u32,
}

/// The result of [`FreeMap::find`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FoundRun {
    /// The run, at most as long as was asked for.
    pub(crate) run: Option<Range<u32>>,
    /// No run of the map is longer than this.
    pub(crate) longest: u32,
}

impl FreeMap {
    /// The map of a group of `len` blocks whose bitmap is `bitmap`.
    pub(crate) fn new(bitmap: &[u8], len: u32) -> Self {
        let bytes = (len.div_ceil(8) as usize).min(bitmap.len());
        let bits: Box<[u8]> = bitmap.get(..bytes).unwrap_or_default().into();
        let usable = bitmap::count_clear(&bits, len);
        debug_assert!(usable <= len, "{usable} of {len} blocks");
        Self {
            bits,
            len,
            usable,
            held: 0,
        }
    }

    /// Blocks that may be handed out.
    pub(crate) fn usable(&self) -> u32 {
        self.usable
    }

    /// Returns whether nothing is held, so that the bitmap on disk says the same.
    pub(crate) fn can_be_dropped(&self) -> bool {
        self.held == 0
    }

    /// Makes the group `len` blocks long. The new blocks are free on disk, and held: they become
    /// usable by [`FreeMap::release`].
    pub(crate) fn lengthen(&mut self, len: u32) {
        let added = self.len..len.max(self.len);
        let mut bits = std::mem::take(&mut self.bits).into_vec();
        bits.resize(added.end.div_ceil(8) as usize, 0xFF);
        bitmap::set_range(&mut bits, added.clone());
        self.bits = bits.into_boxed_slice();
        self.held += added.end - added.start;
        self.len = added.end;
    }

    /// The first usable blocks in `range`, in one run.
    pub(crate) fn next_usable(&self, range: Range<u32>) -> Option<Range<u32>> {
        let end = range.end.min(self.len);
        let start = bitmap::next_clear(&self.bits, range.start, end);
        let run = start..bitmap::next_set(&self.bits, start, end);
        (run.start < end).then_some(run)
    }

    /// Marks `range`, all usable, as in use.
    pub(crate) fn take(&mut self, range: Range<u32>) {
        debug_assert_eq!(bitmap::count_set(&self.bits, range.clone()), 0);
        debug_assert!(range.end <= self.len, "blocks of another group");
        self.usable -= range.end - range.start;
        bitmap::set_range(&mut self.bits, range);
    }

    /// Holds `range`, all usable: it stays free on disk.
    pub(crate) fn hold(&mut self, range: Range<u32>) {
        self.held += range.end - range.start;
        self.take(range);
    }

    /// Holds `range`, which became free on disk.
    pub(crate) fn hold_freed(&mut self, range: Range<u32>) {
        debug_assert_eq!(
            bitmap::count_set(&self.bits, range.clone()),
            range.end - range.start
        );
        self.held += range.end - range.start;
        debug_assert!(
            self.held + self.usable <= self.len,
            "each block is counted once"
        );
    }

    /// Marks `range`, which was held, as in use.
    pub(crate) fn take_held(&mut self, range: Range<u32>) {
        self.assert_held(&range);
        self.held -= range.end - range.start;
    }

    /// Makes `range`, which was held, usable. Returns the length of the run it is part of.
    pub(crate) fn release(&mut self, range: Range<u32>) -> u32 {
        self.assert_held(&range);
        self.held -= range.end - range.start;
        self.usable += range.end - range.start;
        bitmap::clear_range(&mut self.bits, range.clone());
        let end = bitmap::next_set(&self.bits, range.start, self.len);
        end - self.run_start(range.start)
    }

    /// Held blocks are marked as in use, and are among those that are counted as held.
    fn assert_held(&self, range: &Range<u32>) {
        let len = range.end - range.start;
        debug_assert!(len <= self.held, "more blocks are released than are held");
        debug_assert_eq!(bitmap::count_set(&self.bits, range.clone()), len);
    }

    /// The first run of at least `min` usable blocks in `part`, cut to `part`.
    pub(crate) fn next_run(&self, part: Range<u32>, min: u32) -> Option<Range<u32>> {
        let end = part.end.min(self.len);
        let mut at = part.start;
        loop {
            let start = bitmap::next_clear(&self.bits, at, end);
            if start >= end {
                return None;
            }
            at = bitmap::next_set(&self.bits, start, end);
            if at - start >= min {
                return Some(start..at);
            }
        }
    }

    /// The first bit of the clear run that ends in or at `at`.
    fn run_start(&self, at: u32) -> u32 {
        let mut start = at;
        while start > 0 && !bitmap::test(&self.bits, start - 1) {
            let index = (start / 8) as usize;
            if start.is_multiple_of(8) && self.bits.get(index - 1) == Some(&0) {
                start -= 8;
            } else {
                start -= 1;
            }
        }
        start
    }

    /// Finds a run of up to `target` blocks.
    ///
    /// The run at `from` wins if it has at least `at_goal` blocks; else the first of `target`
    /// blocks at or after `from`, wrapping around; else, after a bounded search, the longest that
    /// was met, if it has at least `min`.
    pub(crate) fn find(&self, from: u32, at_goal: u32, target: u32, min: u32) -> FoundRun {
        debug_assert!(from <= self.len, "a goal of another group");
        // The end of the run that begins at `from`; `from` itself if there is none.
        let goal_end = bitmap::next_set(&self.bits, from, (from + target).min(self.len));
        if goal_end - from >= at_goal.max(1) {
            return FoundRun {
                run: Some(from..goal_end),
                longest: self.usable,
            };
        }
        let mut best = 0..0;
        let mut seen = 0;
        // From the goal to the end, then the runs that start before the goal.
        for (start, end) in [(from, self.len), (0, from)] {
            let mut at = start;
            loop {
                let run = bitmap::next_clear(&self.bits, at, end);
                if run >= end {
                    break;
                }
                let run_end = bitmap::next_set(&self.bits, run, self.len);
                if run_end - run >= target {
                    return FoundRun {
                        run: Some(run..run + target),
                        longest: self.usable,
                    };
                }
                if run_end - run > best.end - best.start {
                    best = run..run_end;
                }
                seen += 1;
                if seen >= RUNS_PER_SEARCH && best.end - best.start >= min {
                    return FoundRun {
                        run: Some(best),
                        longest: self.usable,
                    };
                }
                at = run_end;
            }
        }
        let longest = best.end - best.start;
        FoundRun {
            run: (longest >= min).then_some(best),
            longest,
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of one range")]
mod tests {
    use super::*;

    /// A map of `len` blocks in which only `free` is usable.
    fn map(len: u32, free: &[Range<u32>]) -> FreeMap {
        let mut bits = vec![0xFF; len.div_ceil(8) as usize];
        for range in free {
            bitmap::clear_range(&mut bits, range.clone());
        }
        FreeMap::new(&bits, len)
    }

    #[test]
    fn the_goal_wins_if_it_is_worth_it() {
        let map = map(1000, &[100..110, 500..600]);
        assert_eq!(map.find(100, 10, 40, 1).run, Some(100..110));
        assert_eq!(map.find(100, 11, 41, 1).run, Some(500..541));
        assert_eq!(map.find(105, 11, 41, 1).run, Some(500..541));
    }

    #[test]
    fn the_search_wraps_and_sees_runs_across_the_goal() {
        let map = map(1000, &[100..300]);
        assert_eq!(map.find(299, 200, 200, 1).run, Some(100..300));
        assert_eq!(map.find(900, 5, 64, 5).run, Some(100..164));
    }

    #[test]
    fn the_longest_run_is_the_answer_of_last_resort() {
        let map = map(1000, &[10..20, 30..45, 60..62]);
        assert_eq!(
            map.find(0, 100, 100, 10),
            FoundRun {
                run: Some(30..45),
                longest: 15
            }
        );
        assert_eq!(
            map.find(0, 100, 100, 16),
            FoundRun {
                run: None,
                longest: 15
            }
        );
        assert_eq!(super::FreeMap::new(&[], 0).find(0, 1, 1, 1).run, None);
    }

    #[test]
    fn blocks_that_are_added_are_held_until_they_are_released() {
        let mut map = map(1003, &[1000..1003]);
        map.lengthen(2000);
        assert_eq!(map.usable(), 3);
        assert!(!map.can_be_dropped());
        assert_eq!(map.find(1000, 1, 64, 1).run, Some(1000..1003));
        assert_eq!(map.release(1003..2000), 1000);
        assert_eq!(map.usable(), 1000);
        assert!(map.can_be_dropped());
    }

    #[test]
    fn held_blocks_come_back_as_one_run() {
        let mut map = map(1000, &[0..1000]);
        map.take(100..200);
        map.hold(200..300);
        assert!(!map.can_be_dropped());
        assert_eq!(map.usable(), 800);
        map.hold_freed(100..150);
        assert_eq!(map.find(100, 1, 1, 1).run, Some(300..301));
        assert_eq!(map.release(200..300), 800);
        assert_eq!(map.release(100..150), 150);
        assert!(map.can_be_dropped());
        assert_eq!(map.usable(), 950);
    }
}
