//! What is in the log: its transactions from tail to head, and which blocks still have to be written home.
//!
//! # Invariants
//! - `queue` holds the committed transactions between tail and head; their ids follow each other.
//! - A block is *pending* in at most one of them: the last that logged it. Committing it again moves it there,
//!   and the older transaction no longer needs it written home.
//! - A transaction with nothing pending can leave from the front of the queue, after what was written home
//!   is durable, and after the superblock says so durably: until then a replay would read it.
//! - A block is *resident* while any copy of it may be between the tail on disk and the head, or is being
//!   written there. Freeing a resident block takes a revoke record.
//! - What is `in_flight` is being written home. A commit that frees such a block waits for it to land.
//!
//! # Locks
//! One lock around all of it, a leaf, held for the time of a few map operations; by a commit and by a
//! checkpoint for those of one batch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use extant_units::{Pblk, Tid};

use crate::block::Block;
use crate::commit::Snapshot;
use crate::hash::BlockHash;
use crate::transaction::PblkSet;

/// See the module's header.
pub(crate) struct LogIndex {
    /// The ring of log blocks.
    ring: Ring,
    /// Where the next transaction goes, and its id.
    head: u32,
    next: Tid,
    /// Blocks between tail and head.
    used: u32,
    queue: VecDeque<Logged>,
    /// Blocks that are pending in any of them.
    pending: usize,
    blocks: HashMap<u64, Resident, BlockHash>,
    in_flight: PblkSet,
    /// The checkpoint thread is to end.
    pub(crate) stopping: bool,
}

/// The blocks `first..end` as a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Ring {
    pub(crate) fn len(self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// The block `by` blocks after `at`.
    pub(crate) fn advance(self, at: u32, by: u32) -> u32 {
        let len = u64::from(self.len()).max(1);
        let inside = u64::from(at.saturating_sub(self.first)) + u64::from(by);
        // Below the length, which is a u32.
        self.first + u32::try_from(inside % len).unwrap_or(0)
    }
}

/// A transaction in the log.
struct Logged {
    tid: Tid,
    start: u32,
    len: u32,
    /// Every block that became resident with this transaction.
    blocks: Vec<u64>,
    /// Blocks that are pending in this transaction.
    pending: usize,
}

struct Resident {
    /// The last transaction that logged the block, or is about to.
    newest: Tid,
    pending: Option<Pending>,
}

struct Pending {
    tid: Tid,
    data: Arc<[u8]>,
    /// Keeps the block in the cache: the device does not have it yet.
    _block: Block,
}

/// A version of a block that is to be written home.
pub(crate) struct Homeward {
    pub(crate) pblk: Pblk,
    pub(crate) data: Arc<[u8]>,
    tid: Tid,
}

/// Where the log begins once its first transactions have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) start: u32,
    pub(crate) tid: Tid,
    /// Transactions that leave.
    leaving: usize,
}

impl LogIndex {
    /// The index of an empty log whose first transaction will be `next`.
    pub(crate) fn new(ring: Ring, next: Tid) -> Self {
        Self {
            ring,
            head: ring.first,
            next,
            used: 0,
            queue: VecDeque::new(),
            pending: 0,
            blocks: HashMap::default(),
            in_flight: PblkSet::default(),
            stopping: false,
        }
    }

    /// Log blocks that are free.
    pub(crate) fn free(&self) -> u32 {
        self.ring.len().saturating_sub(self.used)
    }

    /// The free log blocks that the checkpoint thread is to make, if it is to do something: three
    /// quarters of the log once more than half of it is in use; half of those in use once more than
    /// `most_pending` blocks wait in memory.
    pub(crate) fn wanted(&self, most_pending: usize) -> Option<u32> {
        if self.used > self.ring.len() / 2 {
            return Some(self.ring.len() / 4 * 3);
        }
        let heavy = self.pending > most_pending && self.used > 0;
        heavy.then(|| self.free() + self.used.div_ceil(2))
    }

    /// Where the next transaction goes.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The id of the next transaction.
    pub(crate) fn next(&self) -> Tid {
        self.next
    }

    pub(crate) fn is_resident(&self, p: Pblk) -> bool {
        self.blocks.contains_key(&p.get())
    }

    /// Makes blocks resident that `tid` is about to log. Comes before their snapshots are taken, so that
    /// whoever frees one of them sees either the attachment or this.
    pub(crate) fn note_logging(&mut self, tid: Tid, blocks: &[Block]) {
        for block in blocks {
            self.blocks
                .entry(block.pblk().get())
                .and_modify(|resident| resident.newest = tid)
                .or_insert(Resident {
                    newest: tid,
                    pending: None,
                });
        }
    }

    /// The transaction `next`, `len` log blocks long, is durable: its `snapshots` are pending from now on,
    /// what it freed is not. `noted` is what [`LogIndex::note_logging`] was told.
    pub(crate) fn committed(
        &mut self,
        len: u32,
        noted: Vec<u64>,
        snapshots: Vec<Snapshot>,
        freed: &PblkSet,
    ) {
        let tid = self.next;
        for p in freed {
            self.drop_pending(*p);
        }
        let pending = snapshots.len();
        for Snapshot { block, data } in snapshots {
            let p = block.pblk().get();
            self.drop_pending(p);
            if let Some(resident) = self.blocks.get_mut(&p) {
                resident.pending = Some(Pending {
                    tid,
                    data,
                    _block: block,
                });
                self.pending += 1;
            }
        }
        self.queue.push_back(Logged {
            tid,
            start: self.head,
            len,
            blocks: noted,
            pending,
        });
        self.used = self.used.saturating_add(len);
        self.head = self.ring.advance(self.head, len);
        self.next = tid.next();
    }

    /// Whether one of `freed` is being written home.
    pub(crate) fn is_in_flight(&self, freed: &PblkSet) -> bool {
        !self.in_flight.is_empty() && freed.iter().any(|p| self.in_flight.contains(p))
    }

    fn drop_pending(&mut self, p: u64) {
        if let Some(resident) = self.blocks.get_mut(&p)
            && let Some(pending) = resident.pending.take()
        {
            self.pending = self.pending.saturating_sub(1);
            if let Some(logged) = self.logged_mut(pending.tid) {
                logged.pending = logged.pending.saturating_sub(1);
            }
        }
    }

    fn logged_mut(&mut self, tid: Tid) -> Option<&mut Logged> {
        let front = self.queue.front()?.tid;
        let at = tid.get().wrapping_sub(front.get());
        self.queue
            .get_mut(usize::try_from(at).ok()?)
            .filter(|logged| logged.tid == tid)
    }

    /// The blocks of as many transactions from the front as must leave so that `free` log blocks are free,
    /// in the order of their numbers. Not all of them are still pending.
    pub(crate) fn blocks_to_free(&self, free: u32) -> Vec<u64> {
        let mut gained = self.free();
        let mut blocks = Vec::new();
        for logged in &self.queue {
            if gained >= free {
                break;
            }
            gained = gained.saturating_add(logged.len);
            blocks.extend_from_slice(&logged.blocks);
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Puts those of `blocks` that are pending in flight.
    pub(crate) fn take_off(&mut self, blocks: &[u64]) -> Vec<Homeward> {
        let mut batch = Vec::with_capacity(blocks.len());
        for &p in blocks {
            if let Some(pending) = self.blocks.get(&p).and_then(|r| r.pending.as_ref()) {
                self.in_flight.insert(p);
                batch.push(Homeward {
                    pblk: Pblk::new(p),
                    data: Arc::clone(&pending.data),
                    tid: pending.tid,
                });
            }
        }
        batch
    }

    /// A batch has been written home. What was committed again meanwhile stays pending with its newer version.
    pub(crate) fn landed(&mut self, batch: &[Homeward]) {
        for home in batch {
            let p = home.pblk.get();
            self.in_flight.remove(&p);
            let same = |pending: &Pending| pending.tid == home.tid;
            let current = self.blocks.get(&p).and_then(|r| r.pending.as_ref());
            if current.is_some_and(same) {
                self.drop_pending(p);
            }
        }
    }

    /// Where the log can begin; `None` if it must stay as it is.
    pub(crate) fn next_tail(&self) -> Option<Tail> {
        let leaving = self.queue.iter().take_while(|l| l.pending == 0).count();
        if leaving == 0 {
            return None;
        }
        let (start, tid) = match self.queue.get(leaving) {
            Some(logged) => (logged.start, logged.tid),
            None => (self.head, self.next),
        };
        Some(Tail {
            start,
            tid,
            leaving,
        })
    }

    /// The superblock says `tail`, durably: what lies before it is free.
    pub(crate) fn set_tail(&mut self, tail: Tail) {
        for logged in self.queue.drain(..tail.leaving.min(self.queue.len())) {
            self.used = self.used.saturating_sub(logged.len);
            for p in logged.blocks {
                if self.blocks.get(&p).is_some_and(|r| r.newest == logged.tid) {
                    self.blocks.remove(&p);
                }
            }
        }
    }

    /// Whether nothing is pending any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.iter().all(|logged| logged.pending == 0)
    }
}

#[cfg(test)]
mod tests;
