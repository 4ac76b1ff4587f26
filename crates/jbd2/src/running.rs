//! The running transaction: joining, leaving, growing, locking.
//!
//! # States
//! RUNNING: handles join and leave. LOCKED: the commit thread has asked for the end; open handles finish,
//! new ones wait. Then the transaction becomes the committing one (see `commit.rs`), and the next start makes
//! a new running one. With copy-on-write blocks LOCKED is all that a modifier ever waits for.
//!
//! # Sizes
//! `settled` counts what ended handles used, `reserved` what open ones may use. Both together never pass
//! [`Sizes::fits`], except by credits used beyond what was declared. A running transaction is made only when
//! the log has room for one of the largest size besides the committing one; from then on its commit cannot
//! lack room, because nothing else takes any.
//!
//! # Locks
//! `Core::state` guards all of this, for a few instructions at a time. Nothing is taken inside it but the
//! log's index (which is a leaf). Checkpoints for room run without it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use extant_units::Tid;
use parking_lot::MutexGuard;

use crate::error::JournalError;
use crate::journal::Core;
use crate::sizes::Sizes;
use crate::transaction::Transaction;

/// What a handle may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) credits: u32,
    pub(crate) revokes: u32,
}

/// What a handle has used.
pub(crate) type Usage = Grant;

impl Grant {
    fn plus(self, other: Self) -> Self {
        Self {
            credits: self.credits.saturating_add(other.credits),
            revokes: self.revokes.saturating_add(other.revokes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            credits: self.credits.saturating_sub(other.credits),
            revokes: self.revokes.saturating_sub(other.revokes),
        }
    }
}

/// The transactions and what is wanted of them.
pub(crate) struct State {
    pub(crate) running: Option<Running>,
    pub(crate) committing: Option<Committing>,
    /// The id of the next running transaction.
    pub(crate) next_tid: Tid,
    /// Callers that want no new transaction for now.
    pub(crate) barriers: u32,
    /// Set once: no handle starts any more.
    pub(crate) closed: bool,
    /// Set once: the commit thread ends.
    pub(crate) stopping: bool,
}

/// The running transaction.
pub(crate) struct Running {
    pub(crate) transaction: Arc<Transaction>,
    pub(crate) handles: u32,
    reserved: Grant,
    settled: Usage,
    pub(crate) since: Instant,
    pub(crate) locked: bool,
    /// A commit was asked for.
    pub(crate) wanted: bool,
    /// It ends empty, and the flush that stands in for its commit has begun.
    pub(crate) flushing: bool,
}

/// The committing transaction.
pub(crate) struct Committing {
    pub(crate) tid: Tid,
    /// Log blocks it takes at most.
    pub(crate) log_blocks: u32,
    /// Whether its last flush of the device has begun: later writes are not covered by it.
    pub(crate) flushing: bool,
}

impl Running {
    fn fits(&self, more: Grant, sizes: &Sizes) -> bool {
        let all = self.settled.plus(self.reserved).plus(more);
        sizes.fits(all.credits, all.revokes)
    }

    /// Log blocks that the transaction takes at most, once its handles have ended.
    pub(crate) fn log_blocks(&self, sizes: &Sizes) -> u32 {
        sizes.log_blocks(self.settled.credits, self.settled.revokes)
    }
}

impl Core {
    /// Joins the running transaction, making one if there is none. Waits while it is locked or full, and for
    /// room in the log.
    pub(crate) fn join(&self, grant: Grant) -> Result<Arc<Transaction>, JournalError> {
        if grant.credits > self.sizes.max_credits() {
            return Err(JournalError::TooManyCredits {
                asked: grant.credits,
                max: self.sizes.max_credits(),
            });
        }
        let grant = self.capped(grant);
        let mut state = self.state.lock();
        loop {
            self.check_alive()?;
            if state.closed {
                return Err(JournalError::Closed);
            }
            let Some(running) = &mut state.running else {
                if state.barriers > 0 {
                    self.changed.wait(&mut state);
                } else {
                    self.make_running(&mut state)?;
                }
                continue;
            };
            if !running.locked && running.fits(grant, &self.sizes) {
                running.handles += 1;
                running.reserved = running.reserved.plus(grant);
                self.counters.handles.fetch_add(1, Ordering::Relaxed);
                return Ok(Arc::clone(&running.transaction));
            }
            if !running.wanted {
                running.wanted = true;
                self.work.notify_one();
            }
            self.changed.wait(&mut state);
        }
    }

    /// Makes a running transaction if the log has room for one of the largest size; else lets a checkpoint
    /// make room, without the state's lock: the caller looks again.
    fn make_running(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        let taken = state.committing.as_ref().map_or(0, |c| c.log_blocks);
        let wanted = self.sizes.max_log_blocks().saturating_add(taken);
        if self.log_has_room(wanted) {
            state.running = Some(Running {
                transaction: Arc::new(Transaction::new(state.next_tid)),
                handles: 0,
                reserved: Grant::default(),
                settled: Usage::default(),
                since: Instant::now(),
                locked: false,
                wanted: false,
                flushing: false,
            });
            state.next_tid = state.next_tid.next();
            // The commit thread counts the new transaction's age.
            self.work.notify_one();
            return Ok(());
        }
        self.counters.space_waits.fetch_add(1, Ordering::Relaxed);
        let progress = MutexGuard::unlocked(state, || self.checkpoint_for(wanted))?;
        if !progress && state.committing.is_some() {
            self.done.wait(state);
        }
        Ok(())
    }

    /// Ends a handle.
    pub(crate) fn leave(&self, transaction: &Arc<Transaction>, grant: Grant, used: Usage) {
        let grant = self.capped(grant);
        let mut state = self.state.lock();
        let Some(running) = &mut state.running else {
            return;
        };
        debug_assert!(Arc::ptr_eq(&running.transaction, transaction));
        running.handles = running.handles.saturating_sub(1);
        running.reserved = running.reserved.minus(grant);
        running.settled = running.settled.plus(used);
        if running.locked && running.handles == 0 {
            self.drained.notify_one();
        }
    }

    /// Grants `credits` more to a handle of `transaction` if that fits and no commit is waiting.
    pub(crate) fn extend(
        &self,
        credits: u32,
        transaction: &Arc<Transaction>,
    ) -> Result<bool, JournalError> {
        let more = Grant {
            credits,
            revokes: 0,
        };
        let mut state = self.state.lock();
        self.check_alive()?;
        let Some(running) = &mut state.running else {
            return Ok(false);
        };
        debug_assert!(Arc::ptr_eq(&running.transaction, transaction));
        // Revokes are counted as they are made, beyond what handles declared.
        let actual = Grant {
            credits: 0,
            revokes: u32::try_from(transaction.revoke_count()).unwrap_or(u32::MAX),
        };
        let unseen = actual.minus(running.settled.plus(running.reserved));
        let granted = !running.locked
            && running.fits(
                more.plus(Grant {
                    credits: 0,
                    revokes: unseen.revokes,
                }),
                &self.sizes,
            );
        if granted {
            running.reserved = running.reserved.plus(more);
        }
        Ok(granted)
    }

    fn capped(&self, grant: Grant) -> Grant {
        Grant {
            revokes: grant.revokes.min(self.sizes.max_revokes()),
            ..grant
        }
    }
}
