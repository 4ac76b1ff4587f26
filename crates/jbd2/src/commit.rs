//! Committing: the commit thread, the threads that wait for a commit, and the steps of one commit.
//!
//! # Concurrency
//! One thread commits at a time, the *committer* (`State::has_committer`): the commit thread, or
//! one that waits for the commit and holds no lock ([`Committer::Caller`]), which saves the way to
//! the commit thread and back.
//!
//! 1. A request to the commit thread, while another thread commits, stays noted in the running
//!    transaction. The committer looks for it under the lock of the state as it ends, and wakes the
//!    commit thread (`Shared::finish`).
//! 2. A caller that finds a committer requests nothing. It waits for `commit_done`, which the
//!    committer signals after it has cleared `has_committer`, and commits if its transaction still
//!    runs.
//! 3. An error or a panic leaves `has_committer` set. The journal has stopped then, and every wait
//!    ends.
//!
//! # Invariants
//! The states RUNNING and LOCKED are in `running.rs`. A commit then takes these steps, in this
//! order (`docs/JOURNAL.md` has them as a time line):
//!
//! 1. SWITCH: the transaction becomes the committing one. The next start may make a new running
//!    transaction at once.
//! 2. ORDERED: the commit waits for ordered data ([`crate::OrderedData`]). The preflush of the
//!    commit record makes that data durable (J26).
//! 3. FLUSH: the commit takes a snapshot of each block. For a block that the next transaction
//!    modified earlier, the modifying thread has preserved the older bytes (`block.rs`); no thread
//!    waits.
//! 4. COMMIT: revoke blocks, descriptors and copies are written to the log, in large contiguous
//!    writes.
//! 5. COMMIT_JFLUSH: the commit record is written with preflush and forced unit access. When that
//!    write returns, the transaction and everything written before it are durable.
//! 6. COMMIT_CALLBACK: the blocks become pending for a checkpoint. Blocks that the transaction
//!    freed no longer are; the commit waits for a checkpoint that is writing one of them. Then the
//!    callbacks run, and freed blocks become reusable. This order keeps a checkpoint from writing
//!    an old version of a freed block over its next owner.
//! 7. FINISHED: the waiting threads continue.

use extant_sync::time::Instant;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_sync::MutexGuard;
use extant_units::Tid;

use crate::block::Block;
use crate::blockio::write_blocks;
use crate::checkpoint::Quiesced;
use crate::error::{JournalError, ensure};
use crate::fast_commit::CommitEnd;
use crate::ordered::OrderedData;
use crate::shared::{Shared, count};
use crate::state::{Committing, State};
use crate::transaction::{Parts, take_snapshots};

/// The thread that makes a commit which a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Committer {
    /// The commit thread.
    Thread,
    /// The caller, unless another thread commits. It holds no lock that a commit, ordered data or a
    /// callback takes.
    Caller,
}

impl Shared {
    /// Requests the commit of `tid` if it is the running transaction.
    pub(crate) fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if state.running_tid() == Some(tid) {
            self.request_running(&mut state);
        }
    }

    /// Waits until `tid` neither runs nor commits, after a commit by `by` if it runs; a caller that
    /// commits is content with a fast commit. Returns whether that commit flushed the device, at a
    /// time after this call began.
    pub(crate) fn wait_for(&self, tid: Tid, by: Committer) -> Result<bool, JournalError> {
        self.assert_no_handle_here();
        self.check_alive()?;
        let mut state = self.state.lock();
        let covered = state.will_flush(tid);
        let before = state.fast_begun;
        if state.is_live(tid) {
            count(&self.counters.commit_waits, 1);
        }
        while state.is_live(tid) {
            self.check_alive()?;
            match by {
                // A fast commit that began after this call, and while `tid` is live: one of it.
                Committer::Caller if state.fast_done > before => return Ok(true),
                _ if state.running_tid() != Some(tid) => {}
                Committer::Thread => self.request_running(&mut state),
                Committer::Caller if state.has_committer => {}
                Committer::Caller => {
                    match self.commit_here(state)? {
                        CommitEnd::Whole => {}
                        CommitEnd::Fast => return Ok(true),
                        CommitEnd::Nothing => return Ok(false),
                    }
                    state = self.state.lock();
                    continue;
                }
            }
            self.commit_done.wait(&mut state);
        }
        self.check_alive()?;
        Ok(covered)
    }

    /// Commits the running transaction on this thread: by a fast commit, if there are such and one
    /// can tell what was done. A panic stops the journal, as one of the commit thread does.
    fn commit_here(&self, mut state: MutexGuard<'_, State>) -> Result<CommitEnd, JournalError> {
        let fast = self.begin_fast(&mut state);
        if !fast {
            self.note_own_commit(&mut state);
        }
        let mut end = CommitEnd::Whole;
        match catch_unwind(AssertUnwindSafe(|| self.commit_running(state, fast))) {
            Ok(Ok(how)) => end = how,
            // If an earlier fault made the commit fail, that one stays the reason.
            Ok(Err(error)) => self.abort_on_fault(error),
            Err(_) => self.abort("internal error: a commit panicked"),
        }
        self.check_alive()?;
        Ok(end)
    }

    /// Notes that a caller commits the whole of the running transaction.
    fn note_own_commit(&self, state: &mut State) {
        if let Some(running) = &mut state.running {
            running.commit_requested = true;
        }
        count(&self.counters.own_commits, 1);
    }

    /// With [`commit_each_handle`](crate::Config::commit_each_handle), commits the handles so far.
    /// The caller is about to start a handle and holds no lock that a commit needs.
    pub(crate) fn commit_before_start(&self) -> Result<(), JournalError> {
        if !self.config.commit_each_handle {
            return Ok(());
        }
        let tid = {
            let state = self.state.lock();
            let running = state.running.as_ref().map(|running| &running.transaction);
            running.filter(|t| t.is_dirty()).map(|t| t.tid)
        };
        tid.map_or(Ok(()), |tid| {
            self.wait_for(tid, Committer::Thread).map(drop)
        })
    }

    /// Waits until no commit is under way or requested, or the journal has stopped.
    pub(crate) fn wait_until_idle(&self) {
        self.assert_no_handle_here();
        let mut state = self.state.lock();
        while state.is_busy() && self.check_alive().is_ok() {
            self.commit_done.wait(&mut state);
        }
    }

    /// Calls `f` at a moment at which nothing runs or commits and nothing can start. A panic in `f`
    /// stops the journal: what it was doing may be half done.
    pub(crate) fn quiesce(
        &self,
        f: impl FnOnce(&Quiesced<'_>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        self.state.lock().barriers += 1;
        let run = AssertUnwindSafe(|| {
            self.wait_until_nothing_runs()?;
            f(&Quiesced::new(self))
        });
        let result = catch_unwind(run);
        if result.is_err() {
            self.abort("internal error: a panic while the log was emptied");
        }
        let mut state = self.state.lock();
        assert!(state.barriers > 0, "this call's barrier stands");
        state.barriers -= 1;
        drop(state);
        self.running_changed.notify_all();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Commits what runs, and waits until nothing runs or commits.
    fn wait_until_nothing_runs(&self) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        loop {
            self.check_alive()?;
            if state.running.is_some() {
                self.request_running(&mut state);
            } else if state.committing.is_none() {
                return Ok(());
            }
            self.commit_done.wait(&mut state);
        }
    }

    /// The body of the commit thread.
    pub(crate) fn commit_loop(&self) {
        loop {
            let mut state = self.state.lock();
            if !self.wait_for_work(&mut state) {
                return;
            }
            if let Err(error) = self.commit_running(state, false) {
                // If an earlier fault made the commit fail, that one stays the reason.
                self.abort_with(error);
                return;
            }
        }
    }

    /// Waits until the commit of the running transaction is requested or due, and no other thread
    /// commits. False when the thread is to end.
    fn wait_for_work(&self, state: &mut MutexGuard<'_, State>) -> bool {
        loop {
            if state.stopping || self.check_alive().is_err() {
                return false;
            }
            let has_committer = state.has_committer;
            let Some(running) = &mut state.running else {
                self.commit_work.wait(state);
                continue;
            };
            let now = Instant::now();
            match running.since.checked_add(self.config.commit_interval) {
                _ if running.commit_requested => {}
                Some(due) if due > now => {
                    state.watches_age = true;
                    self.commit_work.wait_until(state, due);
                    state.watches_age = false;
                    continue;
                }
                Some(_) if running.transaction.is_dirty() => running.commit_requested = true,
                Some(_) => {
                    running.since = now;
                    continue;
                }
                None => {
                    self.commit_work.wait(state);
                    continue;
                }
            }
            if !has_committer {
                return true;
            }
            // It wakes this thread at its end, as a commit is requested.
            self.commit_work.wait(state);
        }
    }

    /// Tells both threads to end once they have nothing under way.
    pub(crate) fn stop_threads(&self) {
        self.state.lock().stopping = true;
        self.commit_work.notify_all();
        if let Some(log) = &self.log {
            log.stop();
        }
    }

    /// Locks the running transaction, waits for its handles and commits it: with `fast`, by a fast
    /// commit if one can tell it. After an error, which stops the journal, no thread becomes the
    /// committer.
    fn commit_running(
        &self,
        mut state: MutexGuard<'_, State>,
        fast: bool,
    ) -> Result<CommitEnd, JournalError> {
        let is_first = !std::mem::replace(&mut state.has_committer, true);
        ensure(is_first, "two threads commit at a time")?;
        self.lock_running(&mut state)?;
        if fast {
            if let Some(end) = self.commit_fast(&mut state)? {
                self.finish(state);
                return Ok(end);
            }
            self.note_own_commit(&mut state);
        }
        let Some(running) = state.running.take() else {
            self.finish(state);
            return Ok(CommitEnd::Whole);
        };
        let tid = running.transaction.tid;
        if !running.transaction.is_dirty() {
            // Ids in the log have no gaps: the next transaction takes this one's.
            state.next_tid = tid;
            self.finish(state);
            return Ok(CommitEnd::Whole);
        }
        let alone = state.committing.is_none();
        ensure(alone, "two transactions commit at a time")?;
        state.committing = Some(Committing {
            tid,
            log_blocks: running.log_blocks(&self.sizes),
            flushing: false,
        });
        self.running_changed.notify_all();
        drop(state);
        let mut parts = running.transaction.take_parts()?;
        self.wait_for_ordered_data(tid, &std::mem::take(&mut parts.ordered));
        self.make_durable(tid, &mut parts)?;
        self.end_fast_commits_of(tid)?;
        for callback in parts.callbacks {
            callback();
        }
        let mut state = self.state.lock();
        debug_assert!(state.committing.as_ref().is_some_and(|c| c.tid == tid));
        state.committing = None;
        count(&self.counters.commits, 1);
        self.finish(state);
        Ok(CommitEnd::Whole)
    }

    fn wait_for_ordered_data(&self, tid: Tid, ordered: &[Arc<dyn OrderedData>]) {
        if self.config.failpoint.is(Failpoint::OrderedDataLeftOut) {
            return;
        }
        ordered.iter().for_each(|data| data.write_and_wait(tid));
        count(&self.counters.ordered, ordered.len() as u64);
    }

    /// Lets no handle join any more and waits until the last one has ended.
    fn lock_running(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        while let Some(running) = &mut state.running {
            running.locked = true;
            if running.handles == 0 {
                if !running.transaction.is_dirty() {
                    // Nothing will be committed, but threads that wait rely on the flush.
                    running.flushing = true;
                    MutexGuard::unlocked(state, || self.flush())?;
                }
                break;
            }
            self.check_alive()?;
            self.handles_ended.wait(state);
        }
        self.check_alive()
    }

    /// Ends a commit: wakes the threads that wait for that, and the commit thread if another commit
    /// was requested.
    fn finish(&self, mut state: MutexGuard<'_, State>) {
        state.has_committer = false;
        let running = state.running.as_ref();
        let is_requested = running.is_some_and(|running| running.commit_requested);
        drop(state);
        self.running_changed.notify_all();
        self.commit_done.notify_all();
        if is_requested {
            self.commit_work.notify_one();
        }
    }

    /// Makes the transaction durable: through the log, or at its blocks' home locations.
    fn make_durable(&self, tid: Tid, parts: &mut Parts) -> Result<(), JournalError> {
        match &self.log {
            Some(log) => self.commit_to_log(log, tid, parts),
            None => self.commit_without_log(tid, &parts.blocks),
        }
    }

    fn commit_without_log(&self, tid: Tid, blocks: &[Block]) -> Result<(), JournalError> {
        let snapshots = take_snapshots(tid, blocks);
        let dev = self.cache.device();
        let pieces = snapshots.iter().map(|s| (s.block.pblk(), &*s.data));
        write_blocks(&**dev, self.cache.block_size(), pieces)
            .map_err(JournalError::io("writing metadata blocks"))?;
        count(&self.counters.blocks_checkpointed, snapshots.len() as u64);
        self.note_flushing();
        self.flush()
    }

    /// Records that this commit's flush of the device begins: it may not cover later writes.
    pub(crate) fn note_flushing(&self) {
        if let Some(committing) = &mut self.state.lock().committing {
            debug_assert!(!committing.flushing, "a commit has one last flush");
            committing.flushing = true;
        }
    }
}
