//! Checkpoints: writing logged blocks to their home locations, so that their part of the log
//! becomes free.
//!
//! A checkpoint takes the oldest transactions, writes the newest *committed* version of each of
//! their blocks (never the running one), flushes, moves the tail in the superblock durably, and
//! only then counts the space as free. The flush and the tail are one durable write where blocks
//! and log share a device.
//!
//! Three callers run checkpoints: the checkpoint thread, once more than half of the log is in use
//! or once more blocks wait than the block cache has room for, as they stay in memory until then; a
//! start that finds no room; and [`crate::Journal::checkpoint_all`].
//!
//! # Invariants
//! J27: the tail moves only after the checkpointed blocks are durable, and log blocks are reused
//! only after the tail has moved durably.
//!
//! # Locks
//! One checkpoint runs at a time, under [`crate::log::Log::lock_checkpoint`]. None holds
//! `Shared::state` or waits for a commit, so a commit can wait for a checkpoint.

use extant_failpoint::Failpoint;
use extant_units::Pblk;

use crate::blockio::write_blocks;
use crate::error::{JournalError, ensure};
use crate::log::{CheckpointGuard, Log};
use crate::shared::{Shared, count};

/// Blocks that are in flight together.
const BATCH: usize = 1024;

/// A moment at which no transaction runs or commits and none can start: the argument of what needs
/// one.
pub(crate) struct Quiesced<'a> {
    shared: &'a Shared,
}

impl<'a> Quiesced<'a> {
    /// For the code that has waited until nothing runs or commits and holds the barrier.
    pub(crate) fn new(shared: &'a Shared) -> Self {
        Self { shared }
    }

    /// Checkpoints everything and marks the log empty.
    pub(crate) fn empty_log(&self) -> Result<(), JournalError> {
        let shared = self.shared;
        let Some(log) = &shared.log else {
            return Ok(());
        };
        let checkpoint = log.lock_checkpoint();
        self.empty(log, &checkpoint)
            .map_err(|error| shared.abort_with(error))
    }

    fn empty(&self, log: &Log, checkpoint: &CheckpointGuard<'_>) -> Result<(), JournalError> {
        let shared = self.shared;
        shared.write_pending(log, checkpoint, u64::MAX)?;
        let (tail, head, next) = {
            let index = log.index.lock();
            let drained = !index.has_pending();
            ensure(
                drained,
                "a block was logged while the log was being emptied",
            )?;
            (index.next_tail(), index.head(), index.next())
        };
        shared.check_alive()?;
        if !shared.config.barrier {
            // Without barriers too: after this, a replay no longer repairs what a host has lost.
            shared.flush_always()?;
        }
        if let Some(tail) = log.mark_empty(checkpoint, (head, next), tail)? {
            count(&shared.counters.tail_updates, 1);
            log.index.lock().release_to(tail)?;
        }
        Ok(())
    }
}

impl Shared {
    /// Returns whether the log has `blocks` free blocks, or there is no log.
    pub(crate) fn log_has_room(&self, blocks: u64) -> bool {
        self.log
            .as_ref()
            .is_none_or(|log| u64::from(log.index.lock().free()) >= blocks)
    }

    /// Returns whether a copy of `p` may be in the log.
    pub(crate) fn is_in_log(&self, p: Pblk) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.index.lock().is_resident(p))
    }

    /// Makes `blocks` log blocks free, or as many as committed transactions give. False if that
    /// changed nothing. A failure stops the journal.
    pub(crate) fn checkpoint_for(&self, blocks: u64) -> Result<bool, JournalError> {
        let Some(log) = &self.log else {
            return Ok(true);
        };
        let checkpoint = log.lock_checkpoint();
        if u64::from(log.index.lock().free()) >= blocks {
            return Ok(true);
        }
        let target = blocks.max(u64::from(log.ring.len() / 8 * 3));
        self.checkpoint(log, &checkpoint, target)
            .map_err(|error| self.abort_with(error))
    }

    /// The body of the checkpoint thread.
    pub(crate) fn checkpoint_loop(&self) {
        let Some(log) = &self.log else {
            return;
        };
        loop {
            let mut index = log.index.lock();
            let target = loop {
                if index.stopping || self.check_alive().is_err() {
                    return;
                }
                if let Some(target) = index.checkpoint_target(self.cache.budget_blocks()) {
                    break target;
                }
                log.checkpoint_work.wait(&mut index);
            };
            drop(index);
            if self.checkpoint_for(target.into()).is_err() {
                return;
            }
        }
    }

    /// One checkpoint: the oldest transactions leave until `free` blocks are free. False if none
    /// could leave.
    fn checkpoint(
        &self,
        log: &Log,
        checkpoint: &CheckpointGuard<'_>,
        free: u64,
    ) -> Result<bool, JournalError> {
        self.write_pending(log, checkpoint, free)?;
        let Some(tail) = log.index.lock().next_tail() else {
            return Ok(false);
        };
        self.check_alive()?;
        let tail = log.move_tail(checkpoint, tail)?;
        count(&self.counters.tail_updates, 1);
        log.index.lock().release_to(tail)?;
        Ok(true)
    }

    /// Writes the pending blocks of the oldest transactions to their home locations, as many as
    /// must leave for `free` free log blocks.
    fn write_pending(
        &self,
        log: &Log,
        _checkpoint: &CheckpointGuard<'_>,
        free: u64,
    ) -> Result<(), JournalError> {
        let blocks = log.index.lock().blocks_to_free(free);
        let dev = self.cache.device();
        let mut written = 0;
        for chunk in blocks.chunks(BATCH) {
            // A batch that failed stays in flight; the journal has stopped then.
            self.check_alive()?;
            let batch = log.index.lock().begin_batch(chunk);
            let pieces = batch.iter().map(|block| (block.pblk, &*block.data));
            write_blocks(&**dev, self.cache.block_size(), pieces)
                .map_err(JournalError::io("checkpointing metadata blocks"))?;
            log.index.lock().end_batch(&batch)?;
            log.batch_written.notify_all();
            written += batch.len() as u64;
        }
        count(&self.counters.blocks_checkpointed, written);
        let mistaken = self.config.failpoint.is(Failpoint::TailBeforeVolumeFlush);
        if log.external && written > 0 && !mistaken {
            self.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extant_blockdev::{BlockDevice, MemoryDevice};
    use extant_disk::jbd2::superblock::JournalSuperblock;
    use extant_units::{BlockSize, DevOff, Pblk};

    use crate::{BlockCache, Config, Journal, LogMap};

    #[test]
    fn a_log_has_room_for_as_many_blocks_as_are_free() {
        const LEN: u32 = 64;
        let bs = BlockSize::KIB1;
        let dev = Arc::new(MemoryDevice::new(u64::from(LEN) * bs.bytes_u64()));
        let superblock = JournalSuperblock::new_empty(bs, LEN, [0; 16]).to_bytes();
        dev.write_at(DevOff::new(0), &superblock).unwrap();
        let map = LogMap::new(vec![(Pblk::new(0), LEN)]);
        let cache = BlockCache::new(dev.clone(), bs, 64 << 10);
        let journal = Journal::open(cache, dev, map, Config::default()).unwrap();
        // All but the superblock.
        let free = u64::from(LEN) - 1;
        assert!(journal.shared().log_has_room(free));
        assert!(!journal.shared().log_has_room(free + 1));
    }
}
