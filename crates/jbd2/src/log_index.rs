//! The contents of the log: its transactions from tail to head, and the blocks that still have to
//! be checkpointed (written to their home locations).
//!
//! # Invariants
//! - `queue` holds the committed transactions between tail and head; their ids follow each other.
//! - A block is *pending* in at most one of them: the last that logged it. Committing the block
//!   again moves it there; the older transaction then no longer needs it written.
//! - J27: a transaction with nothing pending can leave the front of the queue once its checkpointed
//!   blocks are durable and the superblock durably names a later tail. Until then a replay would
//!   read it. [`DurableTail`] is the proof that the superblock does.
//! - J28: a block is *resident* while a copy of it may be between the tail on disk and the head, or
//!   is being written there. Freeing a resident block takes a revoke record.
//! - A block in `in_flight` is being written to its home location. A commit that frees such a block
//!   waits for the write.
//!
//! # Locks
//! One mutex protects all of it. It is a leaf, held for a few map operations; a commit and a
//! checkpoint hold it for the map operations of one batch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use extant_units::{Pblk, Tid};

use crate::block::Block;
use crate::error::{JournalError, ensure, ensure_some};
use crate::hash::NumberHash;
use crate::ring::Ring;
use crate::transaction::{PblkSet, Snapshot};

/// The contents of the log. See the module's header.
pub(crate) struct LogIndex {
    ring: Ring,
    /// The log block where the next transaction goes, and its id.
    head: u32,
    next: Tid,
    /// Blocks between tail and head.
    used: u32,
    queue: VecDeque<Logged>,
    /// Blocks that are pending in any transaction.
    pending: usize,
    blocks: HashMap<u64, Resident, NumberHash>,
    in_flight: PblkSet,
    /// The checkpoint thread is to end.
    pub(crate) stopping: bool,
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
    /// Pins the block in the cache: the device does not have this version yet.
    _block: Block,
}

/// A version of a block that a checkpoint writes.
pub(crate) struct CheckpointBlock {
    pub(crate) pblk: Pblk,
    pub(crate) data: Arc<[u8]>,
    tid: Tid,
}

/// The tail of the log once its first transactions have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) start: u32,
    pub(crate) tid: Tid,
    /// Transactions that leave.
    leaving: usize,
}

/// A tail that the superblock on disk names, after a flush of the blocks before it: the proof that
/// [`LogIndex::release_to`] asks for.
#[must_use]
pub(crate) struct DurableTail(Tail);

impl DurableTail {
    /// For the code that has written the superblock.
    pub(crate) fn written(tail: Tail) -> Self {
        Self(tail)
    }
}

impl LogIndex {
    /// The index of an empty log whose first transaction will be `next`.
    pub(crate) fn new(ring: Ring, next: Tid) -> Self {
        Self {
            ring,
            head: ring.first(),
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
        debug_assert!(
            self.used <= self.ring.len(),
            "the log does not overwrite its tail"
        );
        self.ring.len() - self.used
    }

    /// The number of free log blocks that the checkpoint thread is to reach, if it is to work:
    /// three quarters of the log once more than half of it is in use; the free blocks and half of
    /// the others once more than `max_pending` blocks wait in memory.
    pub(crate) fn checkpoint_target(&self, max_pending: usize) -> Option<u32> {
        if self.used > self.ring.len() / 2 {
            return Some(self.ring.len() / 4 * 3);
        }
        let heavy = self.pending > max_pending && self.used > 0;
        heavy.then(|| self.free() + self.used.div_ceil(2))
    }

    /// Returns whether what the log has, and a transaction of `len` blocks behind it, would not lie
    /// in one piece.
    pub(crate) fn would_wrap(&self, len: u32) -> bool {
        let before = self.head - self.ring.first();
        self.used > before || u64::from(before) + u64::from(len) > self.ring.len().into()
    }

    /// Moves the head of a log that has nothing to the first block.
    ///
    /// # Errors
    /// The log has transactions.
    pub(crate) fn begin_anew(&mut self) -> Result<(), JournalError> {
        ensure(
            self.used == 0,
            "J27: a log that begins anew has transactions",
        )?;
        self.head = self.ring.first();
        Ok(())
    }

    /// The log block where the next transaction goes.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The id of the next transaction.
    pub(crate) fn next(&self) -> Tid {
        self.next
    }

    /// Returns whether a replay could write `p`: a copy of it may be in the log.
    pub(crate) fn is_resident(&self, p: Pblk) -> bool {
        self.blocks.contains_key(&p.get())
    }

    /// Makes the blocks resident that `tid` is about to log.
    ///
    /// Call it before taking their snapshots. A handle that frees one of the blocks then sees
    /// either that it is attached to `tid` or that it is resident, and adds a revoke record (J28).
    pub(crate) fn mark_resident(&mut self, tid: Tid, blocks: &[Block]) {
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

    /// Adds the transaction `next`, which is durable and `len` log blocks long: its `snapshots` are
    /// pending from now on, and what it freed no longer is. `resident` is what
    /// [`LogIndex::mark_resident`] marked.
    ///
    /// # Errors
    /// The transaction took more log blocks than were free.
    pub(crate) fn add_committed(
        &mut self,
        len: u32,
        resident: Vec<u64>,
        snapshots: Vec<Snapshot>,
        freed: &PblkSet,
    ) -> Result<(), JournalError> {
        ensure(len <= self.free(), "J27: a commit overwrote the log's tail")?;
        let tid = self.next;
        for p in freed {
            self.drop_pending(*p)?;
        }
        let pending = snapshots.len();
        for Snapshot { block, data } in snapshots {
            let p = block.pblk().get();
            self.drop_pending(p)?;
            let resident = self.blocks.get_mut(&p);
            ensure(resident.is_some(), "J28: a logged block is not resident")?;
            if let Some(resident) = resident {
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
            blocks: resident,
            pending,
        });
        self.used += len;
        self.head = self.ring.advance(self.head, len);
        self.next = tid.next();
        self.assert_consistent();
        Ok(())
    }

    /// Returns whether one of `freed` is being written to its home location.
    pub(crate) fn is_in_flight(&self, freed: &PblkSet) -> bool {
        !self.in_flight.is_empty() && freed.iter().any(|p| self.in_flight.contains(p))
    }

    /// Takes a block's pending version, if there is one.
    fn drop_pending(&mut self, p: u64) -> Result<(), JournalError> {
        let resident = self.blocks.get_mut(&p);
        let Some(pending) = resident.and_then(|resident| resident.pending.take()) else {
            return Ok(());
        };
        let left = self.pending.checked_sub(1);
        self.pending = ensure_some(left, "a pending block is not counted")?;
        let logged = self.logged_mut(pending.tid);
        let logged = ensure_some(logged, "J27: a pending block's transaction left the log")?;
        let left = logged.pending.checked_sub(1);
        logged.pending = ensure_some(left, "a transaction does not count its pending block")?;
        Ok(())
    }

    fn logged_mut(&mut self, tid: Tid) -> Option<&mut Logged> {
        let front = self.queue.front()?.tid;
        let at = tid.get().wrapping_sub(front.get());
        self.queue
            .get_mut(usize::try_from(at).ok()?)
            .filter(|logged| logged.tid == tid)
    }

    /// The blocks of as many transactions from the front as must leave so that `free` log blocks
    /// are free, in the order of their numbers. Not all of them are still pending.
    pub(crate) fn blocks_to_free(&self, free: u64) -> Vec<u64> {
        let mut gained = u64::from(self.free());
        let mut blocks = Vec::new();
        for logged in &self.queue {
            if gained >= free {
                break;
            }
            gained += u64::from(logged.len);
            blocks.extend_from_slice(&logged.blocks);
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Begins a batch of a checkpoint: puts those of `blocks` that are pending in flight.
    pub(crate) fn begin_batch(&mut self, blocks: &[u64]) -> Vec<CheckpointBlock> {
        debug_assert!(
            self.in_flight.is_empty(),
            "one checkpoint writes one batch at a time"
        );
        let mut batch = Vec::with_capacity(blocks.len());
        for &p in blocks {
            if let Some(pending) = self.blocks.get(&p).and_then(|r| r.pending.as_ref()) {
                let is_committed = self.next.is_after(pending.tid);
                debug_assert!(
                    is_committed,
                    "J27: only durable transactions are checkpointed"
                );
                self.in_flight.insert(p);
                batch.push(CheckpointBlock {
                    pblk: Pblk::new(p),
                    data: Arc::clone(&pending.data),
                    tid: pending.tid,
                });
            }
        }
        batch
    }

    /// Ends a batch that has been written. A block that was committed again meanwhile stays pending
    /// with its newer version.
    ///
    /// # Errors
    /// The counts of pending blocks are wrong.
    pub(crate) fn end_batch(&mut self, batch: &[CheckpointBlock]) -> Result<(), JournalError> {
        for written in batch {
            let p = written.pblk.get();
            let was_in_flight = self.in_flight.remove(&p);
            debug_assert!(was_in_flight, "block {p} belongs to the batch that began");
            let same = |pending: &Pending| pending.tid == written.tid;
            let current = self.blocks.get(&p).and_then(|r| r.pending.as_ref());
            if current.is_some_and(same) {
                self.drop_pending(p)?;
            }
        }
        Ok(())
    }

    /// The tail that the log can have now; `None` if it must stay where it is.
    pub(crate) fn next_tail(&self) -> Option<Tail> {
        let leaving = self.queue.iter().take_while(|l| l.pending == 0).count();
        if leaving == 0 {
            return None;
        }
        let (start, tid) = match self.queue.get(leaving) {
            Some(logged) => (logged.start, logged.tid),
            None => (self.head, self.next),
        };
        debug_assert!(self.ring.contains(start), "the tail lies in the log");
        Some(Tail {
            start,
            tid,
            leaving,
        })
    }

    /// Frees the log blocks before `tail`.
    ///
    /// # Errors
    /// A transaction before `tail` may not leave. Nothing has changed then.
    pub(crate) fn release_to(&mut self, tail: DurableTail) -> Result<(), JournalError> {
        let DurableTail(tail) = tail;
        let leaving = self.queue.len() >= tail.leaving;
        ensure(leaving, "J27: the log's tail passes its head")?;
        for logged in self.queue.iter().take(tail.leaving) {
            let written = logged.pending == 0;
            ensure(
                written,
                "J27: a transaction with pending blocks leaves the log",
            )?;
            let forward = tail.tid.is_after(logged.tid);
            ensure(forward, "J27: the log's tail moves backward")?;
        }
        for logged in self.queue.drain(..tail.leaving) {
            self.used -= logged.len;
            for p in logged.blocks {
                if self.blocks.get(&p).is_some_and(|r| r.newest == logged.tid) {
                    self.blocks.remove(&p);
                }
            }
        }
        self.assert_consistent();
        Ok(())
    }

    /// Returns whether any block is pending.
    pub(crate) fn has_pending(&self) -> bool {
        self.queue.iter().any(|logged| logged.pending > 0)
    }

    /// Asserts that the accounts add up and the ids follow each other.
    fn assert_consistent(&self) {
        debug_assert_eq!(
            self.queue
                .iter()
                .map(|logged| logged.pending)
                .sum::<usize>(),
            self.pending,
            "the pending blocks of all transactions"
        );
        debug_assert_eq!(
            self.queue.iter().map(|logged| logged.len).sum::<u32>(),
            self.used,
            "the log blocks of all transactions"
        );
        let mut following = self.queue.iter().zip(self.queue.iter().skip(1));
        debug_assert!(following.all(|(one, next)| one.tid.next() == next.tid));
    }
}

#[cfg(test)]
mod tests;
