//! The ranges of a file whose data a commit has to write, and the data that is on its way.
//!
//! # Locks
//! The list of ranges and the counts of passes are leaves.

use extant_sync::{Condvar, Mutex};
use extant_units::{Pos, Tid};

/// Data on its way to the device.
#[derive(Default)]
pub(crate) struct Flight {
    counts: Mutex<Counts>,
    landed: Condvar,
}

#[derive(Default)]
struct Counts {
    begun: u64,
    ended: u64,
    /// Number of waiting threads.
    waiting: u32,
}

impl Flight {
    pub(crate) fn begin(&self) {
        self.counts.lock().begun += 1;
    }

    pub(crate) fn end(&self) {
        let mut counts = self.counts.lock();
        counts.ended += 1;
        debug_assert!(counts.ended <= counts.begun, "a pass ends once");
        drop(counts);
        self.landed.notify_all();
    }

    /// Waits for every pass that has begun, not for those that begin later: as many must have ended
    /// as have begun now. At most one pass and one commit are in flight together.
    pub(crate) fn wait(&self) {
        let mut counts = self.counts.lock();
        let begun = counts.begun;
        counts.waiting += 1;
        while counts.ended < begun {
            self.landed.wait(&mut counts);
        }
        counts.waiting -= 1;
    }

    /// Returns whether a commit waits.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.counts.lock().waiting > 0
    }
}

/// The ranges of a file that transactions wait for.
#[derive(Default)]
pub(crate) struct OrderedRanges(Mutex<Vec<Waiting>>);

/// A range that one transaction waits for.
struct Waiting {
    tid: Tid,
    start: Pos,
    end: Pos,
}

impl OrderedRanges {
    /// Notes that the commit of `tid` waits for `[start, end)`.
    pub(crate) fn add(&self, tid: Tid, start: Pos, end: Pos) {
        debug_assert!(start <= end, "{start}..{end} is waited for");
        let mut ranges = self.0.lock();
        match ranges.iter_mut().find(|waiting| waiting.tid == tid) {
            Some(waiting) => {
                waiting.start = waiting.start.min(start);
                waiting.end = waiting.end.max(end);
            }
            None => ranges.push(Waiting { tid, start, end }),
        }
    }

    /// Returns the range that the commit of `tid` waits for.
    pub(crate) fn range_of(&self, tid: Tid) -> Option<(Pos, Pos)> {
        let ranges = self.0.lock();
        let waiting = ranges.iter().find(|waiting| waiting.tid == tid)?;
        Some((waiting.start, waiting.end))
    }

    /// Notes that the commit of `tid` does not wait any more.
    pub(crate) fn forget(&self, tid: Tid) {
        self.0.lock().retain(|waiting| waiting.tid != tid);
    }

    /// Returns whether a transaction waits for data of the file, so that it must be written before
    /// it is dropped.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.0.lock().is_empty()
    }
}
