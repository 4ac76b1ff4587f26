//! Fast commits: what the running transaction has done, as a few blocks of operations instead of
//! copies of all blocks that it changed.
//!
//! # Responsibility
//! A fast commit makes durable what the handles of the running transaction have done so far, and
//! the transaction runs on. A crash then leaves the state at the end of the transaction before it,
//! and the fast commits on top; the file system applies these at the next mount. When the
//! transaction is committed as a whole, its fast commits count for nothing.
//!
//! The [`OperationSource`](crate::OperationSource) says what was done. A handle says for each
//! modification that the source knows of it ([`crate::Handle::telling`]). One modification for
//! which that was not said, or ordered data, and the transaction is committed as a whole: so what
//! no fast commit can tell is never left out.
//!
//! # Invariants
//! - A fast commit names the transaction that runs, and all before it are in the log: one thread
//!   commits at a time, and a transaction runs behind the one that was committed last.
//! - It tells what handles have done that have ended, and of none half: the running transaction is
//!   locked and its handles have ended while the source is asked. It is unlocked before anything is
//!   written.
//! - What was written to the device before, and all but one of the blocks, is durable before that
//!   one is, and that one is when the call returns, as with a commit record. It is the one without
//!   which a replay reads nothing: the head of the first fast commit, the last block of others. A
//!   checksum in the last block covers all.
//! - Once the whole transaction is in the log, the head of its fast commits goes, durably. Between
//!   these two writes e2fsck, and no other reader, would refuse the log.
//! - What the log has lies in one piece, as other readers wrap elsewhere: see `begin_anew`.
//! - The transactions before are at home, and the log has none of them: see `write_fast`. An empty
//!   log names its tail first, or a mount would not look at it.
//! - Blocks of the transaction go neither to the log nor home, and its callbacks do not run. What
//!   it freed is not reused before the whole of it is committed.
//!
//! # Concurrency
//! A call that finds a committer waits for it. It is served by a fast commit whose snapshot began
//! after the call did (`State::fast_begun`, `State::fast_done`): its own handles had ended by then.

use std::sync::Arc;

use extant_disk::jbd2::fast_commit::FastCommitWriter;
use extant_failpoint::Failpoint;
use extant_sync::MutexGuard;
use extant_units::Tid;

use crate::error::{JournalError, ensure};
use crate::log::Log;
use crate::shared::{Shared, count};
use crate::state::State;
use crate::transaction::Transaction;

/// The blocks of a fast commit.
#[derive(Default)]
struct FastBlocks {
    /// The first one's place in the journal.
    at: u32,
    bytes: Vec<u8>,
    /// It is the first of its transaction, and says so.
    has_head: bool,
}

/// The way in which a commit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitEnd {
    /// The transaction is in the log.
    Whole,
    /// A fast commit was written.
    Fast,
    /// There was nothing that a fast commit would tell, and nothing was flushed.
    Nothing,
}

impl Shared {
    /// Returns whether fast commits are written.
    #[inline]
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast
    }

    /// Returns whether a fast commit can tell what the running transaction has done so far, and no
    /// commit of the whole was requested. The caller is about to lock it.
    pub(crate) fn begin_fast(&self, state: &mut State) -> bool {
        let Some(running) = state.running.as_mut().filter(|_| self.fast) else {
            return false;
        };
        running.runs_on = !running.commit_requested && self.is_told(&running.transaction);
        running.runs_on
    }

    /// Takes away the head of the fast commits of `tid`, which is in the log.
    pub(crate) fn end_fast_commits_of(&self, tid: Tid) -> Result<(), JournalError> {
        match &self.log {
            Some(log) if log.fast_area.lock().has_blocks_of(tid) => log.clear_fast_head(),
            _ => Ok(()),
        }
    }

    fn is_told(&self, transaction: &Transaction) -> bool {
        if transaction.is_untold() && !self.config.failpoint.is(Failpoint::UntoldIgnored) {
            count(&self.counters.fast_untold, 1);
            return false;
        }
        true
    }

    /// Writes a fast commit of the running transaction, which is locked and has no open handle, and
    /// lets it run on. `None` if the whole must be committed: it is still locked then.
    pub(crate) fn commit_fast(
        &self,
        state: &mut MutexGuard<'_, State>,
    ) -> Result<Option<CommitEnd>, JournalError> {
        let (Some(log), Some(running)) = (&self.log, &state.running) else {
            return Ok(None);
        };
        let transaction = Arc::clone(&running.transaction);
        let tid = transaction.tid;
        if running.commit_requested || !transaction.is_dirty() || !self.is_told(&transaction) {
            return Ok(None);
        }
        state.fast_begun += 1;
        let number = state.fast_begun;
        let told = MutexGuard::unlocked(state, || self.tell(log, tid));
        let Some(FastBlocks {
            at,
            bytes,
            has_head,
        }) = told
        else {
            // What the source has given out is lost to later fast commits.
            transaction.set_untold();
            return Ok(None);
        };
        if let Some(running) = &mut state.running {
            (running.locked, running.runs_on) = (false, false);
        }
        self.running_changed.notify_all();
        if bytes.is_empty() {
            return Ok(Some(CommitEnd::Nothing));
        }
        let blocks = FastBlocks {
            at,
            bytes,
            has_head,
        };
        MutexGuard::unlocked(state, || self.write_fast(log, tid, &blocks))?;
        state.fast_done = number;
        Ok(Some(CommitEnd::Fast))
    }

    /// The place and the blocks of a fast commit: none, if there is nothing to tell. `None` if the
    /// whole transaction must be committed.
    fn tell(&self, log: &Log, tid: Tid) -> Option<FastBlocks> {
        let source = self.config.operations.as_ref()?;
        let first = log.fast_area.lock().is_first_of(tid);
        let named = match self.config.failpoint.is(Failpoint::FastCommitOfPast) {
            true => tid.get().wrapping_sub(1),
            false => tid.get(),
        };
        let mut fast = FastCommitWriter::new(self.cache.block_size(), named, first);
        if !source.tell(tid, &mut fast) {
            count(&self.counters.fast_untold, 1);
            return None;
        }
        if fast.is_empty() {
            return Some(FastBlocks::default());
        }
        let mut area = log.fast_area.lock();
        let mut taken = area.take(tid, fast.blocks());
        if taken.is_none() && self.config.failpoint.is(Failpoint::FastAreaWraps) {
            area.rewind();
            taken = area.take(tid, fast.blocks());
        }
        if taken.is_none() {
            count(&self.counters.fast_no_room, 1);
        }
        taken.map(|at| FastBlocks {
            at,
            bytes: fast.finish(),
            has_head: first,
        })
    }

    fn write_fast(&self, log: &Log, tid: Tid, blocks: &FastBlocks) -> Result<(), JournalError> {
        // e2fsck 1.47 applies fast commits to inodes as they were before it replayed the
        // transactions of the same log, and so loses what those did: none are in front of these.
        self.checkpoint_for(log.ring.len().into())?;
        let (head, next, free) = {
            let index = log.index.lock();
            (index.head(), index.next(), index.free())
        };
        let follows = next == tid;
        ensure(
            follows,
            "a fast commit does not follow the log's last transaction",
        )?;
        self.check_alive()?;
        log.name_first_tail(head, tid)?;
        if log.external && !self.config.failpoint.is(Failpoint::CommitBeforeVolumeFlush) {
            // The preflush of the last block covers data only on the log's device.
            self.flush()?;
        }
        self.check_alive()?;
        if blocks.has_head && free > 0 {
            // A log that mkfs has left as it was may have another volume's transaction of this
            // number there, which a replay would take for a damaged one.
            let nothing = vec![0; self.cache.block_size().bytes()];
            log.write(head, std::iter::once(&nothing[..]))?;
        }
        log.write_fast(blocks.at, &blocks.bytes, blocks.has_head)?;
        let c = &self.counters;
        count(&c.fast_commits, 1);
        count(
            &c.fast_blocks,
            (blocks.bytes.len() / self.cache.block_size().bytes()) as u64,
        );
        Ok(())
    }
}
