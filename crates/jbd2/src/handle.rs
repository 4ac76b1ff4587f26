//! Handles: the parts of a transaction.
//!
//! A handle is one file system operation (or one restartable step of it). It declares how many metadata
//! blocks it may modify (credits) before it touches the first, so that the transaction it joins always fits
//! the log. A block costs a credit when it first joins the *transaction*; modifying it again, by whatever
//! handle, is free and takes no lock but the block's own.
//!
//! # Locks
//! Starting may wait for a commit and for a checkpoint: hold nothing that either needs. Everything else
//! takes a block's lock, inside it the transaction's parts or the log's index, and never waits for I/O,
//! except that [`Handle::create`] may wait for a read of the same block that is under way.
//!
//! # Faults
//! A handle that uses more than it declared is a bug: it asserts in builds with debug assertions. In release
//! the use is counted ([`crate::JournalStats::credit_overflows`]) and tolerated, as the log keeps slack. A handle that is
//! dropped by a panic may leave its changes half done, so it stops the journal.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extant_failpoint::Failpoint;
use extant_lock_order::{Held, Rank, taking};
use extant_units::{Pblk, Tid};

use crate::block::{Block, BlockState, CheckKey, zeroed};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::ordered::OrderedData;
use crate::running::{Grant, Usage};
use crate::transaction::Transaction;

/// A part of the running transaction. Dropping it ends the part. See the module's header.
pub struct Handle {
    journal: Arc<Journal>,
    transaction: Arc<Transaction>,
    grant: Grant,
    used: Usage,
    /// False after a restart that failed: nothing more can be done under this handle.
    joined: bool,
    sync: bool,
    #[allow(dead_code, reason = "held")]
    held: Held,
    /// A handle stays on the thread that started it: waiting for a commit while holding one would hang.
    _not_send: PhantomData<*const ()>,
}

impl Handle {
    pub(crate) fn new(
        journal: Arc<Journal>,
        credits: u32,
        revokes: u32,
    ) -> Result<Self, JournalError> {
        journal.core().assert_no_handle_here();
        let held = taking(Rank::FolioOrHandle);
        journal.core().commit_before_start()?;
        let grant = Grant { credits, revokes };
        let transaction = journal.core().join(grant)?;
        journal.core().note_handle_here(true);
        Ok(Self {
            transaction,
            journal,
            grant,
            used: Usage::default(),
            joined: true,
            sync: false,
            held,
            _not_send: PhantomData,
        })
    }

    /// The transaction this handle belongs to. Changes at a restart.
    #[inline]
    pub fn tid(&self) -> Tid {
        self.transaction.tid
    }

    /// Credits that are left.
    pub fn credits_left(&self) -> u32 {
        self.grant.credits.saturating_sub(self.used.credits)
    }

    /// Modifies `b` under this handle: the first time the block joins the transaction, which costs a credit.
    /// `f` runs under the block's lock, on bytes that no reader's snapshot shares; it must not touch the
    /// journal or the cache.
    ///
    /// # Errors
    /// The journal was aborted; `f` did not run.
    #[inline]
    pub fn modify<R>(
        &mut self,
        b: &Block,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, JournalError> {
        self.check()?;
        let mut state = b.lock();
        self.attach(b, &mut state);
        let (bytes, copied) = state.data_mut();
        let result = f(bytes);
        drop(state);
        if copied {
            let counters = &self.journal.core().counters;
            counters.cow_copies.fetch_add(1, Ordering::Relaxed);
        }
        Ok(result)
    }

    /// A new metadata block at `p`: zeroed, attached, nothing is read, known as checked under `key`. If the
    /// block was freed earlier in this transaction, that is undone and its revoke cancelled. Costs a credit.
    ///
    /// # Errors
    /// The block lies past the device, or the journal was aborted.
    pub fn create(&mut self, p: Pblk, key: CheckKey) -> Result<Block, JournalError> {
        self.check()?;
        let core = self.journal.core();
        let block = core.cache.find_or_insert(p)?;
        let bytes = zeroed(core.cache.block_size().bytes());
        let mut state = block.lock();
        self.attach(&block, &mut state);
        block.fill(&mut state, bytes, key);
        drop(state);
        Ok(block)
    }

    /// The metadata block `p` was freed. It leaves this transaction; if an older transaction's copy of it is
    /// in the log (or about to be) a revoke record keeps replay from bringing it back; once this transaction
    /// has committed nothing writes the block home any more. The bytes in the cache are void.
    ///
    /// The block may be used again, for data or metadata, when this transaction is durable (see
    /// [`Handle::on_commit`]), or within this transaction through [`Handle::create`].
    ///
    /// # Errors
    /// The block lies past the device, or the journal was aborted.
    pub fn forget(&mut self, p: Pblk) -> Result<(), JournalError> {
        self.check()?;
        let core = self.journal.core();
        let block = core.cache.find_or_insert(p)?;
        let mut state = block.lock();
        let committing = block.release(&mut state, self.transaction.tid);
        if core.has_log() {
            let mut parts = self.transaction.parts();
            parts.forgotten.insert(p.get());
            let replayable = committing || core.is_in_log(p);
            let revoked = replayable && !core.config.failpoint.is(Failpoint::RevokeLeftOut);
            if revoked && parts.revokes.insert(p.get()) {
                self.used.revokes = self.used.revokes.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Asks for `credits` more. False if the transaction cannot grow by that, or is about to commit: the
    /// caller brings its metadata into a consistent state and restarts.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn extend(&mut self, credits: u32) -> Result<bool, JournalError> {
        self.check()?;
        let granted = self.journal.core().extend(credits, &self.transaction)?;
        if granted {
            self.grant.credits = self.grant.credits.saturating_add(credits);
        }
        Ok(granted)
    }

    /// Makes sure that at least `credits` are left, asking for what is missing. False as in [`Handle::extend`].
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn ensure(&mut self, credits: u32) -> Result<bool, JournalError> {
        match credits.saturating_sub(self.credits_left()) {
            0 => Ok(true),
            missing => self.extend(missing),
        }
    }

    /// Ends this part, asks for its commit, and joins a transaction afresh with `credits` and as many revokes
    /// as at the start. A crash in between shows what was done so far: the metadata must be consistent here,
    /// and what is left to do recorded (an orphan) or repeatable.
    ///
    /// # Errors
    /// See [`Journal::start`]. After an error nothing more can be done under this handle.
    pub fn restart(&mut self, credits: u32) -> Result<(), JournalError> {
        self.check()?;
        self.leave();
        let core = self.journal.core();
        core.request_commit(self.transaction.tid);
        core.commit_before_start()?;
        self.grant.credits = credits;
        self.transaction = core.join(self.grant)?;
        core.note_handle_here(true);
        self.joined = true;
        Ok(())
    }

    /// Runs `f` once, on the commit thread, when this transaction is durable; never if the journal aborts
    /// first. It must not start a handle nor wait for a commit, and whoever holds a lock that it takes must
    /// not do so either.
    pub fn on_commit(&mut self, f: Box<dyn FnOnce() + Send>) {
        if self.joined {
            self.transaction.parts().callbacks.push(f);
        }
    }

    /// Has `data` settled before this transaction commits; see [`OrderedData`]. What is registered already is not registered again.
    pub fn order(&mut self, data: &Arc<dyn OrderedData>) {
        if self.joined {
            let mut parts = self.transaction.parts();
            if !parts.ordered.iter().any(|known| Arc::ptr_eq(known, data)) {
                parts.ordered.push(Arc::clone(data));
            }
        }
    }

    /// Asks for a commit as soon as this handle ends. The caller waits with [`Journal::commit`] after the drop.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }

    /// The journal this handle belongs to.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    #[inline]
    fn attach(&mut self, block: &Block, state: &mut BlockState) {
        if !state.is_attached_to(self.transaction.tid) {
            state.attach(self.transaction.tid);
            self.transaction.parts().attach(block);
            self.spend();
        }
    }

    fn spend(&mut self) {
        self.used.credits = self.used.credits.saturating_add(1);
        if self.used.credits > self.grant.credits {
            let core = self.journal.core();
            core.counters
                .credit_overflows
                .fetch_add(1, Ordering::Relaxed);
            debug_assert!(
                core.config.tolerate_overflow,
                "a handle of {} credits uses {}",
                self.grant.credits, self.used.credits
            );
        }
    }

    #[inline]
    fn check(&self) -> Result<(), JournalError> {
        self.journal.core().check_alive()?;
        if self.joined {
            Ok(())
        } else {
            Err(JournalError::Closed)
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.joined) {
            let core = self.journal.core();
            core.note_handle_here(false);
            core.leave(
                &self.transaction,
                self.grant,
                std::mem::take(&mut self.used),
            );
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.journal
                .abort("a panic unwound through a handle; its changes may be half done");
        }
        self.leave();
        if self.sync {
            self.journal.request_commit(self.transaction.tid);
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("tid", &self.transaction.tid)
            .field("grant", &self.grant)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
