//! The transactions of a journal that are not in the log yet: the running and the committing one.
//!
//! # Invariants
//! - J22: `used` counts what ended handles used, `granted` what open ones may use. Both together
//!   never pass [`Sizes::fits`], except by credits used beyond what was declared.
//! - At most one transaction runs and at most one commits. Their ids follow each other.
//!
//! # Locks
//! All of this is under the mutex `Shared::state`, held for a few instructions at a time.

use extant_sync::time::Instant;
use std::sync::Arc;

use extant_units::Tid;

use crate::sizes::Sizes;
use crate::transaction::Transaction;

/// The credits and revoke records that a handle may use, or has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) credits: u32,
    pub(crate) revokes: u32,
}

/// Credits that a handle has used.
pub(crate) type Usage = Grant;

impl Grant {
    /// The sum. It stops at the largest number, which fits no log.
    fn plus(self, other: Self) -> Self {
        Self {
            credits: self.credits.saturating_add(other.credits),
            revokes: self.revokes.saturating_add(other.revokes),
        }
    }

    /// The rest of `self` once `other`, a part of it, is taken back.
    fn without(self, other: Self) -> Self {
        debug_assert!(
            self.credits >= other.credits && self.revokes >= other.revokes,
            "J22: {other:?} was granted as a part of {self:?}"
        );
        Self {
            // In release builds a wrong account makes transactions smaller or larger than they may
            // be. The commit checks the size again before it writes.
            credits: self.credits.saturating_sub(other.credits),
            revokes: self.revokes.saturating_sub(other.revokes),
        }
    }
}

/// The transactions, and what callers ask of them. On cache lines of its own, as each handle writes
/// it and each change of a block reads what stands beside it.
#[repr(align(128))]
pub(crate) struct State {
    pub(crate) running: Option<Running>,
    pub(crate) committing: Option<Committing>,
    /// The id of the next running transaction.
    pub(crate) next_tid: Tid,
    /// Callers that keep a new transaction from starting for now (`j_barrier_count` in Linux).
    pub(crate) barriers: u32,
    /// Set once: no handle starts any more.
    pub(crate) closed: bool,
    /// Set once: the commit thread ends.
    pub(crate) stopping: bool,
    /// A thread has begun to commit, and has not ended: the commit thread, or one that waits for
    /// the commit. No other one locks the running transaction.
    pub(crate) has_committer: bool,
    /// The commit thread waits for the age of a transaction: of the running one, or of an earlier
    /// one, which comes first. It looks at the running one then.
    pub(crate) watches_age: bool,
    /// Fast commits whose snapshot was begun, and the last of them that is durable.
    pub(crate) fast_begun: u64,
    pub(crate) fast_done: u64,
}

/// The running transaction.
pub(crate) struct Running {
    pub(crate) transaction: Arc<Transaction>,
    /// Handles that are open.
    pub(crate) handles: u32,
    granted: Grant,
    used: Usage,
    pub(crate) since: Instant,
    pub(crate) locked: bool,
    /// It is locked for a fast commit, so that it may run on.
    pub(crate) runs_on: bool,
    /// A commit was requested.
    pub(crate) commit_requested: bool,
    /// The transaction ends empty, and the flush that replaces its commit has begun.
    pub(crate) flushing: bool,
}

/// The committing transaction.
pub(crate) struct Committing {
    pub(crate) tid: Tid,
    /// Log blocks that it takes at most.
    pub(crate) log_blocks: u64,
    /// Its last flush of the device has begun. Later writes are not covered by it.
    pub(crate) flushing: bool,
}

impl State {
    pub(crate) fn new(next_tid: Tid) -> Self {
        Self {
            running: None,
            committing: None,
            next_tid,
            barriers: 0,
            closed: false,
            stopping: false,
            has_committer: false,
            watches_age: false,
            fast_begun: 0,
            fast_done: 0,
        }
    }

    /// Starts a running transaction.
    pub(crate) fn start_transaction(&mut self) {
        let tid = self.next_tid;
        debug_assert!(self.running.is_none(), "one transaction runs at a time");
        debug_assert!(
            self.committing.as_ref().is_none_or(|c| c.tid.next() == tid),
            "transaction {tid} follows the one that commits"
        );
        self.running = Some(Running {
            transaction: Arc::new(Transaction::new(tid)),
            handles: 0,
            granted: Grant::default(),
            used: Usage::default(),
            since: Instant::now(),
            locked: false,
            runs_on: false,
            commit_requested: false,
            flushing: false,
        });
        self.next_tid = tid.next();
    }

    /// The id of the running transaction.
    pub(crate) fn running_tid(&self) -> Option<Tid> {
        self.running.as_ref().map(|r| r.transaction.tid)
    }

    /// Returns whether `tid` runs or commits.
    pub(crate) fn is_live(&self, tid: Tid) -> bool {
        let commits = self.committing.as_ref().is_some_and(|c| c.tid == tid);
        commits || self.running_tid() == Some(tid)
    }

    /// Returns whether `tid` runs or commits and its flush of the device has not begun yet.
    pub(crate) fn will_flush(&self, tid: Tid) -> bool {
        let running = self.running.as_ref();
        let committing = self.committing.as_ref();
        running.is_some_and(|r| r.transaction.tid == tid && !r.flushing)
            || committing.is_some_and(|c| c.tid == tid && !c.flushing)
    }

    /// Returns whether a commit is under way or requested.
    pub(crate) fn is_busy(&self) -> bool {
        let requested = self.running.as_ref().is_some_and(|r| r.commit_requested);
        self.committing.is_some() || requested
    }
}

impl Running {
    /// Returns whether a handle with the grant `more` fits this transaction.
    pub(crate) fn fits(&self, more: Grant, sizes: &Sizes) -> bool {
        let all = self.used.plus(self.granted).plus(more);
        sizes.fits(all.credits, all.revokes)
    }

    /// Opens a handle.
    pub(crate) fn add_handle(&mut self, grant: Grant) {
        debug_assert!(!self.locked, "no handle starts in a locked transaction");
        self.handles += 1;
        self.granted = self.granted.plus(grant);
    }

    /// Grants `more` to an open handle.
    pub(crate) fn extend(&mut self, more: Grant) {
        debug_assert!(self.handles > 0, "an open handle is extended");
        self.granted = self.granted.plus(more);
    }

    /// Ends a handle. Returns whether it was the last one of a locked transaction.
    pub(crate) fn remove_handle(&mut self, grant: Grant, used: Usage) -> bool {
        assert!(self.handles > 0, "a handle ends that was started");
        self.handles -= 1;
        self.granted = self.granted.without(grant);
        self.used = self.used.plus(used);
        self.locked && self.handles == 0
    }

    /// Revoke records among `revokes`, all of the transaction, that handles did not declare.
    pub(crate) fn undeclared(&self, revokes: u32) -> u32 {
        let declared = self.used.plus(self.granted).revokes;
        // Handles may declare more than they use: then there are none.
        revokes.saturating_sub(declared)
    }

    /// Log blocks that the transaction takes at most, once its handles have ended.
    pub(crate) fn log_blocks(&self, sizes: &Sizes) -> u64 {
        debug_assert_eq!(self.handles, 0, "the size is final once no handle is open");
        sizes.log_blocks(self.used.credits, self.used.revokes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Grant = Grant {
        credits: 1,
        revokes: 0,
    };

    fn running() -> State {
        let mut state = State::new(Tid::new(u32::MAX));
        state.start_transaction();
        state
    }

    #[test]
    fn the_last_handle_of_a_locked_transaction_is_noticed() {
        let mut state = running();
        assert_eq!(state.running_tid(), Some(Tid::new(u32::MAX)));
        assert_eq!(state.next_tid, Tid::new(0));
        let running = state.running.as_mut().unwrap();
        running.add_handle(ONE);
        assert!(!running.remove_handle(ONE, ONE), "the last one, not locked");
        running.add_handle(ONE);
        running.add_handle(ONE);
        running.locked = true;
        assert!(!running.remove_handle(ONE, ONE), "locked, not the last one");
        assert!(running.remove_handle(ONE, ONE));
        assert_eq!(running.log_blocks(&Sizes::for_log(1024, 10, 10)), 3 + 1 + 1);
    }

    /// An fsync relies on a flush that has not begun, and makes one of its own otherwise.
    #[test]
    fn a_commit_covers_what_was_written_before_its_flush() {
        let tid = Tid::new(u32::MAX);
        let mut state = running();
        assert!(state.will_flush(tid) && !state.will_flush(Tid::new(5)));
        state.running.as_mut().unwrap().flushing = true;
        assert!(!state.will_flush(tid));
        state.running = None;
        assert!(!state.will_flush(tid));
        for flushing in [false, true] {
            state.committing = Some(Committing {
                tid,
                log_blocks: 1,
                flushing,
            });
            assert_eq!(state.will_flush(tid), !flushing);
            assert!(!state.will_flush(Tid::new(5)));
        }
    }

    #[test]
    #[should_panic(expected = "a handle ends that was started")]
    fn a_handle_ends_once() {
        let mut state = running();
        state.running.as_mut().unwrap().remove_handle(ONE, ONE);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "J22")]
    fn a_handle_gives_back_what_it_was_granted() {
        let mut state = running();
        let running = state.running.as_mut().unwrap();
        running.add_handle(ONE);
        let two = Grant {
            credits: 2,
            ..Grant::default()
        };
        running.remove_handle(two, ONE);
    }

    #[test]
    fn a_journal_is_busy_from_the_request_of_a_commit_to_its_end() {
        let mut state = State::new(Tid::new(5));
        state.start_transaction();
        assert!(!state.is_busy());
        let running = state.running.as_mut().unwrap();
        running.commit_requested = true;
        assert!(state.is_busy());
        state.running = None;
        state.committing = Some(Committing {
            tid: Tid::new(5),
            log_blocks: 1,
            flushing: false,
        });
        assert!(state.is_busy());
        state.committing = None;
        assert!(!state.is_busy());
    }
}
