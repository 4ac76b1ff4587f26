//! Unmount, and shutdown by request.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use extant_disk::superblock::State;

use super::volume_marks::{set_recover, set_totals};
use crate::state::group::Totals;
use crate::state::quota::Quotas;
use crate::state::volume::fault::BY_REQUEST;
use crate::state::volume::mounted_superblock::write_directly;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::{file, inode, orphan};

/// Writes everything home, marks the file system clean and lets go of the device. Later operations
/// fail. A second unmount waits for the first, and has its result.
///
/// # Errors
/// The first failure of writing data or metadata. Unless only data failed, the image is left to be
/// replayed.
pub(crate) fn unmount(fs: &Arc<Fs>) -> Result<()> {
    let end = || {
        let ended = write_home(fs);
        // Files that the caller still has open refer to `fs`, and must not keep the image. A queue
        // of direct requests does: what it has of the device goes with the queue.
        fs.dev.release();
        ended
    };
    end_once(fs, end)
}

/// Ends the mount with `end` and keeps the result, unless that was done. A panic is a result too:
/// a caller that unwinds through the mount's owner must not end the mount once more, half ended as
/// it is, and mark it clean.
pub(super) fn end_once(fs: &Fs, end: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut panic = None;
    let ended = fs.ended.get_or_init(|| {
        catch_unwind(AssertUnwindSafe(end)).unwrap_or_else(|payload| {
            panic = Some(payload);
            Err(Error::Shutdown("a panic ended the unmount".into()))
        })
    });
    let ended = ended.clone();
    match panic {
        Some(payload) => resume_unwind(payload),
        None => ended,
    }
}

/// Returns whether an unmount has ended, so that a caller has its result.
pub(crate) fn is_unmounted(fs: &Fs) -> bool {
    fs.ended.get().is_some()
}

/// The same for a mount on the way to another one, which goes on with the device.
///
/// # Errors
/// See [`unmount`].
pub(super) fn end(fs: &Arc<Fs>) -> Result<()> {
    end_once(fs, || write_home(fs))
}

fn write_home(fs: &Arc<Fs>) -> Result<()> {
    let writable = !fs.options.read_only();
    // A grow has the counts of its last step published when it ends.
    let _no_grow = fs.growing.lock();
    file::wait_for_range_locks(fs);
    let data = if writable { write_all(fs) } else { Ok(()) };
    fs.files.pages.stop();
    let mut metadata = fs.retire_inodes();
    if writable {
        metadata = metadata.and_then(|()| orphan::close(fs));
        if fs.check_writable().is_err() {
            // Dirty data cannot be written any more.
            fs.inodes
                .all()
                .iter()
                .for_each(|inode| file::drop_data_for_eviction(fs, inode));
        }
    }
    // The journal ends whatever happened before: its threads must stop.
    metadata = metadata.and(fs.journal.close().map_err(Error::from));
    if writable && metadata.is_ok() {
        metadata = mark_clean(fs);
    }
    if writable && metadata.is_err() && fs.fault.is_alive() {
        fs.note_stopped_journal();
        fs.fault.record(fs);
    }
    fs.clear_inodes();
    let promised = fs.quotas.get().map_or(0, Quotas::close);
    fs.fault.close();
    if let Some(mmp) = fs.mmp.get() {
        mmp.release();
    }
    if writable && data.is_ok() {
        check_reservations(fs);
        debug_assert_eq!(promised, 0, "bytes and inodes reserved in quotas (J49)");
    }
    data.and(metadata)
}

/// Once all data is written, no block is reserved, and no reservation outlived its file (J9, J11).
fn check_reservations(fs: &Fs) {
    let counts = &fs.alloc.counts;
    let (reserved, leaked) = (counts.reserved_blocks().get(), counts.leaked());
    if (reserved, leaked) != (0, 0) {
        tracing::error!(reserved, leaked, "reservations are left at unmount");
        debug_assert!(
            false,
            "{reserved} blocks are reserved at unmount, {leaked} reservations leaked (J9, J11)"
        );
    }
}

/// Writes all data. Fails if a fault has stopped the file system.
fn write_all(fs: &Arc<Fs>) -> Result<()> {
    if let Some(why) = fs.fault.why() {
        return Err(Error::Shutdown(why.into()));
    }
    file::writeback_all_files(fs)
}

/// The last write: marks the volume clean if it was clean when it was mounted.
fn mark_clean(fs: &Fs) -> Result<()> {
    let counts = &fs.alloc.counts;
    let totals = Totals {
        free_blocks: counts.free_blocks().get(),
        free_inodes: counts.free_inodes(),
        dirs: counts.dirs(),
    };
    let valid = fs.super_block.was_valid();
    write_directly(&fs.dev, |raw| {
        set_recover(raw, false);
        let mut state = raw.state();
        state.set(State::VALID, valid);
        raw.set_state(state);
        set_totals(raw, totals);
        fs.fault.note_in(raw);
    })
}

/// Data that is saved before a shutdown by request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShutdownMode {
    /// Everything.
    Flush,
    /// Nothing, as in a power failure.
    Now,
}

/// Shuts the file system down by request: every later operation fails, nothing more is written, the
/// image needs its journal. The caller holds no lock and no handle.
///
/// # Errors
/// The failure that kept something from being saved; the file system is shut down all the same.
pub(crate) fn shutdown(fs: &Arc<Fs>, mode: ShutdownMode) -> Result<()> {
    extant_lock_order::assert_none_held();
    let saved = if mode == ShutdownMode::Now || fs.check_writable().is_err() {
        Ok(())
    } else {
        let data = file::writeback_all_files(fs).and_then(|()| inode::flush_all_times(fs, true));
        data.and(fs.journal.force_commit().map(drop).map_err(Error::from))
    };
    fs.fault.shut_down(fs, BY_REQUEST);
    saved
}
