//! Committing: the commit thread, its waiters, and what one commit does.
//!
//! # States of a transaction
//! RUNNING and LOCKED are in `running.rs`. Then, here:
//! - SWITCH: it becomes the committing one; the next start may make a new running transaction at once.
//! - FLUSH: a snapshot of each of its blocks is taken. A block that the next transaction modifies before
//!   that has been set aside by the modifier (see `block.rs`), so nobody waits.
//! - COMMIT: revoke blocks, descriptors and copies are written to the log, in large contiguous writes.
//! - COMMIT_JFLUSH: the commit record is written with preflush and forced unit access. Once that has
//!   returned the transaction is durable, and everything written before it as well.
//! - COMMIT_CALLBACK: its blocks enter the list of what is to be written home; blocks that it freed leave
//!   that list, waiting for a write home that is under way; then the callbacks run, and blocks that were
//!   freed become reusable. The order matters: a freed block must not be written home over its next owner.
//! - FINISHED: waiters go on.
//!
//! Data that must be durable before the commit (data=ordered, see `ordered.rs`) is settled between SWITCH and FLUSH: the
//! preflush of the commit record covers it.
//!
//! # Crash order
//! Copies, then (flush) the record, then, at any later time, home, then (flush) the tail. A crash before the
//! record is durable leaves the log ending at the transaction before; a crash after it replays the whole
//! transaction. The log's space is not reused before the home blocks are durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use extant_failpoint::Failpoint;
use extant_units::Tid;
use parking_lot::MutexGuard;

use crate::block::Block;
use crate::blockio::write_blocks;
use crate::error::JournalError;
use crate::journal::Core;
use crate::ordered::OrderedData;
use crate::running::{Committing, Running, State};
use crate::transaction::Parts;

/// A block and the version of it that a transaction writes.
pub(crate) struct Snapshot {
    pub(crate) block: Block,
    pub(crate) data: Arc<[u8]>,
}

impl State {
    /// Whether `tid` runs or commits.
    pub(crate) fn is_live(&self, tid: Tid) -> bool {
        self.runs(tid) || self.commits(tid)
    }

    /// Whether `tid` runs or commits and its flush of the device has not begun yet.
    fn will_flush(&self, tid: Tid) -> bool {
        let running = self.running.as_ref();
        let committing = self.committing.as_ref();
        running.is_some_and(|r| r.transaction.tid == tid && !r.flushing)
            || committing.is_some_and(|c| c.tid == tid && !c.flushing)
    }

    fn runs(&self, tid: Tid) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.transaction.tid == tid)
    }

    fn commits(&self, tid: Tid) -> bool {
        self.committing
            .as_ref()
            .is_some_and(|committing| committing.tid == tid)
    }
}

impl Core {
    /// Asks for the commit of `tid` if it is the running transaction.
    pub(crate) fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if let Some(running) = &mut state.running
            && running.transaction.tid == tid
            && !running.wanted
        {
            running.wanted = true;
            self.work.notify_one();
        }
    }

    /// Waits until `tid` neither runs nor commits. Returns whether the device was flushed by that commit, at a
    /// time after this call began.
    pub(crate) fn wait_for(&self, tid: Tid) -> Result<bool, JournalError> {
        self.assert_no_handle_here();
        self.check_alive()?;
        let mut state = self.state.lock();
        let covered = state.will_flush(tid);
        if state.is_live(tid) {
            self.counters.commit_waits.fetch_add(1, Ordering::Relaxed);
        }
        while state.is_live(tid) {
            self.check_alive()?;
            if let Some(running) = &mut state.running
                && running.transaction.tid == tid
                && !running.wanted
            {
                running.wanted = true;
                self.work.notify_one();
            }
            self.done.wait(&mut state);
        }
        self.check_alive()?;
        Ok(covered)
    }

    /// With [`commit_each_handle`](crate::Config::commit_each_handle), commits what has been done
    /// so far. A start may wait for a commit at any time, so no lock is held here that a commit
    /// needs.
    pub(crate) fn commit_before_start(&self) -> Result<(), JournalError> {
        if !self.config.commit_each_handle {
            return Ok(());
        }
        let running = {
            let state = self.state.lock();
            let dirty = |running: &&Running| running.transaction.is_dirty();
            let running = state.running.as_ref().filter(dirty);
            running.map(|running| running.transaction.tid)
        };
        running.map_or(Ok(()), |tid| self.wait_for(tid).map(drop))
    }

    /// Waits until no commit is under way or asked for, or the journal has stopped.
    pub(crate) fn settle(&self) {
        self.assert_no_handle_here();
        let mut state = self.state.lock();
        let busy = |state: &State| {
            state.committing.is_some() || state.running.as_ref().is_some_and(|r| r.wanted)
        };
        while busy(&state) && self.check_alive().is_ok() {
            self.done.wait(&mut state);
        }
    }

    /// Runs `f` at a time when nothing runs or commits and nothing can start.
    pub(crate) fn quiesced(
        &self,
        f: impl FnOnce(&Self) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.barriers += 1;
        let idle = loop {
            if let Err(error) = self.check_alive() {
                break Err(error);
            }
            if let Some(running) = &mut state.running {
                running.wanted = true;
                self.work.notify_one();
            } else if state.committing.is_none() {
                break Ok(());
            }
            self.done.wait(&mut state);
        };
        drop(state);
        let result = idle.and_then(|()| f(self));
        self.state.lock().barriers -= 1;
        self.changed.notify_all();
        result
    }

    /// The body of the commit thread.
    pub(crate) fn commit_loop(&self) {
        loop {
            let mut state = self.state.lock();
            if !self.wait_for_work(&mut state) {
                return;
            }
            if let Err(error) = self.commit_running(state) {
                // An earlier abort is what failed it; otherwise this is the first fault.
                self.abort_with(error);
                return;
            }
        }
    }

    /// Waits until the running transaction is wanted or old enough. False when the thread is to end.
    fn wait_for_work(&self, state: &mut MutexGuard<'_, State>) -> bool {
        loop {
            if state.stopping || self.check_alive().is_err() {
                return false;
            }
            let Some(running) = &mut state.running else {
                self.work.wait(state);
                continue;
            };
            if running.wanted {
                return true;
            }
            let now = Instant::now();
            match running.since.checked_add(self.config.commit_interval) {
                Some(due) if due > now => {
                    self.work.wait_until(state, due);
                }
                Some(_) if running.transaction.is_dirty() => return true,
                Some(_) => running.since = now,
                None => self.work.wait(state),
            }
        }
    }

    /// Lets the commit thread end once it has nothing under way.
    pub(crate) fn stop_threads(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
        if let Some(log) = &self.log {
            log.stop();
        }
    }

    /// Locks the running transaction, waits for its handles and commits it.
    fn commit_running(&self, mut state: MutexGuard<'_, State>) -> Result<(), JournalError> {
        self.lock_running(&mut state)?;
        let Some(running) = state.running.take() else {
            return Ok(());
        };
        let tid = running.transaction.tid;
        if !running.transaction.is_dirty() {
            // Ids in the log have no gaps: the next transaction takes this one's.
            state.next_tid = tid;
            self.finished(state);
            return Ok(());
        }
        state.committing = Some(Committing {
            tid,
            log_blocks: running.log_blocks(&self.sizes),
            flushing: false,
        });
        self.changed.notify_all();
        drop(state);
        let mut parts = running.transaction.take_parts();
        self.settle_ordered(tid, std::mem::take(&mut parts.ordered));
        self.write_out(tid, &mut parts)?;
        for callback in parts.callbacks {
            callback();
        }
        let mut state = self.state.lock();
        state.committing = None;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.finished(state);
        Ok(())
    }

    /// Waits until the data that the transaction's blocks were allocated for is at home.
    fn settle_ordered(&self, tid: Tid, ordered: Vec<Arc<dyn OrderedData>>) {
        if self.config.failpoint.is(Failpoint::OrderedDataLeftOut) {
            return;
        }
        let settled = ordered.len() as u64;
        ordered.iter().for_each(|data| data.settle(tid));
        self.counters.ordered.fetch_add(settled, Ordering::Relaxed);
    }

    /// Lets nobody join any more and waits until the last handle has ended.
    fn lock_running(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        while let Some(running) = &mut state.running {
            running.locked = true;
            if running.handles == 0 {
                if !running.transaction.is_dirty() {
                    // Nothing will be committed, but who waits may count on the flush.
                    running.flushing = true;
                    MutexGuard::unlocked(state, || self.flush())?;
                }
                break;
            }
            self.check_alive()?;
            self.drained.wait(state);
        }
        self.check_alive()
    }

    fn finished(&self, state: MutexGuard<'_, State>) {
        drop(state);
        self.changed.notify_all();
        self.done.notify_all();
    }

    /// Makes the transaction durable: through the log, or at home.
    fn write_out(&self, tid: Tid, parts: &mut Parts) -> Result<(), JournalError> {
        match &self.log {
            Some(log) => self.commit_to_log(log, tid, parts),
            None => self.commit_home(tid, &parts.blocks),
        }
    }

    fn commit_home(&self, tid: Tid, blocks: &[Block]) -> Result<(), JournalError> {
        let snapshots = self.snapshots(tid, blocks);
        let dev = self.cache.device();
        let pieces = snapshots.iter().map(|s| (s.block.pblk(), &*s.data));
        write_blocks(&**dev, self.cache.block_size(), pieces)
            .map_err(JournalError::io("writing metadata blocks"))?;
        self.counters
            .blocks_checkpointed
            .fetch_add(snapshots.len() as u64, Ordering::Relaxed);
        self.note_flushing();
        self.flush()
    }

    /// The versions that `tid` has to write, in the order of their block numbers.
    pub(crate) fn snapshots(&self, tid: Tid, blocks: &[Block]) -> Vec<Snapshot> {
        let mut snapshots: Vec<Snapshot> = blocks
            .iter()
            .filter_map(|block| {
                let data = block.take_snapshot(tid)?;
                let block = block.clone();
                Some(Snapshot { block, data })
            })
            .collect();
        snapshots.sort_unstable_by_key(|snapshot| snapshot.block.pblk());
        snapshots
    }

    /// Notes that writes to the device from now on may miss this commit's flush.
    pub(crate) fn note_flushing(&self) {
        if let Some(committing) = &mut self.state.lock().committing {
            committing.flushing = true;
        }
    }
}
