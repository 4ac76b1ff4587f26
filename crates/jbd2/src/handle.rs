//! Handles.

use std::marker::PhantomData;

use extant_units::{Pblk, Tid};

use crate::block::{Block, CheckKey};
use crate::error::JournalError;

/// A part of the running transaction. Dropping it ends the part.
pub struct Handle {
    _not_send: PhantomData<*const ()>,
}

impl Handle {
    /// The transaction this handle belongs to.
    pub fn tid(&self) -> Tid {
        todo!()
    }

    /// Modifies `b` under this handle.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn modify<R>(
        &mut self,
        b: &Block,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, JournalError> {
        let _ = (b, f);
        todo!()
    }

    /// A new metadata block: zeroed, attached, not read. Cancels a revoke.
    ///
    /// # Errors
    /// The block lies past the device, or the journal was aborted.
    pub fn create(&mut self, p: Pblk, key: CheckKey) -> Result<Block, JournalError> {
        let _ = (p, key);
        todo!()
    }

    /// The metadata block `p` was freed: it leaves the transaction, copies in the log are revoked, and it is
    /// not written home once this transaction has committed.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn forget(&mut self, p: Pblk) -> Result<(), JournalError> {
        let _ = p;
        todo!()
    }

    /// Credits that are left.
    pub fn credits_left(&self) -> u32 {
        todo!()
    }

    /// Asks for `credits` more; false if the transaction is full and the caller must restart.
    ///
    /// # Errors
    /// The journal was aborted.
    pub fn extend(&mut self, credits: u32) -> Result<bool, JournalError> {
        let _ = credits;
        todo!()
    }

    /// Ends this part and joins a transaction afresh.
    ///
    /// # Errors
    /// See `Journal::start`.
    pub fn restart(&mut self, credits: u32) -> Result<(), JournalError> {
        let _ = credits;
        todo!()
    }

    /// Runs `f` once when this transaction is durable; never if the journal aborts first.
    pub fn on_commit(&mut self, f: Box<dyn FnOnce() + Send>) {
        let _ = f;
        todo!()
    }

    /// Asks for a commit as soon as this handle ends.
    pub fn set_sync(&mut self) {
        todo!()
    }
}
