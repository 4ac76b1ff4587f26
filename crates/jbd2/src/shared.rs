//! The state that handles, threads and callers of one journal share, and how the journal stops.
//!
//! # Locks
//! Outermost first: the checkpoint lock, `state`, a block, a transaction's parts, the log's index.
//! The journal's superblock is locked under the checkpoint lock or by the committer, with nothing
//! inside. No thread waits for the checkpoint lock with `state` held. Device I/O happens
//! only under the checkpoint lock, the superblock's lock and the lock of a block that is read.
//!
//! # Errors
//! The first fault stops the journal for good: what is in the log stays as it is, and every later
//! start, modification and commit fails with the reason. Only a note of the fault is still written,
//! to the log's superblock (`s_errno`), for the next mount or e2fsck. Reads continue; blocks that
//! were modified and not written stay in memory.
//!
//! A failed flush is a fault on every path: of a commit, of a checkpoint, or on behalf of an fsync.
//! The tail of the log does not move after it (J27). The journal sees only its own flushes, so the
//! device must remember a failed one ([`extant_blockdev::LatchedDevice`]).

use extant_sync::OnceLock;
use std::sync::Arc;

use extant_counter::Counter;
use extant_failpoint::Failpoint;
use extant_sync::{Condvar, Mutex};
use extant_units::Tid;

use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::{JournalError, StopReason};
use crate::log::Log;
use crate::sizes::Sizes;
use crate::state::State;
use crate::stats::JournalStats;

/// The shared state of one journal.
pub(crate) struct Shared {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) config: Config,
    pub(crate) log: Option<Log>,
    /// Fast commits are written.
    pub(crate) fast: bool,
    pub(crate) sizes: Sizes,
    pub(crate) state: Mutex<State>,
    /// Signalled when the commit thread has to look at `state` again.
    pub(crate) commit_work: Condvar,
    /// Signalled when a start that waits for the running transaction has to look at it again.
    pub(crate) running_changed: Condvar,
    /// Signalled when the last handle of a locked transaction has ended.
    pub(crate) handles_ended: Condvar,
    /// Signalled when a commit has ended or the journal has stopped.
    pub(crate) commit_done: Condvar,
    aborted: OnceLock<StopReason>,
    pub(crate) counters: Counters,
}

/// The counters behind [`JournalStats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) handles: Counter,
    pub(crate) ordered: Counter,
    pub(crate) commits: Counter,
    pub(crate) commit_waits: Counter,
    pub(crate) own_commits: Counter,
    pub(crate) fast_commits: Counter,
    pub(crate) fast_blocks: Counter,
    pub(crate) fast_untold: Counter,
    pub(crate) fast_no_room: Counter,
    pub(crate) blocks_logged: Counter,
    pub(crate) log_blocks_written: Counter,
    pub(crate) revokes: Counter,
    pub(crate) blocks_checkpointed: Counter,
    pub(crate) tail_updates: Counter,
    pub(crate) space_waits: Counter,
    pub(crate) cow_copies: Counter,
    pub(crate) credit_overflows: Counter,
}

/// Adds to a counter.
pub(crate) fn count(counter: &Counter, by: u64) {
    counter.add(by);
}

impl Shared {
    pub(crate) fn new(
        cache: Arc<BlockCache>,
        config: Config,
        log: Option<Log>,
        sizes: Sizes,
        next_tid: Tid,
    ) -> Self {
        let has_area = log
            .as_ref()
            .is_some_and(|log| !log.fast_area.lock().is_empty());
        Self {
            cache,
            fast: has_area && config.operations.is_some(),
            config,
            log,
            sizes,
            state: Mutex::new(State::new(next_tid)),
            commit_work: Condvar::new(),
            running_changed: Condvar::new(),
            handles_ended: Condvar::new(),
            commit_done: Condvar::new(),
            aborted: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// `credits`, and those that each handle has beside.
    pub(crate) fn with_spare(&self, credits: u32) -> u32 {
        credits.saturating_add(self.config.spare_credits)
    }

    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Why the journal has stopped, if it has.
    #[inline]
    pub(crate) fn abort_reason(&self) -> Option<&StopReason> {
        self.aborted.get()
    }

    /// Fails if the journal has stopped.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), JournalError> {
        match self.aborted.get() {
            None => Ok(()),
            Some(why) => Err(JournalError::Aborted(why.clone())),
        }
    }

    /// Stops the journal. The first reason stays.
    pub(crate) fn abort(&self, why: impl Into<StopReason>) {
        let why = why.into();
        let words = Arc::clone(why.what());
        if self.aborted.set(why).is_ok() {
            tracing::error!(why = %words, "the journal stops");
        }
        // Under the lock: a thread that looked at `aborted` before it was set waits by now.
        let _state = self.state.lock();
        self.commit_work.notify_all();
        self.running_changed.notify_all();
        self.handles_ended.notify_all();
        self.commit_done.notify_all();
        if let Some(log) = &self.log {
            log.wake_all();
        }
    }

    /// Stops the journal because of `error` and returns it.
    pub(crate) fn abort_with(&self, error: JournalError) -> JournalError {
        self.abort_on_fault(error.clone());
        error
    }

    /// Stops the journal, and records the fault in the log's superblock if that can be written.
    pub(crate) fn abort_on_fault(&self, why: impl Into<StopReason>) {
        /// The errno that Linux records for a device that failed, `-EIO`.
        const FAULT: i32 = -5;
        let first = self.aborted.get().is_none();
        self.abort(why);
        debug_assert!(
            self.check_alive().is_err(),
            "a stopped journal stays stopped"
        );
        if first
            && let Some(log) = &self.log
            && let Err(error) = log.record_errno(FAULT)
        {
            tracing::error!(%error, "the fault could not be recorded in the journal");
        }
    }

    /// Flushes the device that the blocks live on, if barriers are on. A failure stops the journal:
    /// what was lost cannot be known, and checkpointed blocks may be among it.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        if !self.config.barrier {
            return Ok(());
        }
        self.flush_always()
    }

    /// [`Shared::flush`], whether or not barriers are on.
    pub(crate) fn flush_always(&self) -> Result<(), JournalError> {
        let flushed = self.cache.device().flush();
        let flushed = flushed.map_err(JournalError::io("flushing the device"));
        if self.config.failpoint.is(Failpoint::FlushFailureForgotten) {
            return flushed;
        }
        flushed.map_err(|error| self.abort_with(error))
    }

    /// Runs a thread's body. A panic stops the journal, not the process.
    pub(crate) fn run_thread(&self, name: &str, body: fn(&Self)) {
        let run = std::panic::AssertUnwindSafe(|| body(self));
        if std::panic::catch_unwind(run).is_err() {
            let why = format!("internal error: the thread {name} panicked");
            self.abort(why.as_str());
        }
    }

    pub(crate) fn stats(&self) -> JournalStats {
        let get = Counter::get;
        let c = &self.counters;
        let cache = self.cache.stats();
        JournalStats {
            handles: get(&c.handles),
            commits: get(&c.commits),
            commit_waits: get(&c.commit_waits),
            own_commits: get(&c.own_commits),
            fast_commits: get(&c.fast_commits),
            fast_blocks: get(&c.fast_blocks),
            fast_untold: get(&c.fast_untold),
            fast_no_room: get(&c.fast_no_room),
            blocks_logged: get(&c.blocks_logged),
            log_blocks_written: get(&c.log_blocks_written),
            revokes: get(&c.revokes),
            blocks_checkpointed: get(&c.blocks_checkpointed),
            tail_updates: get(&c.tail_updates),
            space_waits: get(&c.space_waits),
            cow_copies: get(&c.cow_copies),
            ordered: get(&c.ordered),
            credit_overflows: get(&c.credit_overflows),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_evictions: cache.evictions,
        }
    }
}
