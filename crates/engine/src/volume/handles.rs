//! Starting handles, refusing changes where none may be made, ending those that cannot be
//! completed, and the commit that an operation on names owes.
//!
//! # Errors
//! An operation finds and checks what it is going to change before its first change, so that a
//! failure leaves nothing to undo. One that fails later ([`all_or_abort`]) stops the journal,
//! whatever the `errors=` policy: the transaction has half of the operation, and must not become
//! durable.

use extant_disk::inode::InodeFlags;
use extant_jbd2::Handle;
use extant_units::Tid;

use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Runs `change`, whose parts belong together. If it fails after the first of them, aborts the
/// journal. Lack of room ([`Error::NoSpace`]) is no such failure: it comes before a change, or
/// after `change` has undone what it did.
///
/// # Errors
/// That of `change`.
pub(crate) fn all_or_abort<R>(
    h: &mut Handle,
    change: impl FnOnce(&mut Handle) -> Result<R>,
) -> Result<R> {
    let before = h.changes();
    let result = change(h);
    if let Err(error) = &result
        && h.has_changed_since(before)
        && !error.is_lack_of_room()
    {
        stop(h, error);
    }
    result
}

/// Stops the journal of `h`, because `error` ended a change in the middle.
#[cold]
pub(crate) fn stop(h: &Handle, error: &Error) {
    h.journal()
        .abort_on_fault(&format!("a change could not be completed: {error}"));
}

impl Fs {
    /// Starts a handle with room for `credits` metadata blocks, if the file system may be modified.
    ///
    /// # Errors
    /// [`crate::Error::ReadOnly`] on a read-only mount and after a fault,
    /// [`crate::Error::Shutdown`] after one that refuses everything, and the journal's errors. May
    /// wait for log space: see `docs/LOCKING.md`.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle> {
        self.start_with_revokes(credits, 0)
    }

    /// As [`Fs::start`], with room for `revokes` revoke records: for handles that free metadata
    /// blocks.
    ///
    /// # Errors
    /// As [`Fs::start`].
    pub(crate) fn start_with_revokes(&self, credits: u32, revokes: u32) -> Result<Handle> {
        debug_assert!(credits > 0, "a handle that can change nothing (J22)");
        self.check_writable()?;
        let handle = self.journal.start_with_revokes(credits, revokes);
        handle.map_err(|error| {
            // The file system may have stopped while this thread waited.
            match self.check_writable() {
                Err(refused) => refused,
                Ok(()) => error.into(),
            }
        })
    }

    /// Fails if the file system may not be modified.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.fault.check()?;
        if self.options.read_only() {
            return Err(crate::Error::ReadOnly);
        }
        if self.latch.failure().is_some() || self.journal.abort_reason().is_some() {
            self.note_stopped_journal();
            return self.fault.check();
        }
        Ok(())
    }

    /// Latches that the journal has stopped by itself, or that a flush of the device has failed, if
    /// either is so. Called before a change, and after a commit or a flush has failed.
    pub(crate) fn note_stopped_journal(&self) {
        if let Some(why) = self.latch.failure() {
            self.fault.flush_failed(self, &why.to_string());
        } else if let Some(why) = self.journal.abort_reason() {
            self.fault.journal_stopped(self, &why);
        }
    }

    /// Waits until the transaction `tid` is durable. The caller holds no lock and no handle.
    ///
    /// # Errors
    /// The journal has stopped, which is latched.
    #[track_caller]
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        extant_lock_order::assert_none_held();
        let committed = match self.journal.has_fast_commits() {
            true => self.journal.commit_here(tid),
            false => self.journal.commit(tid),
        };
        self.note_stopped_journal();
        Ok(committed?)
    }
}

/// The commit that an operation on names owes after it has released its locks.
#[must_use]
pub(crate) struct PendingCommit(Option<Tid>);

impl PendingCommit {
    /// Ends the handle of a change to these directories.
    pub(crate) fn end(fs: &Fs, mut h: Handle, dirs: &[&Inode]) -> Self {
        let sync = InodeFlags::DIRSYNC | InodeFlags::SYNC;
        if !fs.options.dirsync() && !dirs.iter().any(|dir| dir.flags().intersects(sync)) {
            return Self(None);
        }
        if !fs.journal.has_fast_commits() {
            h.set_sync();
        }
        Self(Some(h.tid()))
    }

    /// Nothing was changed.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    /// Waits for the commit, if a directory asks for it.
    pub(crate) fn commit_and_wait(self, fs: &Fs) -> Result<()> {
        match self.0 {
            Some(tid) => fs.commit(tid),
            None => Ok(()),
        }
    }
}
