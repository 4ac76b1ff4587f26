//! A transaction: the blocks, revokes, freed blocks and callbacks that commit together.
//!
//! # Invariants
//! While the transaction runs, handles add to it. Once it is locked and its last handle has ended,
//! nothing adds to it, and the thread that commits takes its parts.
//!
//! # Locks
//! `parts` is held for a push at most and nests inside a block's lock.

use extant_sync::atomic::{AtomicBool, Ordering};
use std::collections::HashSet;
use std::sync::Arc;

use extant_sync::Mutex;
use extant_units::Tid;

use crate::block::Block;
use crate::error::{JournalError, ensure_some};
use crate::hash::NumberHash;
use crate::ordered::OrderedData;

/// A set of block numbers.
pub(crate) type PblkSet = HashSet<u64, NumberHash>;

/// Runs when a transaction is durable.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// One transaction.
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    /// Something was added. An empty transaction needs no commit.
    dirty: AtomicBool,
    /// Something was changed that no fast commit can tell.
    untold: AtomicBool,
    parts: Mutex<Option<Parts>>,
}

/// The contents of a transaction.
#[derive(Default)]
pub(crate) struct Parts {
    /// Every block that was attached, in order. One that was freed again has no snapshot to give.
    pub(crate) blocks: Vec<Block>,
    /// Blocks whose older copies in the log must not be replayed.
    pub(crate) revokes: PblkSet,
    /// Freed blocks. After the commit, no older version of them may be written to its home
    /// location.
    pub(crate) forgotten: PblkSet,
    pub(crate) callbacks: Vec<Callback>,
    /// Data that must be on the device before the commit.
    pub(crate) ordered: Vec<Arc<dyn OrderedData>>,
}

/// A block and the version of it that a transaction writes.
pub(crate) struct Snapshot {
    pub(crate) block: Block,
    pub(crate) data: Arc<[u8]>,
}

impl Transaction {
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            dirty: AtomicBool::new(false),
            untold: AtomicBool::new(false),
            parts: Mutex::new(Some(Parts::default())),
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Notes that something was changed which no fast commit can tell.
    pub(crate) fn set_untold(&self) {
        self.untold.store(true, Ordering::Release);
    }

    /// Returns whether fast commits cannot tell what the transaction has done.
    pub(crate) fn is_untold(&self) -> bool {
        self.untold.load(Ordering::Acquire)
    }

    /// Calls `add` with the parts, under their lock.
    ///
    /// # Errors
    /// The parts were taken: an open handle keeps its transaction from committing, and what is
    /// added later would be lost. The caller stops the journal.
    pub(crate) fn add<R>(&self, add: impl FnOnce(&mut Parts) -> R) -> Result<R, JournalError> {
        self.dirty.store(true, Ordering::Release);
        let mut parts = self.parts.lock();
        let parts = ensure_some(parts.as_mut(), "a transaction is added to while it commits")?;
        Ok(add(parts))
    }

    /// Takes the parts of a transaction whose last handle has ended.
    ///
    /// # Errors
    /// They were taken before.
    pub(crate) fn take_parts(&self) -> Result<Parts, JournalError> {
        ensure_some(self.parts.lock().take(), "a transaction commits twice")
    }

    /// The number of revoke records so far.
    pub(crate) fn revoke_count(&self) -> usize {
        let parts = self.parts.lock();
        parts.as_ref().map_or(0, |parts| parts.revokes.len())
    }
}

impl Parts {
    /// Adds a block that is about to be modified. Its copy in this transaction is newer than any
    /// that a revoke would suppress, so a revoke of it is cancelled. The block may stay in
    /// `forgotten`: that concerns versions older than this transaction's only.
    pub(crate) fn attach(&mut self, block: &Block) {
        self.blocks.push(block.clone());
        self.revokes.remove(&block.pblk().get());
    }
}

/// The versions that `tid` has to write, in the order of their block numbers.
pub(crate) fn take_snapshots(tid: Tid, blocks: &[Block]) -> Vec<Snapshot> {
    let mut snapshots: Vec<Snapshot> = blocks
        .iter()
        .filter_map(|block| {
            let data = block.take_snapshot(tid)?;
            let block = block.clone();
            Some(Snapshot { block, data })
        })
        .collect();
    snapshots.sort_unstable_by_key(|snapshot| snapshot.block.pblk());
    debug_assert!(
        snapshots
            .windows(2)
            .all(|two| two[0].block.pblk() < two[1].block.pblk()),
        "a transaction has one version of a block"
    );
    snapshots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_once_the_parts_are_taken() {
        let transaction = Transaction::new(Tid::new(1));
        transaction.add(|parts| parts.forgotten.insert(7)).unwrap();
        assert_eq!(transaction.take_parts().unwrap().forgotten.len(), 1);
        let late = transaction.add(|parts| parts.forgotten.insert(8));
        let twice = transaction.take_parts().map(|parts| parts.forgotten.len());
        let why = |error: JournalError| error.to_string();
        assert!(why(late.unwrap_err()).contains("is added to while it commits"));
        assert!(why(twice.unwrap_err()).contains("commits twice"));
    }
}
