//! Reporting faults: the level that the policy asks for, the journal's stop, and the record in the
//! superblock.
//!
//! # Locks
//! [`Fault::report`] may be called with any lock held but a block's content (inside
//! `Handle::modify`).

use extant_pagecache::WritebackFault;

use crate::config::ErrorsPolicy;
use crate::state::volume::mounted_superblock::write_note;
use crate::state::volume::{Event, Fault, Inner, StopLevel};
use crate::types::error::Error;
use crate::volume::Fs;

impl Fault {
    /// Reports damage or a failed metadata I/O that was found at run time: applies the `errors=`
    /// policy and records the fault in the superblock where possible. Ignores other errors (no
    /// space, not found), so callers may pass whole results. Failed I/O of file data must not be
    /// passed.
    pub(crate) fn report(&self, fs: &Fs, error: &Error) {
        let Some(event) = Event::of(error) else {
            return;
        };
        fs.stats.faults.bump();
        tracing::error!(%error, "fault");
        self.inner.lock().remember(event);
        let level = match self.policy {
            ErrorsPolicy::Continue => return,
            ErrorsPolicy::RemountReadOnly => StopLevel::ReadOnly,
            ErrorsPolicy::Panic => StopLevel::Shutdown,
        };
        let why = error.to_string();
        if self.raise(level, &why, |_| ()) && !fs.options.read_only() {
            fs.journal.abort_on_fault(&why);
            self.record(fs);
        }
    }

    /// Latches that the journal has stopped by itself, as metadata could not be written. Whatever
    /// the policy, changes are refused from now on, as in Linux. Every caller that meets the
    /// stopped journal calls this; the first one records the fault.
    #[cold]
    pub(crate) fn journal_stopped(&self, fs: &Fs, why: &str) {
        self.stopped(fs, why, "journal");
    }

    /// Latches a failed flush of the device: any write since the last successful flush may be lost,
    /// of data, of the log, and of what a checkpoint wrote home. Nothing of it can be relied on.
    ///
    /// The journal stops, and with it changes, whatever the policy. Every opener of a file whose
    /// data is in memory is told once of lost data; a file that is opened later meets a file system
    /// that refuses changes. Every caller that meets the failure calls this.
    #[cold]
    pub(crate) fn flush_failed(&self, fs: &Fs, why: &str) {
        if !std::mem::replace(&mut self.inner.lock().writes_lost, true) {
            tell_openers(fs);
        }
        self.stopped(fs, &format!("a flush of the device failed: {why}"), "flush");
    }

    /// Raises the level for a device that lost metadata. The first caller stops the journal and
    /// records the fault.
    fn stopped(&self, fs: &Fs, why: &str, source: &'static str) {
        let level = match self.policy {
            ErrorsPolicy::Continue | ErrorsPolicy::RemountReadOnly => StopLevel::ReadOnly,
            ErrorsPolicy::Panic => StopLevel::Shutdown,
        };
        let noted = |inner: &mut Inner| {
            fs.stats.faults.bump();
            inner.remember(Event::new(source));
        };
        if self.raise(level, why, noted) {
            tracing::error!(why, "fault");
            fs.journal.abort_on_fault(why);
            self.record(fs);
        }
    }

    /// Shuts the file system down: every later operation fails with [`Error::Shutdown`], and
    /// nothing more is written.
    pub(crate) fn shut_down(&self, fs: &Fs, why: &str) {
        fs.latch.sever();
        self.raise(StopLevel::Shutdown, why, |_| ());
        fs.journal.abort(why);
    }

    /// Stores the faults that are not recorded yet on the device, past the journal, which has
    /// stopped.
    pub(crate) fn record(&self, fs: &Fs) {
        if fs.dev.is_read_only() || self.inner.lock().unrecorded.is_none() {
            return;
        }
        if let Err(error) = write_note(&fs.dev, |raw| self.note_in(raw)) {
            tracing::error!(%error, "the fault could not be recorded in the superblock");
        }
    }
}

/// Notes for every regular file in memory that data of it may be lost, because a flush of the
/// device has failed. Takes the lock of one shard of the inode cache at a time.
fn tell_openers(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(state) = inode.file_state.get() {
            state.note_lost_writes();
        }
    }
    fs.files.errors.record(WritebackFault::Io);
}
