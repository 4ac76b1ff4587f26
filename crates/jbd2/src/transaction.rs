//! A transaction: the blocks, revokes, freed blocks and callbacks that commit together.
//!
//! While it runs, handles add to it; once it is locked and its last handle has ended, nothing does, and the
//! commit thread takes its parts. Its `parts` lock is held for a push at most and nests inside a block's lock.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_units::Tid;
use parking_lot::{Mutex, MutexGuard};

use crate::block::Block;
use crate::hash::BlockHash;
use crate::ordered::OrderedData;

/// A set of block numbers.
pub(crate) type PblkSet = HashSet<u64, BlockHash>;

/// Runs when a transaction is durable.
pub(crate) type Callback = Box<dyn FnOnce() + Send>;

/// One transaction.
pub(crate) struct Transaction {
    pub(crate) tid: Tid,
    /// Whether anything was added. An empty transaction needs no commit.
    dirty: AtomicBool,
    parts: Mutex<Parts>,
}

/// What a transaction holds.
#[derive(Default)]
pub(crate) struct Parts {
    /// Every block that was attached, in order. One that was freed again has no snapshot to give.
    pub(crate) blocks: Vec<Block>,
    /// Blocks whose older copies in the log must not be replayed.
    pub(crate) revokes: PblkSet,
    /// Freed blocks: after the commit, no older version may be written home.
    pub(crate) forgotten: PblkSet,
    pub(crate) callbacks: Vec<Callback>,
    /// Data to be settled before the commit.
    pub(crate) ordered: Vec<Arc<dyn OrderedData>>,
}

impl Transaction {
    pub(crate) fn new(tid: Tid) -> Self {
        Self {
            tid,
            dirty: AtomicBool::new(false),
            parts: Mutex::default(),
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// The parts, to be added to.
    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.dirty.store(true, Ordering::Release);
        self.parts.lock()
    }

    /// Takes the parts of a transaction that no handle can reach any more.
    pub(crate) fn take_parts(&self) -> Parts {
        std::mem::take(&mut self.parts.lock())
    }

    /// The number of revoke records so far.
    pub(crate) fn revoke_count(&self) -> usize {
        self.parts.lock().revokes.len()
    }
}

impl Parts {
    /// Adds a block that is about to be modified: its copy in this transaction is newer than any that a revoke
    /// would suppress. It may stay in `forgotten`: that voids versions older than this transaction's only.
    pub(crate) fn attach(&mut self, block: &Block) {
        self.blocks.push(block.clone());
        self.revokes.remove(&block.pblk().get());
    }
}
