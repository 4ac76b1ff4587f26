//! The journal: what its users call, its threads, its end.
//!
//! # Responsibility
//! One interface serves file systems with a log and without. Without a log, a commit writes the
//! transaction's blocks to their home locations and flushes; a crash in between may leave any of
//! them unwritten.
//!
//! # Concurrency
//! `jbd2-commit` commits: on request, when the running transaction reaches the commit interval, and
//! at the end. [`Journal::sync_here`] commits on the calling thread. `jbd2-checkpoint` (only with a
//! log) checkpoints what fills more than half of the log. [`Journal::close`] ends both. A panic in
//! either stops the journal, not the process.
//!
//! # Locks
//! `threads` is a leaf. For the others see `shared.rs`.
//!
//! # Errors
//! The first fault stops the journal for good ([`Journal::abort`]); see `shared.rs`.

use extant_sync::OnceLock;
use extant_sync::thread::JoinHandle;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_sync::Mutex;
use extant_units::{Pblk, Tid, at_most_u32};

use crate::block::BlockData;
use crate::cache::BlockCache;
use crate::commit::Committer;
use crate::config::Config;
use crate::error::JournalError;
use crate::log::Log;
use crate::log_map::LogMap;
use crate::shared::Shared;
use crate::sizes::Sizes;
use crate::stats::JournalStats;

/// The most blocks of one transaction without a log, and the most bytes of them in memory.
const MAX_BLOCKS_WITHOUT_LOG: u32 = 32 << 10;
const MAX_BYTES_WITHOUT_LOG: u64 = 128 << 20;

/// The journal of one file system. See the module's header.
///
/// On cache lines of its own: each handle writes the count of references before it, and each change
/// of a block reads the pointer in it.
#[repr(align(128))]
pub struct Journal {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// How [`Journal::close`] ended.
    ended: OnceLock<Result<(), JournalError>>,
}

impl Journal {
    /// Opens a log that needs no recovery ([`crate::recover`] comes first) and brings its format up
    /// to date: a superblock of version 2, revoke records, 64-bit block numbers where the device
    /// needs them, checksums as [`Config::checksums`] says. Checksums of version 1 and asynchronous
    /// commits are switched off.
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
        if config.operations.is_some() {
            log.clear_fast_area()?;
        }
        let sizes = log.sizes();
        let next = log.next_tid();
        let shared = Shared::new(cache, config, Some(log), sizes, next);
        let journal = Self::of(shared);
        Self::spawn(&journal)?;
        Ok(journal)
    }

    /// A journal without a log: a commit writes blocks to their home locations and flushes.
    pub fn without_log(cache: Arc<BlockCache>, config: Config) -> Arc<Self> {
        let most = at_most_u32(MAX_BYTES_WITHOUT_LOG >> cache.block_size().log2());
        let sizes = Sizes::without_log(most.min(MAX_BLOCKS_WITHOUT_LOG));
        let journal = Self::of(Shared::new(cache, config, None, sizes, Tid::new(1)));
        if let Err(error) = Self::spawn(&journal) {
            journal.shared.abort(error);
        }
        journal
    }

    fn of(shared: Shared) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
            ended: OnceLock::new(),
        })
    }

    fn spawn(journal: &Arc<Self>) -> Result<(), JournalError> {
        let mut threads = journal.threads.lock();
        let mut bodies = vec![("jbd2-commit", Shared::commit_loop as fn(&Shared))];
        if journal.has_log() {
            bodies.push(("jbd2-checkpoint", Shared::checkpoint_loop));
        }
        for (name, body) in bodies {
            let shared = Arc::clone(&journal.shared);
            let thread = extant_sync::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || shared.run_thread(name, body))
                .map_err(JournalError::io("starting a journal thread"))?;
            threads.push(thread);
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Waits until `tid` is durable, and requests its commit if it runs. Concurrent callers share
    /// one commit. Its `on_commit` callbacks have run when this returns. The calling thread must
    /// hold no handle.
    ///
    /// # Errors
    /// The journal has stopped, during this call or before it.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        self.shared.wait_for(tid, Committer::Thread).map(|_| ())
    }

    /// [`Journal::commit`], and makes everything durable that was written to the device before this
    /// call, whether or not `tid` still needed a commit: what fsync needs.
    ///
    /// # Errors
    /// See [`Journal::commit`]; or the device failed to flush.
    pub fn sync(&self, tid: Tid) -> Result<(), JournalError> {
        self.sync_by(tid, Committer::Thread)
    }

    /// [`Journal::sync`], with the commit made by the calling thread if no other one commits: it
    /// waits for no other thread to wake up. A fast commit will do, so `on_commit` callbacks may
    /// not have run. It holds no lock that a commit, ordered data or a
    /// callback takes ([`crate::Handle::on_commit`]).
    ///
    /// # Errors
    /// See [`Journal::sync`].
    pub fn sync_here(&self, tid: Tid) -> Result<(), JournalError> {
        self.sync_by(tid, Committer::Caller)
    }

    /// Waits until what handles of `tid` have done so far is durable, by a fast commit or one of
    /// the whole transaction. The calling thread makes it if no other one commits. It holds what a
    /// caller of [`Journal::sync_here`] may hold.
    ///
    /// # Errors
    /// See [`Journal::commit`].
    pub fn commit_here(&self, tid: Tid) -> Result<(), JournalError> {
        self.shared.wait_for(tid, Committer::Caller).map(|_| ())
    }

    fn sync_by(&self, tid: Tid, by: Committer) -> Result<(), JournalError> {
        if self.shared.wait_for(tid, by)? {
            return Ok(());
        }
        self.shared.flush()
    }

    /// [`Journal::force_commit`], and makes everything durable that was written to the device
    /// before this call, whether or not there was anything to commit: what syncfs needs.
    ///
    /// # Errors
    /// See [`Journal::sync`].
    pub fn sync_all(&self) -> Result<(), JournalError> {
        let live = {
            let state = self.shared.state.lock();
            let committing = || state.committing.as_ref().map(|c| c.tid);
            state.running_tid().or_else(committing)
        };
        self.shared.check_alive()?;
        match live {
            Some(tid) => self.sync(tid),
            None => self.shared.flush(),
        }
    }

    /// Makes everything durable that was written to the device before this call, if barriers are
    /// on.
    ///
    /// # Errors
    /// The journal has stopped, or the device failed to flush, which stops the journal.
    pub fn flush(&self) -> Result<(), JournalError> {
        self.shared.check_alive()?;
        self.shared.flush()
    }

    /// Requests the commit of `tid`, if it runs, and does not wait: for tests.
    #[doc(hidden)]
    pub fn request_commit(&self, tid: Tid) {
        self.shared.request_commit(tid);
    }

    /// Returns whether `tid` is neither running nor committing: for tests.
    #[doc(hidden)]
    pub fn is_durable(&self, tid: Tid) -> bool {
        let state = self.shared.state.lock();
        !state.is_live(tid)
    }

    /// Commits the running transaction and waits for it, or for the commit that is under way. False
    /// if there was nothing to commit. The calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped.
    pub fn force_commit(&self) -> Result<bool, JournalError> {
        self.shared.check_alive()?;
        let state = self.shared.state.lock();
        let tid = match (&state.running, &state.committing) {
            (Some(running), _) if running.handles > 0 || running.transaction.is_dirty() => {
                running.transaction.tid
            }
            (_, Some(committing)) => committing.tid,
            _ => return Ok(false),
        };
        drop(state);
        self.shared.wait_for(tid, Committer::Thread)?;
        Ok(true)
    }

    /// Waits until no commit is under way or requested, or the journal has stopped. For tests: what
    /// the commit thread does afterwards does not come from earlier calls. The calling thread must
    /// hold no handle.
    #[doc(hidden)]
    pub fn wait_until_idle(&self) {
        self.shared.wait_until_idle();
    }

    /// Commits, checkpoints everything, flushes and marks the log empty. New handles wait
    /// meanwhile. The calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped or the device failed.
    pub fn checkpoint_all(&self) -> Result<(), JournalError> {
        self.shared.assert_no_handle_here();
        self.shared.quiesce(|quiesced| quiesced.empty_log())
    }

    /// Calls [`Journal::checkpoint_all`], refuses new handles from then on and ends the threads. A
    /// later call waits for the first, and has its result. The calling thread must hold no handle.
    ///
    /// # Errors
    /// The journal has stopped or the device failed; the threads end all the same.
    pub fn close(&self) -> Result<(), JournalError> {
        self.shared.assert_no_handle_here();
        self.ended.get_or_init(|| self.end()).clone()
    }

    fn end(&self) -> Result<(), JournalError> {
        self.shared.state.lock().closed = true;
        self.shared.running_changed.notify_all();
        let result = self.checkpoint_all();
        self.shared.stop_threads();
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = extant_sync::thread::current().id();
        for thread in threads {
            // A callback on the commit thread may own the last reference to the journal.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a journal thread panicked");
            }
        }
        result
    }

    /// Stops the journal for good: see "Errors" in the header of `shared.rs`. The first reason is
    /// kept.
    pub fn abort(&self, why: &str) {
        self.shared.abort(why);
    }

    /// [`Journal::abort`] because of a fault. It is recorded in the log's superblock (`s_errno`),
    /// if that can be written, for the next mount or e2fsck.
    pub fn abort_on_fault(&self, why: &str) {
        self.shared.abort_on_fault(why);
    }

    /// Why the journal has stopped, if it has.
    #[inline]
    pub fn abort_reason(&self) -> Option<Arc<str>> {
        self.shared.abort_reason().map(|why| Arc::clone(why.what()))
    }

    /// The bytes of block `p`, if a transaction or the log holds a version that the device may not
    /// have yet. A caller that reads the device past the cache must use these bytes. `None`: the
    /// device has the latest version.
    pub fn newer_than_device(&self, p: Pblk) -> Option<BlockData> {
        let (data, attached) = self.shared.cache.get(p)?.data_and_attached()?;
        (attached || self.shared.is_in_log(p)).then_some(data)
    }

    /// The most credits that a single start may ask for.
    pub fn max_credits(&self) -> u32 {
        let spare = self.shared.config.spare_credits;
        self.shared.sizes.max_credits().saturating_sub(spare)
    }

    /// In builds with debug assertions: panics if this thread holds a handle. For callers that are
    /// about to do what may wait for a commit.
    #[inline]
    pub fn assert_no_handle(&self) {
        self.shared.assert_no_handle_here();
    }

    /// Returns whether there is a log. Without one, a crash may leave the file system inconsistent.
    pub fn has_log(&self) -> bool {
        self.shared.has_log()
    }

    /// Returns whether fast commits are written: [`Journal::sync_here`] and
    /// [`Journal::commit_here`] may end without a commit of the whole transaction.
    #[inline]
    pub fn has_fast_commits(&self) -> bool {
        self.shared.has_fast_commits()
    }

    /// The errno that an earlier mount recorded in the log (`s_errno`), zero for none.
    pub fn recorded_errno(&self) -> i32 {
        self.shared.log.as_ref().map_or(0, Log::recorded_errno)
    }

    /// Clears the errno that [`Journal::recorded_errno`] returns, durably. Call it once the fault
    /// is recorded elsewhere.
    ///
    /// # Errors
    /// The journal has stopped or the device failed.
    pub fn clear_errno(&self) -> Result<(), JournalError> {
        self.shared.check_alive()?;
        match &self.shared.log {
            Some(log) => log.clear_errno(),
            None => Ok(()),
        }
    }

    /// The counters of the journal and of its cache.
    pub fn stats(&self) -> JournalStats {
        self.shared.stats()
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
            .field("aborted", &self.abort_reason())
            .finish_non_exhaustive()
    }
}
