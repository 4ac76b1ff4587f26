//! fsync, fdatasync, and writing everything.

use std::sync::Arc;

use extant_iomap::WritebackControl;
use extant_pagecache::{FILES_TOGETHER, WritebackFault, WritebackReason};
use extant_sync::atomic::Ordering;
use extant_units::Pos;

use crate::file::file_state;
use crate::file::writeback::writeback_range;
use crate::inode;
use crate::quota;
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::types::interrupt::Interrupt;
use crate::volume::Fs;

/// Makes an inode's data durable with what is needed to find it; without `datasync`, all of its
/// attributes as well. `open` is the caller's own state, if it has one.
///
/// # Errors
/// The loss of data of this file since the last sync through `open` (each opener is told once), or
/// the journal's failure; [`Error::ReadOnly`] after a fault, whether or not data of this file was
/// waiting.
pub(crate) fn fsync(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    datasync: bool,
) -> Result<()> {
    fs.fault.check_alive()?;
    if fs.options.read_only() {
        return Ok(());
    }
    let file = (inode.kind == FileKind::Regular).then(|| file_state(fs, inode));
    let committed = fs.check_writable().and_then(|()| {
        if file.is_some() {
            // Failures are recorded in the mapping and reported below. What arrived is made
            // durable.
            let _ = writeback_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX));
        }
        commit(fs, inode, datasync)
    });
    // Before the openers are asked: a failed flush adds to what is reported to them.
    fs.note_stopped_journal();
    if let Some(file) = file {
        let open = open.unwrap_or(&file.shared);
        file.lost_above.store(false, Ordering::Release);
        told(file.address_space.errors().check(&open.errors))?;
    }
    committed
}

/// Notes that a front end has lost data of a file. The front end reports that itself: until its
/// next fsync of the file no opener may know of it.
pub(crate) fn note_lost_above(fs: &Fs, inode: &Arc<Inode>) {
    if inode.kind == FileKind::Regular {
        file_state(fs, inode)
            .lost_above
            .store(true, Ordering::Release);
    }
}

/// Makes durable what was written and logged so far. The caller holds no lock and no handle: the
/// commit is made on its thread. The transaction has changes of other calls as well, so a request
/// to end this call early does not reach the commit.
#[track_caller]
fn commit(fs: &Arc<Fs>, inode: &Arc<Inode>, datasync: bool) -> Result<()> {
    extant_lock_order::assert_none_held();
    if !datasync {
        inode::flush_times(fs, inode)?;
    }
    match inode.last_change(datasync) {
        Some(tid) => Interrupt::new().during(|| fs.journal.sync_here(tid))?,
        None => fs.journal.flush()?,
    }
    Ok(())
}

/// Writes a file's dirty data and waits for it and for what other threads are writing, so that a
/// transaction that starts later is not durable before the data. Failures are recorded for fsync.
/// The caller holds no handle.
pub(crate) fn write_and_wait(fs: &Fs, inode: &Arc<Inode>) {
    fs.journal.assert_no_handle();
    // Data that a flusher has taken is not dirty any more: a pass of this thread waits for its end.
    if inode.kind == FileKind::Regular && inode.file_state.get().is_some() {
        // fsync reports it.
        let _ = writeback_range(fs, inode, WritebackControl::integrity(Pos::ZERO, Pos::MAX));
    }
}

/// Writes all dirty data of all files and waits for it. Commits nothing. Failures are recorded for
/// each file's fsync as well.
///
/// # Errors
/// Data of a file could not be written, now or earlier. Each loss is reported here once, whatever
/// fsync has reported.
pub(crate) fn writeback_all_files(fs: &Fs) -> Result<()> {
    let cursor = fs.files.errors.cursor();
    let owners = fs.files.pages.dirty_owners();
    for files in owners.chunks(FILES_TOGETHER) {
        if let [first, ..] = files {
            first.write_back_all(files, WritebackReason::Sync);
        }
    }
    told(fs.files.errors.check(&cursor))
}

impl Fs {
    /// Makes durable what was done before the call: evictions, data, deferred times, the journal.
    /// The caller holds no lock and no handle.
    ///
    /// # Errors
    /// The first failure; the rest was tried all the same. [`Error::ReadOnly`] if a fault refuses
    /// changes: what was done before it may not have arrived.
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        extant_lock_order::assert_none_held();
        self.fault.check_alive()?;
        if self.options.read_only() {
            return Ok(());
        }
        self.check_writable()?;
        self.reap_all();
        let data = writeback_all_files(self);
        let times = inode::flush_all_times(self, true);
        quota::add_missing(self);
        let recorded = self.fault.record_later(self);
        let committed = self.journal.sync_all();
        self.note_stopped_journal();
        committed?;
        data.and(times).and(recorded)
    }
}

/// A recorded fault as an error.
fn told(fault: Option<WritebackFault>) -> Result<()> {
    match fault {
        None => Ok(()),
        Some(WritebackFault::NoSpace) => Err(Error::NoSpace),
        Some(WritebackFault::Io) => Err(Error::Io("data could not be written".into())),
    }
}
