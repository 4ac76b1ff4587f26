//! Ordered data: `data=ordered` with `dioread_lock`.
//!
//! Blocks that the buffer-head path allocates as written ones would show what they held before if
//! their transaction were durable and their data were not. So the file's range is noted under that
//! transaction, and its commit has the data written first.
//!
//! # Locks
//! [`submit_and_wait_ordered`] runs on the thread that commits. It takes folio locks and waits for
//! data that a writeback pass has handed to the device. It takes no lock that is held while a
//! handle is started, and no pass waits for a handle between `Flight::begin` and `Flight::end`
//! (`ordered_ranges`).

use extant_units::{Pos, Tid};

use crate::file::error_reporting::record_writeback_error;
use crate::file::mapping::iomap_ops::FileContext;

/// Writes what the commit of `tid` waits for, and waits until the device has it. Runs on the thread
/// that commits.
pub(in crate::file) fn submit_and_wait_ordered(cx: &FileContext<'_>, tid: Tid) {
    if let Some((start, end)) = cx.state.ordered.range_of(tid) {
        if let Err(error) = extant_bufferhead::write_ordered(cx, start, end) {
            record_writeback_error(cx.fs, &error);
            let ino = cx.inode.ino.get();
            tracing::warn!(ino, %error, "ordered data could not be written");
        }
        cx.state.flight.wait();
    }
    // Last: a truncation that finds nothing noted may drop the data.
    cx.state.ordered.forget(tid);
}

/// Writes the data from `from` on that a commit waits for, before it is dropped: its blocks would
/// show what they held before. The caller holds the inode's `lock`, or is the only one to know the
/// file; it has no handle.
pub(in crate::file) fn write_ordered(cx: &FileContext<'_>, from: Pos) {
    if cx.state.ordered.is_waited_for()
        && let Err(error) = extant_bufferhead::write_ordered(cx, from, Pos::MAX)
    {
        record_writeback_error(cx.fs, &error);
    }
}
