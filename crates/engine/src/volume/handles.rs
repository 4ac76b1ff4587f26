//! Starting handles, and refusing changes where none may be made.

use extant_jbd2::Handle;
use extant_units::Tid;

use crate::types::error::Result;
use crate::volume::Fs;

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
        let committed = self.journal.commit(tid);
        self.note_stopped_journal();
        Ok(committed?)
    }
}
