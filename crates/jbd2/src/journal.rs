//! The journal.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_units::Tid;

use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::JournalError;
use crate::handle::Handle;
use crate::log_map::LogMap;
use crate::stats::JournalStats;

/// The journal, with a log or without one.
pub struct Journal {}

impl Journal {
    /// Opens a log that needs no recovery.
    ///
    /// # Errors
    /// The log is damaged, dirty or unsupported, or the device failed.
    pub fn open(
        cache: Arc<BlockCache>,
        dev: Arc<dyn BlockDevice>,
        log: LogMap,
        config: Config,
    ) -> Result<Arc<Self>, JournalError> {
        let _ = (cache, dev, log, config);
        todo!()
    }

    /// The same without a log: a commit writes blocks home and flushes.
    pub fn without_log(
        cache: Arc<BlockCache>,
        dev: Arc<dyn BlockDevice>,
        config: Config,
    ) -> Arc<Self> {
        let _ = (cache, dev, config);
        todo!()
    }

    /// Joins the running transaction with room for `credits` blocks.
    ///
    /// # Errors
    /// More than [`Journal::max_credits`], or an aborted journal.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle, JournalError> {
        self.start_with_revokes(credits, 0)
    }

    /// The same with room for `revokes` revoke records.
    ///
    /// # Errors
    /// See [`Journal::start`].
    pub fn start_with_revokes(
        self: &Arc<Self>,
        credits: u32,
        revokes: u32,
    ) -> Result<Handle, JournalError> {
        let _ = (credits, revokes);
        todo!()
    }

    /// Waits until `tid` is durable, asking for its commit if it runs.
    ///
    /// # Errors
    /// The journal was aborted before.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        let _ = tid;
        todo!()
    }

    /// Asks for the commit of `tid` and does not wait.
    pub fn request_commit(&self, tid: Tid) {
        let _ = tid;
        todo!()
    }

    /// Whether `tid` is durable.
    pub fn is_durable(&self, tid: Tid) -> bool {
        let _ = tid;
        todo!()
    }

    /// Commits what is running and waits; false if there was nothing.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn force_commit(&self) -> Result<bool, JournalError> {
        todo!()
    }

    /// Commits, writes everything home and marks the log empty.
    ///
    /// # Errors
    /// The journal was aborted or the device failed.
    pub fn checkpoint_all(&self) -> Result<(), JournalError> {
        todo!()
    }

    /// Does [`Journal::checkpoint_all`] and stops the threads. Idempotent.
    ///
    /// # Errors
    /// The journal was aborted or the device failed.
    pub fn close(&self) -> Result<(), JournalError> {
        todo!()
    }

    /// Stops the journal for good: later starts and commits fail, nothing more is written.
    pub fn abort(&self, why: &str) {
        let _ = why;
        todo!()
    }

    /// Why the journal stopped, if it did.
    pub fn aborted(&self) -> Option<String> {
        todo!()
    }

    /// The most credits a single start may ask for.
    pub fn max_credits(&self) -> u32 {
        todo!()
    }

    /// The counters.
    pub fn stats(&self) -> JournalStats {
        todo!()
    }
}
