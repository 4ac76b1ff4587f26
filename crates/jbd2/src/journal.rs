//! The journal: its border, its shared core, its life and end.
//!
//! # With a log and without
//! The same border serves both. Without a log a commit writes the transaction's blocks home and flushes;
//! nothing is promised about a crash in between.
//!
//! # Threads
//! `jbd2-commit` commits: on request, when the running transaction reaches the commit interval, at the end.
//! `jbd2-checkpoint` (only with a log) writes home what fills more than half of the log. Both end with
//! [`Journal::close`]. A panic in either stops the journal, not the process.
//!
//! # Faults
//! The first fault stops the journal for good ([`Journal::abort`]): what is in the log stays as it is, every
//! later start, modification and commit fails with the reason, nothing more is written but a note of the fault in
//! the log's superblock (`s_errno`), for the next mount or e2fsck. Reads go on; blocks modified but not written stay
//! in memory.
//!
//! A failed flush is a fault on every path: a commit's, a checkpoint's, one that an fsync asked
//! for. The tail of the log does not move after it. The device must remember it
//! ([`extant_blockdev::LatchedDevice`]): the journal meets only its own flushes.
//!
//! # Lock order
//! checkpoint turn → `Core::state` → (block → transaction parts) → log index. The journal's superblock is
//! locked within the checkpoint turn or by the commit thread, with nothing inside. A checkpoint's turn is
//! never waited for with `Core::state` held. Device I/O happens under the turn and the superblock's lock only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use extant_blockdev::BlockDevice;
use extant_failpoint::Failpoint;
use extant_units::{Pblk, Tid};
use parking_lot::{Condvar, Mutex};

use crate::block::BlockData;
use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::JournalError;
use crate::handle::Handle;
use crate::log::Log;
use crate::log_map::LogMap;
use crate::running::State;
use crate::sizes::Sizes;
use crate::stats::JournalStats;

/// The most blocks of one transaction without a log.
const MAX_BLOCKS_WITHOUT_LOG: u32 = 32 << 10;

/// The journal of one file system. See the module's header.
pub struct Journal {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What handles and threads share.
pub(crate) struct Core {
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) config: Config,
    pub(crate) log: Option<Log>,
    pub(crate) sizes: Sizes,
    pub(crate) state: Mutex<State>,
    /// The commit thread's work has changed.
    pub(crate) work: Condvar,
    /// The running transaction has changed: starts look again.
    pub(crate) changed: Condvar,
    /// The last handle of a locked transaction has ended.
    pub(crate) drained: Condvar,
    /// A commit has ended, or the journal has stopped.
    pub(crate) done: Condvar,
    aborted: OnceLock<Arc<str>>,
    pub(crate) counters: Counters,
}

/// The counters behind [`JournalStats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) handles: AtomicU64,
    pub(crate) ordered: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) commit_waits: AtomicU64,
    pub(crate) blocks_logged: AtomicU64,
    pub(crate) log_blocks_written: AtomicU64,
    pub(crate) revokes: AtomicU64,
    pub(crate) blocks_checkpointed: AtomicU64,
    pub(crate) tail_updates: AtomicU64,
    pub(crate) space_waits: AtomicU64,
    pub(crate) cow_copies: AtomicU64,
    pub(crate) credit_overflows: AtomicU64,
}

impl Journal {
    /// Opens a log that needs no recovery ([`crate::recover`] comes first). The log's format is brought up to
    /// date: a superblock of version 2, revoke records, 64-bit block numbers where the device needs them,
    /// checksums as [`Config::checksums`] says; checksums of version 1 and asynchronous commits end.
    ///
    /// # Errors
    /// The log is damaged, dirty or unsupported, or the device failed or is read-only.
    pub fn open(
        cache: Arc<BlockCache>,
        dev: Arc<dyn BlockDevice>,
        log: LogMap,
        config: Config,
    ) -> Result<Arc<Self>, JournalError> {
        let log = Log::open(dev, log, &cache, &config)?;
        let sizes = log.sizes();
        let next = log.next_tid();
        let journal = Self::assemble(cache, config, Some(log), sizes, next);
        Self::spawn(&journal)?;
        Ok(journal)
    }

    /// The same border without a log: a commit writes blocks home and flushes. `dev` is the cache's device.
    pub fn without_log(
        cache: Arc<BlockCache>,
        dev: Arc<dyn BlockDevice>,
        config: Config,
    ) -> Arc<Self> {
        drop(dev);
        let sizes = Sizes::without_log(MAX_BLOCKS_WITHOUT_LOG);
        let journal = Self::assemble(cache, config, None, sizes, Tid::new(1));
        if let Err(error) = Self::spawn(&journal) {
            journal.abort(&error.to_string());
        }
        journal
    }

    fn assemble(
        cache: Arc<BlockCache>,
        config: Config,
        log: Option<Log>,
        sizes: Sizes,
        next_tid: Tid,
    ) -> Arc<Self> {
        let core = Arc::new(Core {
            cache,
            config,
            log,
            sizes,
            state: Mutex::new(State {
                running: None,
                committing: None,
                next_tid,
                barriers: 0,
                closed: false,
                stopping: false,
            }),
            work: Condvar::new(),
            changed: Condvar::new(),
            drained: Condvar::new(),
            done: Condvar::new(),
            aborted: OnceLock::new(),
            counters: Counters::default(),
        });
        Arc::new(Self {
            core,
            threads: Mutex::default(),
        })
    }

    fn spawn(journal: &Arc<Self>) -> Result<(), JournalError> {
        let mut threads = journal.threads.lock();
        let mut bodies = vec![("jbd2-commit", Core::commit_loop as fn(&Core))];
        if journal.core.has_log() {
            bodies.push(("jbd2-checkpoint", Core::checkpoint_loop));
        }
        for (name, body) in bodies {
            let core = Arc::clone(&journal.core);
            let thread = std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || core.guarded(name, body))
                .map_err(JournalError::io("starting a journal thread"))?;
            threads.push(thread);
        }
        Ok(())
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Joins the running transaction with room for `credits` metadata blocks. Waits while that transaction
    /// is locked for its commit, and while the log has no room: hold no map, group or inode core lock here.
    ///
    /// # Errors
    /// More than [`Journal::max_credits`], or a journal that has stopped or was closed.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle, JournalError> {
        self.start_with_revokes(credits, 0)
    }

    /// [`Journal::start`] with room for `revokes` freed metadata blocks besides.
    ///
    /// # Errors
    /// See [`Journal::start`].
    pub fn start_with_revokes(
        self: &Arc<Self>,
        credits: u32,
        revokes: u32,
    ) -> Result<Handle, JournalError> {
        Handle::new(Arc::clone(self), credits, revokes)
    }

    /// Waits until `tid` is durable, asking for its commit if it runs. Concurrent callers share one commit.
    /// Its `on_commit` callbacks have run when this returns. The calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped, now or before.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        self.core.wait_for(tid).map(|_| ())
    }

    /// [`Journal::commit`], and besides everything that was written to the device before this call is durable
    /// as well, whether or not `tid` still needed a commit: what fsync needs.
    ///
    /// # Errors
    /// See [`Journal::commit`]; or the device failed to flush.
    pub fn sync(&self, tid: Tid) -> Result<(), JournalError> {
        if self.core.wait_for(tid)? {
            return Ok(());
        }
        self.core.flush()
    }

    /// [`Journal::force_commit`], and besides everything that was written to the device before this call is
    /// durable, whether or not there was anything to commit: what syncfs needs.
    ///
    /// # Errors
    /// See [`Journal::sync`].
    pub fn sync_all(&self) -> Result<(), JournalError> {
        let live = {
            let state = self.core.state.lock();
            let running = state.running.as_ref().map(|r| r.transaction.tid);
            running.or(state.committing.as_ref().map(|c| c.tid))
        };
        self.core.check_alive()?;
        match live {
            Some(tid) => self.sync(tid),
            None => self.core.flush(),
        }
    }

    /// Makes everything durable that was written to the device before this call, if barriers are
    /// on.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed to flush, which stops the journal.
    pub fn flush(&self) -> Result<(), JournalError> {
        self.core.check_alive()?;
        self.core.flush()
    }

    /// Asks for the commit of `tid`, if it runs, and does not wait.
    pub fn request_commit(&self, tid: Tid) {
        self.core.request_commit(tid);
    }

    /// Whether `tid` is neither running nor committing.
    pub fn is_durable(&self, tid: Tid) -> bool {
        let state = self.core.state.lock();
        !state.is_live(tid)
    }

    /// Commits whatever is running and waits for it, or for the commit that is under way. False if there was
    /// nothing to commit. The calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn force_commit(&self) -> Result<bool, JournalError> {
        self.core.check_alive()?;
        let state = self.core.state.lock();
        let tid = match (&state.running, &state.committing) {
            (Some(running), _) if running.handles > 0 || running.transaction.is_dirty() => {
                running.transaction.tid
            }
            (_, Some(committing)) => committing.tid,
            _ => return Ok(false),
        };
        drop(state);
        self.core.wait_for(tid)?;
        Ok(true)
    }

    /// Waits until no commit is under way or asked for; one that has stopped the journal is over as well. For tests: whatever the
    /// commit thread does later is not of what came before. The calling thread must hold no handle.
    #[doc(hidden)]
    pub fn settle(&self) {
        self.core.settle();
    }

    /// Commits, writes everything home, flushes and marks the log empty; new handles wait meanwhile. The
    /// calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped or the device failed.
    pub fn checkpoint_all(&self) -> Result<(), JournalError> {
        self.core.assert_no_handle_here();
        self.core.quiesced(|core| core.empty_log())
    }

    /// Does [`Journal::checkpoint_all`], refuses new handles from then on and ends the threads. Idempotent.
    ///
    /// # Errors
    /// The journal has stopped or the device failed; the threads end all the same.
    pub fn close(&self) -> Result<(), JournalError> {
        let first = !std::mem::replace(&mut self.core.state.lock().closed, true);
        self.core.changed.notify_all();
        let result = if first { self.checkpoint_all() } else { Ok(()) };
        self.core.stop_threads();
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = std::thread::current().id();
        for thread in threads {
            // A callback on the commit thread may own the last reference to the journal.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a journal thread panicked");
            }
        }
        result
    }

    /// Stops the journal for good: see "Faults" in the module's header. The first reason given stays.
    pub fn abort(&self, why: &str) {
        self.core.abort(why);
    }

    /// [`Journal::abort`] because of a fault, which is recorded in the log's superblock (`s_errno`) if that can be written:
    /// whoever opens the log next learns of it.
    pub fn abort_on_fault(&self, why: &str) {
        self.core.abort_on_fault(why);
    }

    /// Why the journal has stopped, if it has.
    #[inline]
    pub fn aborted(&self) -> Option<Arc<str>> {
        self.core.aborted.get().map(Arc::clone)
    }

    /// The bytes of block `p` if a transaction or the log holds a version that may not be home yet: whoever reads the device past the
    /// cache must take these. `None`: the device is right.
    pub fn newer_than_home(&self, p: Pblk) -> Option<BlockData> {
        let (data, attached) = self.core.cache.peek(p)?.version()?;
        (attached || self.core.is_in_log(p)).then_some(data)
    }

    /// The most credits that a single start may ask for.
    pub fn max_credits(&self) -> u32 {
        self.core.sizes.max_credits()
    }

    /// In builds with debug assertions: panics if this thread holds a handle, since what it is about to do may wait for a commit.
    #[inline]
    pub fn assert_no_handle(&self) {
        self.core.assert_no_handle_here();
    }

    /// Whether there is a log: without one, a crash is not survived.
    pub fn has_log(&self) -> bool {
        self.core.has_log()
    }

    /// The error number that an earlier user left in the log (`s_errno`), zero for none.
    pub fn recorded_errno(&self) -> i32 {
        self.core.log.as_ref().map_or(0, Log::recorded_errno)
    }

    /// Clears what [`Journal::recorded_errno`] reports, durably. Do so once the fault is noted elsewhere.
    ///
    /// # Errors
    /// The journal has stopped or the device failed.
    pub fn clear_errno(&self) -> Result<(), JournalError> {
        self.core.check_alive()?;
        match &self.core.log {
            Some(log) => log.clear_errno(),
            None => Ok(()),
        }
    }

    /// The counters of the journal and of its cache.
    pub fn stats(&self) -> JournalStats {
        self.core.stats()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let open = !self.threads.lock().is_empty();
        if let Err(error) = self.close()
            && open
        {
            tracing::error!(%error, "closing the journal");
        }
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("has_log", &self.has_log())
            .field("aborted", &self.aborted())
            .finish_non_exhaustive()
    }
}

impl Core {
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Fails if the journal has stopped.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<(), JournalError> {
        match self.aborted.get() {
            None => Ok(()),
            Some(why) => Err(JournalError::Aborted(Arc::clone(why))),
        }
    }

    pub(crate) fn abort(&self, why: &str) {
        if self.aborted.set(why.into()).is_ok() {
            tracing::error!(why, "the journal stops");
        }
        // Under the lock, so that nobody who has just looked misses the call.
        let _state = self.state.lock();
        self.work.notify_all();
        self.changed.notify_all();
        self.drained.notify_all();
        self.done.notify_all();
        if let Some(log) = &self.log {
            log.wake_all();
        }
    }

    /// Stops the journal because of `error` and returns it.
    pub(crate) fn abort_with(&self, error: JournalError) -> JournalError {
        self.abort_on_fault(&error.to_string());
        error
    }

    pub(crate) fn abort_on_fault(&self, why: &str) {
        /// What Linux records for a device that failed, `-EIO`.
        const FAULT: i32 = -5;
        let first = self.aborted.get().is_none();
        self.abort(why);
        if first
            && let Some(log) = &self.log
            && let Err(error) = log.record_errno(FAULT)
        {
            tracing::error!(%error, "the fault could not be recorded in the journal");
        }
    }

    /// Flushes the device that the blocks live on, if barriers are on. A failure stops the journal:
    /// what was lost cannot be known, and blocks that a checkpoint wrote home may be among it.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        if !self.config.barrier {
            return Ok(());
        }
        self.flush_always()
    }

    /// [`Core::flush`], whether or not barriers are on.
    pub(crate) fn flush_always(&self) -> Result<(), JournalError> {
        let flushed = self.cache.device().flush();
        let flushed = flushed.map_err(JournalError::io("flushing the device"));
        if self.config.failpoint.is(Failpoint::FlushFailureForgotten) {
            return flushed;
        }
        flushed.map_err(|error| self.abort_with(error))
    }

    /// Runs a thread's body; a panic stops the journal.
    fn guarded(&self, name: &str, body: fn(&Self)) {
        let run = std::panic::AssertUnwindSafe(|| body(self));
        if std::panic::catch_unwind(run).is_err() {
            self.abort(&format!("internal error: the thread {name} panicked"));
        }
    }

    fn stats(&self) -> JournalStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        let cache = self.cache.stats();
        JournalStats {
            handles: get(&c.handles),
            commits: get(&c.commits),
            commit_waits: get(&c.commit_waits),
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
