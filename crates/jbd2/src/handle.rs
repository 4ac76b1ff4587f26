//! Handles: the parts of a transaction.
//!
//! A handle is one file system operation, or one restartable step of it. It declares how many
//! metadata blocks it may modify (credits) before it touches the first, so that the transaction it
//! joins always fits the log. A block costs a credit when it first joins the *transaction*.
//! Modifying it again, through any handle, is free and takes only the block's own lock.
//!
//! # Invariants
//! J22: a handle uses no more credits than it declared. One that does fails an assertion in builds
//! with debug assertions. In release builds the use is counted
//! ([`crate::JournalStats::credit_overflows`]) and tolerated, as the log keeps slack.
//!
//! # Locks
//! Starting a handle may wait for a commit and for a checkpoint: hold no lock that either needs.
//! Every other call takes a block's lock and, inside it, the transaction's parts or the log's
//! index, and does not wait for I/O. The exception is [`Handle::create`], which may wait for a read
//! of the same block that is under way.
//!
//! # Errors
//! A handle that a panic drops may leave its changes half done, so it stops the journal.

use std::marker::PhantomData;
use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_lock_order::{Held, Rank, taking};
use extant_units::{Pblk, Tid};

use crate::block::{Block, BlockGuard, CheckKey, zeroed};
use crate::error::JournalError;
use crate::journal::Journal;
use crate::ordered::OrderedData;
use crate::shared::count;
use crate::state::{Grant, Usage};
use crate::transaction::Transaction;

/// A part of the running transaction. Dropping the handle ends the part. See the module's header.
pub struct Handle {
    journal: Arc<Journal>,
    transaction: Arc<Transaction>,
    /// The transaction's, beside it: the words of the transaction are written by other threads.
    tid: Tid,
    grant: Grant,
    used: Usage,
    /// Changes so far.
    changes: u64,
    /// How many of them were made when the metadata was last known to be consistent.
    whole_at: u64,
    /// False after a restart that failed: the handle can do nothing more.
    joined: bool,
    sync: bool,
    /// A fast commit tells the changes that are made now, or there are none.
    told: bool,
    #[allow(dead_code, reason = "held")]
    held: Held,
    /// A handle stays on the thread that started it: waiting for a commit with one would hang.
    _not_send: PhantomData<*const ()>,
}

impl Journal {
    /// Joins the running transaction with room for `credits` metadata blocks. Waits while that
    /// transaction is locked for its commit, and while the log has no room. The caller holds no
    /// lock that comes after the handle in `docs/LOCKING.md`.
    ///
    /// # Errors
    /// More than [`Journal::max_credits`], or a journal that has stopped or was closed.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle, JournalError> {
        self.start_with_revokes(credits, 0)
    }

    /// [`Journal::start`] with room for `revokes` freed metadata blocks as well.
    ///
    /// # Errors
    /// See [`Journal::start`].
    pub fn start_with_revokes(
        self: &Arc<Self>,
        credits: u32,
        revokes: u32,
    ) -> Result<Handle, JournalError> {
        let shared = self.shared();
        shared.assert_no_handle_here();
        let held = taking(Rank::Handle);
        shared.commit_before_start()?;
        let credits = shared.with_spare(credits);
        let grant = Grant { credits, revokes };
        let transaction = shared.join(grant)?;
        shared.note_handle_started();
        Ok(Handle {
            tid: transaction.tid,
            transaction,
            journal: Arc::clone(self),
            grant,
            used: Usage::default(),
            changes: 0,
            whole_at: 0,
            joined: true,
            sync: false,
            told: !shared.has_fast_commits(),
            held,
            _not_send: PhantomData,
        })
    }
}

impl Handle {
    /// The transaction this handle belongs to. Changes at a restart.
    #[inline]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Number of changes that the handle has made.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns whether a change was made since [`Handle::changes`] was `before`, one that a failure
    /// now leaves without the rest. A restart starts anew: it comes where metadata is consistent.
    pub fn has_changed_since(&self, before: u64) -> bool {
        debug_assert!(before <= self.changes, "a count of this handle");
        self.changes > before.max(self.whole_at)
    }

    /// Credits that are left: zero for a handle that used more than it declared.
    pub fn credits_left(&self) -> u32 {
        self.grant.credits.saturating_sub(self.used.credits)
    }

    /// Modifies `b` under this handle. The first modification in a transaction attaches the block
    /// to it, which costs a credit. `f` runs under the block's lock, on bytes that no reader's
    /// snapshot shares; it must not call the journal or the cache.
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
        let _held = taking(Rank::BlockContent);
        let mut guard = b.lock();
        if let Err(error) = self.attach(b, &mut guard) {
            drop(guard);
            return Err(self.journal.shared().abort_with(error));
        }
        let (bytes, copied) = guard.data_mut();
        let result = f(bytes);
        drop(guard);
        self.note_change();
        if copied {
            count(&self.journal.shared().counters.cow_copies, 1);
        }
        Ok(result)
    }

    /// Makes a new metadata block at `p`: zeroed, attached, without a read, and checked under
    /// `key`. If the block was freed earlier in this transaction, its revoke is cancelled. Costs a
    /// credit.
    ///
    /// # Errors
    /// The block lies past the device, or the journal was aborted.
    pub fn create(&mut self, p: Pblk, key: CheckKey) -> Result<Block, JournalError> {
        self.check()?;
        let shared = self.journal.shared();
        let block = shared.cache.find_or_insert(p)?;
        let bytes = zeroed(shared.cache.block_size().bytes());
        let _held = taking(Rank::BlockContent);
        let mut guard = block.lock();
        if let Err(error) = self.attach(&block, &mut guard) {
            drop(guard);
            return Err(self.journal.shared().abort_with(error));
        }
        guard.fill(bytes, key);
        drop(guard);
        self.note_change();
        Ok(block)
    }

    /// Records that the metadata block `p` was freed.
    ///
    /// The block leaves this transaction. If a copy of an older transaction is in the log, or about
    /// to be, a revoke record keeps a replay from writing it (J28). Once this transaction has
    /// committed, no checkpoint writes the block any more. Its bytes leave the cache.
    ///
    /// The block may be used again, for data or metadata, when this transaction is durable (see
    /// [`Handle::on_commit`]), or within this transaction through [`Handle::create`].
    ///
    /// # Errors
    /// The block lies past the device, or the journal was aborted.
    pub fn forget(&mut self, p: Pblk) -> Result<(), JournalError> {
        self.check()?;
        self.note_change();
        let shared = self.journal.shared();
        let block = shared.cache.find_or_insert(p)?;
        let _held = taking(Rank::BlockContent);
        let mut guard = block.lock();
        let committing = guard.release(self.tid);
        if shared.has_log() {
            let is_new = self.transaction.add(|parts| {
                parts.forgotten.insert(p.get());
                let replayable = committing || shared.is_in_log(p);
                let revoked = replayable && !shared.config.failpoint.is(Failpoint::RevokeLeftOut);
                revoked && parts.revokes.insert(p.get())
            });
            drop(guard);
            let is_new = is_new.map_err(|error| shared.abort_with(error))?;
            self.used.revokes += u32::from(is_new);
        }
        Ok(())
    }

    /// Runs `change`, whose modifications a fast commit tells or a replay of it makes by itself:
    /// the source of operations ([`crate::OperationSource`]) knows of them. Any other modification
    /// means that the transaction is committed as a whole.
    #[inline]
    pub fn telling<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.told, true);
        let result = change(self);
        self.told = before;
        result
    }

    /// Returns whether a fast commit tells what is modified now ([`Handle::telling`]), or there are
    /// none.
    #[inline]
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Returns whether the journal writes fast commits, so that operations are to be recorded.
    #[inline]
    pub fn records_operations(&self) -> bool {
        self.journal.shared().has_fast_commits()
    }

    /// Notes that the transaction has a change which no fast commit can tell: it is committed as a
    /// whole.
    #[cold]
    pub fn set_untold(&mut self) {
        self.transaction.set_untold();
    }

    /// Counts a change.
    #[inline]
    fn note_change(&mut self) {
        self.changes += 1;
        if !self.told {
            self.set_untold();
        }
    }

    /// Asks for `credits` more. False if the transaction cannot grow by that many, or is about to
    /// commit: the caller then brings its metadata into a consistent state and restarts.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn extend(&mut self, credits: u32) -> Result<bool, JournalError> {
        self.check()?;
        let granted = self.journal.shared().extend(credits, &self.transaction)?;
        if granted {
            self.grant.credits += credits;
        }
        Ok(granted)
    }

    /// Makes sure that at least `credits` are left, beside those that each handle has, and asks for
    /// what is missing. False as in
    /// [`Handle::extend`].
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn ensure(&mut self, credits: u32) -> Result<bool, JournalError> {
        let credits = self.journal.shared().with_spare(credits);
        match credits.checked_sub(self.credits_left()) {
            None | Some(0) => Ok(true),
            Some(missing) => self.extend(missing),
        }
    }

    /// Ends this part, requests its commit, and joins a transaction afresh with `credits` and as
    /// many revokes as at the start. A crash in between leaves the work so far: the metadata must
    /// be consistent here, and the rest of the work recorded (an orphan) or repeatable (J30).
    ///
    /// # Errors
    /// See [`Journal::start`]. After an error the handle can do nothing more.
    pub fn restart(&mut self, credits: u32) -> Result<(), JournalError> {
        self.check()?;
        self.leave();
        self.whole_at = self.changes;
        let shared = self.journal.shared();
        shared.request_commit(self.tid);
        shared.commit_before_start()?;
        self.grant.credits = shared.with_spare(credits);
        self.transaction = shared.join(self.grant)?;
        self.tid = self.transaction.tid;
        shared.note_handle_started();
        self.joined = true;
        Ok(())
    }

    /// Has the thread that commits call `f` once, when this transaction is durable; never if the
    /// journal stops first. `f` must not start a handle or wait for a commit, and must not take a
    /// lock whose holders do.
    pub fn on_commit(&mut self, f: Box<dyn FnOnce() + Send>) {
        if self.joined {
            let added = self.transaction.add(|parts| parts.callbacks.push(f));
            self.stop_unless(added);
        }
    }

    /// Makes the commit of this transaction wait for `data`; see [`OrderedData`]. Registering the
    /// same data again changes nothing.
    pub fn order(&mut self, data: &Arc<dyn OrderedData>) {
        if self.joined {
            // Only a commit of the whole transaction waits for it.
            self.transaction.set_untold();
            let added = self.transaction.add(|parts| {
                if !parts.ordered.iter().any(|known| Arc::ptr_eq(known, data)) {
                    parts.ordered.push(Arc::clone(data));
                }
            });
            self.stop_unless(added);
        }
    }

    /// Stops the journal if something could not be added to the transaction.
    fn stop_unless(&self, added: Result<(), JournalError>) {
        if let Err(error) = added {
            self.journal.shared().abort_with(error);
        }
    }

    /// Requests a commit when this handle ends. The caller waits with [`Journal::commit`] after the
    /// drop.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }

    /// The journal this handle belongs to.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    #[inline]
    fn attach(&mut self, block: &Block, guard: &mut BlockGuard<'_>) -> Result<(), JournalError> {
        if !guard.is_attached_to(self.tid) {
            guard.attach(self.tid);
            self.transaction.add(|parts| parts.attach(block))?;
            self.spend_credit();
        }
        Ok(())
    }

    fn spend_credit(&mut self) {
        self.used.credits += 1;
        if self.used.credits > self.grant.credits {
            let shared = self.journal.shared();
            count(&shared.counters.credit_overflows, 1);
            debug_assert!(
                shared.config.tolerate_overflow,
                "J22: a handle of {} credits uses {}",
                self.grant.credits, self.used.credits
            );
        }
    }

    #[inline]
    fn check(&self) -> Result<(), JournalError> {
        self.journal.shared().check_alive()?;
        if self.joined {
            Ok(())
        } else {
            Err(JournalError::Closed)
        }
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.joined) {
            let shared = self.journal.shared();
            shared.note_handle_ended();
            let used = std::mem::take(&mut self.used);
            shared.leave(&self.transaction, self.grant, used);
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
            self.journal.request_commit(self.tid);
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("tid", &self.tid)
            .field("grant", &self.grant)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}
