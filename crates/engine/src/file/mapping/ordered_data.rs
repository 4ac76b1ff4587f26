//! Ordered data: `data=ordered` with `dioread_lock`.
//!
//! Blocks that the buffer-head path allocates as written ones would show what they held before if
//! their transaction were durable and their data were not. So the file's range is noted under that
//! transaction, and its commit has the data written first.
//!
//! # Locks
//! [`OrderedFile::write_and_wait`] runs on the commit thread. It takes folio locks and waits for
//! data that a writeback pass has handed to the device. It takes no lock that is held while a
//! handle is started, and no pass waits for a handle between [`Flight::begin`] and [`Flight::end`].
//! The list of ranges is a leaf.

use std::sync::{Arc, Weak};

use extant_jbd2::{Handle, OrderedData};
use extant_units::{Pos, Tid};
use parking_lot::{Condvar, Mutex};

use crate::file::FileOps;
use crate::file::lost_writes::note_failure;
use crate::inode::Inode;

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
    pub(in crate::file) fn begin(&self) {
        self.counts.lock().begun += 1;
    }

    pub(in crate::file) fn end(&self) {
        self.counts.lock().ended += 1;
        self.landed.notify_all();
    }

    /// Waits for every pass that has begun, not for those that begin later: as many must have ended
    /// as have begun now. At most one pass and one commit are in flight together.
    fn wait(&self) {
        let mut counts = self.counts.lock();
        let begun = counts.begun;
        counts.waiting += 1;
        while counts.ended < begun {
            self.landed.wait(&mut counts);
        }
        counts.waiting -= 1;
    }

    /// Whether a commit waits.
    #[cfg(test)]
    pub(in crate::file) fn is_waited_for(&self) -> bool {
        self.counts.lock().waiting > 0
    }
}

/// The ranges of a file that transactions wait for.
pub(crate) struct OrderedFile {
    inode: Weak<Inode>,
    ranges: Mutex<Vec<Waiting>>,
}

/// A range that one transaction waits for.
struct Waiting {
    tid: Tid,
    start: Pos,
    end: Pos,
}

impl OrderedFile {
    pub(in crate::file) fn new(inode: &Arc<Inode>) -> Arc<Self> {
        Arc::new(Self {
            inode: Arc::downgrade(inode),
            ranges: Mutex::default(),
        })
    }

    /// Makes the commit of `h`'s transaction wait for `[start, end)`.
    pub(in crate::file) fn order(self: &Arc<Self>, h: &mut Handle, start: Pos, end: Pos) {
        let tid = h.tid();
        let mut ranges = self.ranges.lock();
        match ranges.iter_mut().find(|waiting| waiting.tid == tid) {
            Some(waiting) => {
                waiting.start = waiting.start.min(start);
                waiting.end = waiting.end.max(end);
            }
            None => ranges.push(Waiting { tid, start, end }),
        }
        drop(ranges);
        let this: Arc<dyn OrderedData> = Arc::clone(self) as Arc<dyn OrderedData>;
        h.order(&this);
    }

    /// Whether a transaction waits for data of the file, so that it must be written before it is
    /// dropped.
    pub(in crate::file) fn is_waited_for(&self) -> bool {
        !self.ranges.lock().is_empty()
    }
}

impl OrderedData for OrderedFile {
    fn write_and_wait(&self, tid: Tid) {
        let place = |ranges: &[Waiting]| ranges.iter().position(|waiting| waiting.tid == tid);
        let range = {
            let ranges = self.ranges.lock();
            place(&ranges).map(|at| (ranges[at].start, ranges[at].end))
        };
        if let Some((start, end)) = range
            && let Some(inode) = self.inode.upgrade()
            && let Some(fs) = inode.fs.upgrade()
        {
            let ops = FileOps::new(&fs, &inode);
            if let Err(error) = extant_bufferhead::write_ordered(&ops, start, end) {
                crate::file::note_failure(&fs, &error);
                tracing::warn!(ino = inode.ino.get(), %error, "ordered data could not be written");
            }
            ops.data.flight.wait();
        }
        // Last: a truncation that finds nothing noted may drop the data.
        let mut ranges = self.ranges.lock();
        if let Some(at) = place(&ranges) {
            ranges.swap_remove(at);
        }
    }
}

/// Writes the data from `from` on that a commit waits for, before it is dropped: its blocks would
/// show what they held before. The caller holds the inode's `lock`, or is the only one to know the
/// file; it has no handle.
pub(in crate::file) fn write_ordered(ops: &FileOps<'_>, from: Pos) {
    if ops.data.ordered.is_waited_for()
        && let Err(error) = extant_bufferhead::write_ordered(ops, from, Pos::MAX)
    {
        note_failure(ops.fs, &error);
    }
}
