//! The running transaction: joining, extending, leaving.
//!
//! # Invariants
//! - RUNNING: handles start and end. LOCKED: a commit has ended this; open handles finish, new ones
//!   wait. Then the transaction becomes the committing one (`commit.rs`), and the next
//!   start makes a new running one. A fast commit locks it as well, and lets it run on as soon as
//!   the source of operations has looked at it (`fast_commit.rs`). As blocks are copied on write,
//!   LOCKED is the only state that a modification waits for.
//! - A running transaction is made only while the log has room for one of the largest size besides
//!   the committing one. From then on its commit cannot lack room, because only commits take any.
//!
//! # Locks
//! `Shared::state` protects all of this. Only the log's index, a leaf, is taken inside it. A
//! checkpoint that makes room runs without it.

use std::sync::Arc;

use extant_sync::MutexGuard;

use crate::error::JournalError;
use crate::shared::{Shared, count};
use crate::state::{Grant, State, Usage};
use crate::transaction::Transaction;

impl Shared {
    /// Joins the running transaction, making one if there is none. Waits while it is locked or
    /// full, and for room in the log.
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
                    self.running_changed.wait(&mut state);
                } else {
                    self.make_running(&mut state)?;
                }
                continue;
            };
            if !running.locked && running.fits(grant, &self.sizes) {
                running.add_handle(grant);
                count(&self.counters.handles, 1);
                return Ok(Arc::clone(&running.transaction));
            }
            if !running.runs_on {
                self.request_running(&mut state);
            }
            self.running_changed.wait(&mut state);
        }
    }

    /// Requests the commit of the running transaction.
    pub(crate) fn request_running(&self, state: &mut MutexGuard<'_, State>) {
        if let Some(running) = &mut state.running
            && !running.commit_requested
        {
            running.commit_requested = true;
            self.commit_work.notify_one();
        }
    }

    /// Makes a running transaction if the log has room for one of the largest size. Otherwise runs
    /// a checkpoint, with `state` unlocked; the caller then looks at the state again.
    fn make_running(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        let committing = state.committing.as_ref().map_or(0, |c| c.log_blocks);
        let needed = u64::from(self.sizes.max_log_blocks()) + committing;
        if self.log_has_room(needed) {
            state.start_transaction();
            // The commit thread begins to watch the age of the new transaction.
            if !state.watches_age {
                self.commit_work.notify_one();
            }
            return Ok(());
        }
        count(&self.counters.space_waits, 1);
        let progress = MutexGuard::unlocked(state, || self.checkpoint_for(needed))?;
        if !progress && state.committing.is_some() {
            self.commit_done.wait(state);
        }
        Ok(())
    }

    /// Ends a handle of the running transaction.
    pub(crate) fn leave(&self, transaction: &Arc<Transaction>, grant: Grant, used: Usage) {
        let grant = self.capped(grant);
        let mut state = self.state.lock();
        let running = state.running.as_mut();
        let Some(running) = running.filter(|r| Arc::ptr_eq(&r.transaction, transaction)) else {
            drop(state);
            // Its modifications may be missing from the commit that has begun.
            self.abort("internal error: a transaction ended before its last handle");
            return;
        };
        if running.remove_handle(grant, used) {
            self.handles_ended.notify_one();
        }
    }

    /// Grants `credits` more to a handle of `transaction` if they fit and no commit waits.
    pub(crate) fn extend(
        &self,
        credits: u32,
        transaction: &Arc<Transaction>,
    ) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        self.check_alive()?;
        let Some(running) = &mut state.running else {
            return Ok(false);
        };
        debug_assert!(
            Arc::ptr_eq(&running.transaction, transaction),
            "the transaction of an open handle runs"
        );
        // Revoke records count when they are made, also those that no handle declared. More than a
        // u32 counts fit no log.
        let revokes = u32::try_from(transaction.revoke_count()).unwrap_or(u32::MAX);
        let needed = Grant {
            credits,
            revokes: running.undeclared(revokes),
        };
        let granted = !running.locked && running.fits(needed, &self.sizes);
        if granted {
            running.extend(Grant {
                credits,
                revokes: 0,
            });
        }
        Ok(granted)
    }

    /// `grant` with at most as many revoke records as fit beside the largest handle.
    fn capped(&self, grant: Grant) -> Grant {
        Grant {
            revokes: grant.revokes.min(self.sizes.max_revokes()),
            ..grant
        }
    }
}
