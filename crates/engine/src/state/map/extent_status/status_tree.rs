//! The tree of known ranges.

use std::collections::BTreeMap;
use std::ops::Bound;

use extant_disk::extent::{Extent, MAX_END};
use extant_units::{Lblk, exact_u32};

use crate::state::map::MapState;

/// A known range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    /// First file block.
    pub(crate) lblk: Lblk,
    /// Blocks, at least one.
    pub(crate) len: u32,
    /// State of all of them; a physical block is the first one's.
    pub(crate) state: MapState,
}

impl Status {
    /// The hole from `start` to before `end`; empty if it ends there or before.
    pub(crate) fn hole(start: Lblk, end: u64) -> Self {
        let len = end.min(MAX_END).saturating_sub(u64::from(start.get()));
        Self {
            lblk: start,
            len: exact_u32(len),
            state: MapState::Hole,
        }
    }

    /// Returns the status of the blocks of `extent`.
    pub(crate) fn of(extent: &Extent) -> Self {
        Self {
            lblk: extent.lblk,
            len: extent.len,
            state: if extent.unwritten {
                MapState::Unwritten(extent.pblk)
            } else {
                MapState::Written(extent.pblk)
            },
        }
    }

    /// The file block after the last.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.lblk.get()) + u64::from(self.len)
    }

    /// The part within `from..to`, if any.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Option<Self> {
        let start = from.max(u64::from(self.lblk.get()));
        let len = to
            .min(self.end())
            .checked_sub(start)
            .filter(|&len| len > 0)?;
        let skip = start - u64::from(self.lblk.get());
        Some(Self {
            lblk: Lblk::new(u32::try_from(start).ok()?),
            len: u32::try_from(len).ok()?,
            state: advance(self.state, skip),
        })
    }

    /// Returns whether `next` continues this range.
    pub(crate) fn merges_with(&self, next: &Self) -> bool {
        self.end() == u64::from(next.lblk.get())
            && advance(self.state, u64::from(self.len)) == next.state
            && self.len.checked_add(next.len).is_some()
    }
}

/// The state `skip` blocks further into a range.
fn advance(state: MapState, skip: u64) -> MapState {
    match state {
        MapState::Written(pblk) => MapState::Written(pblk.plus(skip)),
        MapState::Unwritten(pblk) => MapState::Unwritten(pblk.plus(skip)),
        MapState::Hole | MapState::Delayed => state,
    }
}

/// A range's length, state and mark, under its first block.
#[derive(Clone, Copy)]
struct Entry {
    len: u32,
    state: MapState,
    /// Looked up since the cache's cursor last passed.
    referenced: bool,
}

/// Known ranges by first block; see the [module](super).
#[derive(Default)]
pub(crate) struct StatusTree {
    ranges: BTreeMap<u32, Entry>,
    /// The range that was found last.
    last: Option<Status>,
    sequence: u64,
    /// Block at which the next [`StatusTree::forget_some`] starts.
    cursor: u32,
}

impl StatusTree {
    /// Grows with every change of the map on disk.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of known ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The known range that holds `lblk`.
    pub(crate) fn find(&mut self, lblk: Lblk) -> Option<Status> {
        let at = u64::from(lblk.get());
        if let Some(last) = self.last
            && last.lblk <= lblk
            && at < last.end()
        {
            return Some(last);
        }
        let (&start, entry) = self.ranges.range_mut(..=lblk.get()).next_back()?;
        let found = status(start, entry);
        if at >= found.end() {
            return None;
        }
        entry.referenced = true;
        debug_assert!(found.lblk <= lblk, "{found:?} holds block {lblk}");
        self.last = Some(found);
        Some(found)
    }

    /// The first known range that ends after `from`.
    pub(crate) fn next_from(&self, from: u64) -> Option<Status> {
        let start = u32::try_from(from).ok()?;
        let before = self
            .ranges
            .range(..start)
            .next_back()
            .map(|(&s, e)| status(s, e));
        before.filter(|range| range.end() > from).or_else(|| {
            self.ranges
                .range(start..)
                .next()
                .map(|(&s, e)| status(s, e))
        })
    }

    /// Makes `range` known as a change: replaces what was known of it and grows the sequence,
    /// unless the same was known before.
    pub(crate) fn set(&mut self, range: Status) {
        debug_assert!(range.state != MapState::Delayed, "on no disk");
        let known = self.find(range.lblk);
        if known.and_then(|known| known.cut(u64::from(range.lblk.get()), range.end()))
            == Some(range)
        {
            return;
        }
        self.cut_out(u64::from(range.lblk.get()), range.end());
        self.put(range);
        self.sequence += 1;
    }

    /// Remembers what the tree on disk says of `range`, where nothing is known yet.
    pub(crate) fn fill(&mut self, range: Status) {
        debug_assert!(
            range.state != MapState::Delayed && range.len > 0,
            "{range:?}"
        );
        let mut at = u64::from(range.lblk.get());
        while at < range.end() {
            let known = self
                .next_from(at)
                .filter(|known| u64::from(known.lblk.get()) < range.end());
            let gap_end = known.map_or(range.end(), |known| u64::from(known.lblk.get()).max(at));
            if let Some(gap) = range.cut(at, gap_end) {
                self.put(gap);
            }
            // `put` may have joined the gap with the range after it; the end of that range is the
            // same.
            at = known.map_or(range.end(), |known| known.end());
        }
    }

    /// Forgets what is known of `from..to`, as the tree on disk is about to change there, and grows
    /// the sequence.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        debug_assert!(from <= to, "{from}..{to} is forgotten");
        self.cut_out(from, to);
        self.sequence += 1;
    }

    /// Examines up to `count` ranges from the cursor on and forgets those that were not looked up
    /// since the last visit. Returns how many.
    pub(super) fn forget_some(&mut self, count: usize) -> usize {
        let after = (Bound::Excluded(self.cursor), Bound::Unbounded);
        let turn = self
            .ranges
            .range(after)
            .chain(self.ranges.range(..=self.cursor));
        let turn: Vec<u32> = turn.map(|(&start, _)| start).take(count).collect();
        self.cursor = turn.last().copied().unwrap_or(0);
        self.last = None;
        let mut forgotten = 0;
        for start in turn {
            let Some(entry) = self.ranges.get_mut(&start) else {
                continue;
            };
            let referenced = std::mem::take(&mut entry.referenced);
            if !referenced {
                self.ranges.remove(&start);
                forgotten += 1;
            }
        }
        forgotten
    }

    /// All known ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Status> {
        self.ranges
            .iter()
            .map(|(&start, entry)| status(start, entry))
    }

    /// Panics if an invariant is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.verify().unwrap();
    }

    /// Checks order, merges and the range found last.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub(crate) fn verify(&self) -> Result<(), String> {
        let all: Vec<Status> = self.iter().collect();
        for (left, right) in all.iter().zip(all.iter().skip(1)) {
            if left.end() > u64::from(right.lblk.get()) || left.merges_with(right) {
                return Err(format!("{left:?}, {right:?}: overlap, or not merged (J13)"));
            }
        }
        match self.last {
            Some(last) if !all.contains(&last) => {
                Err(format!("{last:?} found last, but not known"))
            }
            _ => Ok(()),
        }
    }

    /// Cuts `from..to` out of what is known.
    fn cut_out(&mut self, from: u64, to: u64) {
        self.last = None;
        while let Some(range) = self.next_from(from) {
            if range.cut(from, to).is_none() {
                break;
            }
            self.ranges.remove(&range.lblk.get());
            for rest in [range.cut(0, from), range.cut(to, u64::MAX)]
                .into_iter()
                .flatten()
            {
                self.insert(rest);
            }
        }
    }

    /// Adds a range that nothing overlaps, merged with its neighbours.
    fn put(&mut self, mut range: Status) {
        self.last = None;
        let start = range.lblk.get();
        if let Some((&before, entry)) = self.ranges.range(..start).next_back() {
            let left = status(before, entry);
            if left.merges_with(&range) {
                self.ranges.remove(&before);
                range = Status {
                    len: left.len + range.len,
                    ..left
                };
            }
        }
        if let Ok(end) = u32::try_from(range.end())
            && let Some(entry) = self.ranges.get(&end)
        {
            let right = status(end, entry);
            if range.merges_with(&right) {
                self.ranges.remove(&end);
                range.len += right.len;
            }
        }
        self.insert(range);
    }

    fn insert(&mut self, range: Status) {
        let entry = Entry {
            len: range.len,
            state: range.state,
            referenced: false,
        };
        debug_assert!(
            range.len > 0 && range.end() <= MAX_END,
            "a range of file blocks (J13)"
        );
        let before = self.ranges.insert(range.lblk.get(), entry);
        debug_assert!(before.is_none(), "ranges are disjoint (J13)");
    }
}

fn status(start: u32, entry: &Entry) -> Status {
    Status {
        lblk: Lblk::new(start),
        len: entry.len,
        state: entry.state,
    }
}
