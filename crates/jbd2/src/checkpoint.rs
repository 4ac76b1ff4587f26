//! Checkpoints: writing logged blocks home, so that their part of the log becomes free.
//!
//! A checkpoint takes the oldest transactions, writes the newest *committed* version of each of their blocks
//! home (never the running one), flushes, moves the tail in the superblock durably, and only then calls the
//! space free. The flush and the tail are one durable write where blocks and log share a device.
//!
//! # Who
//! The checkpoint thread, once more than half of the log is in use, down to a quarter; or once more
//! blocks wait than the block cache has room for, as they stay in memory until then; a start that
//! finds no room; [`crate::Journal::checkpoint_all`]. One at a time, by `Log::turn`. None of them
//! holds `Core::state`, and none waits for a commit, so a commit can wait for a checkpoint.

use std::sync::atomic::Ordering;

use crate::blockio::write_blocks;
use crate::error::JournalError;
use crate::journal::Core;
use crate::log::Log;

/// Blocks that are in flight together.
const BATCH: usize = 1024;

impl Core {
    /// Whether the log has `blocks` free blocks, or there is no log.
    pub(crate) fn log_has_room(&self, blocks: u32) -> bool {
        self.log
            .as_ref()
            .is_none_or(|log| log.index.lock().free() >= blocks)
    }

    /// Whether a copy of `p` may be in the log.
    pub(crate) fn is_in_log(&self, p: extant_units::Pblk) -> bool {
        self.log
            .as_ref()
            .is_some_and(|log| log.index.lock().is_resident(p))
    }

    /// Makes `blocks` log blocks free, or as many as committed transactions give. False if that changed
    /// nothing. A failure stops the journal.
    pub(crate) fn checkpoint_for(&self, blocks: u32) -> Result<bool, JournalError> {
        let Some(log) = &self.log else {
            return Ok(true);
        };
        let _turn = log.turn.lock();
        if log.index.lock().free() >= blocks {
            return Ok(true);
        }
        let wanted = blocks.max(log.ring.len() / 8 * 3);
        self.checkpoint(log, wanted)
            .map_err(|error| self.abort_with(error))
    }

    /// Writes everything home and marks the log empty. Nothing runs or commits meanwhile.
    pub(crate) fn empty_log(&self) -> Result<(), JournalError> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let _turn = log.turn.lock();
        self.empty(log).map_err(|error| self.abort_with(error))
    }

    fn empty(&self, log: &Log) -> Result<(), JournalError> {
        self.write_home(log, u32::MAX)?;
        let (tail, head, next) = {
            let index = log.index.lock();
            if !index.is_settled() {
                let why = "internal error: a block was logged while the log was being emptied";
                return Err(JournalError::Aborted(why.into()));
            }
            (index.next_tail(), index.head(), index.next())
        };
        self.check_alive()?;
        if !self.config.barrier {
            // Without barriers too: an empty log replays nothing of what a host has lost.
            self.flush_always()?;
        }
        log.mark_empty(head, next)?;
        if let Some(tail) = tail {
            self.counters.tail_updates.fetch_add(1, Ordering::Relaxed);
            log.index.lock().set_tail(tail);
        }
        Ok(())
    }

    /// The body of the checkpoint thread.
    pub(crate) fn checkpoint_loop(&self) {
        let Some(log) = &self.log else {
            return;
        };
        loop {
            let mut index = log.index.lock();
            let wanted = loop {
                if index.stopping || self.check_alive().is_err() {
                    return;
                }
                if let Some(wanted) = index.wanted(self.cache.budget_blocks()) {
                    break wanted;
                }
                log.pressure.wait(&mut index);
            };
            if index.stopping || self.check_alive().is_err() {
                return;
            }
            drop(index);
            if self.checkpoint_for(wanted).is_err() {
                return;
            }
        }
    }

    /// One checkpoint: the oldest transactions leave until `free` blocks are free. False if none could.
    fn checkpoint(&self, log: &Log, free: u32) -> Result<bool, JournalError> {
        self.write_home(log, free)?;
        let Some(tail) = log.index.lock().next_tail() else {
            return Ok(false);
        };
        self.check_alive()?;
        log.move_tail(tail)?;
        self.counters.tail_updates.fetch_add(1, Ordering::Relaxed);
        log.index.lock().set_tail(tail);
        Ok(true)
    }

    /// Writes the pending blocks of the oldest transactions home, as many as take up the space wanted.
    fn write_home(&self, log: &Log, free: u32) -> Result<(), JournalError> {
        let blocks = log.index.lock().blocks_to_free(free);
        let dev = self.cache.device();
        let mut written = 0;
        for chunk in blocks.chunks(BATCH) {
            let batch = log.index.lock().take_off(chunk);
            self.check_alive()?;
            let pieces = batch.iter().map(|home| (home.pblk, &*home.data));
            write_blocks(&**dev, self.cache.block_size(), pieces)
                .map_err(JournalError::io("writing metadata blocks home"))?;
            log.index.lock().landed(&batch);
            log.landed.notify_all();
            written += batch.len();
        }
        self.counters
            .blocks_checkpointed
            .fetch_add(written as u64, Ordering::Relaxed);
        if log.external && written > 0 {
            self.flush()?;
        }
        Ok(())
    }
}
