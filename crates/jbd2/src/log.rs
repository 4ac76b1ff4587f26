//! The log on its device: geometry, superblock, and the writes to it.
//!
//! # Locks
//! - The checkpoint lock ([`Log::lock_checkpoint`]) is held by one checkpoint at a time, over I/O.
//! - `superblock` is held while the superblock is written. Nothing is taken inside it.
//! - `index` is a leaf and never held over I/O.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::jbd2::Format;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_sync::{Condvar, Mutex, MutexGuard};
use extant_units::{BlockSize, Pblk, Tid};

use crate::blockio::write_blocks;
use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::{JournalError, ensure, ensure_some};
use crate::fast_area::FastArea;
use crate::log_index::{DurableTail, LogIndex, Tail};
use crate::log_map::LogMap;
use crate::log_superblock;
use crate::ring::Ring;
use crate::sizes::Sizes;

/// The log of an open journal.
pub(crate) struct Log {
    dev: Arc<dyn BlockDevice>,
    map: LogMap,
    bs: BlockSize,
    pub(crate) format: Format,
    pub(crate) ring: Ring,
    /// Fast commits are written, if there is an area for them.
    fast: bool,
    /// The area of fast commits: the committer's. Nothing is taken inside it.
    pub(crate) fast_area: Mutex<FastArea>,
    barrier: bool,
    failpoint: ActiveFailpoint,
    /// The blocks live on another device than the log. A flush of the log's device then
    /// does not flush them.
    pub(crate) external: bool,
    superblock: Mutex<OnDisk>,
    pub(crate) index: Mutex<LogIndex>,
    /// Signalled when a batch of blocks has been written to its home locations.
    pub(crate) batch_written: Condvar,
    /// Signalled when the log may have become too full, or the checkpoint thread is to end.
    pub(crate) checkpoint_work: Condvar,
    checkpoint: Mutex<()>,
}

/// The checkpoint lock: one checkpoint runs at a time, and the tail moves under it.
pub(crate) struct CheckpointGuard<'a>(#[allow(dead_code, reason = "held")] MutexGuard<'a, ()>);

/// The superblock as the device has it.
struct OnDisk {
    superblock: JournalSuperblock,
    /// The superblock says that the log is empty: it must name a tail before anything is logged.
    empty: bool,
}

impl Log {
    /// Opens an empty log and brings its format up to date.
    pub(crate) fn open(
        dev: Arc<dyn BlockDevice>,
        map: LogMap,
        cache: &BlockCache,
        config: &Config,
    ) -> Result<Self, JournalError> {
        let bs = cache.block_size();
        let mut superblock = log_superblock::read(&*dev, bs, &map)?;
        if superblock.start() != 0 {
            return Err(JournalError::NeedsRecovery);
        }
        if dev.is_read_only() {
            return Err(JournalError::ReadOnly);
        }
        let wide = cache.device_blocks().get() > u64::from(u32::MAX);
        let fast = config.operations.is_some();
        let upgraded = superblock.upgrade(wide, config.checksums);
        // A crash leaves an area, and in it what counts no more.
        let given_up = !fast && superblock.disable_fast_commits();
        if upgraded || given_up {
            log_superblock::write(&*dev, bs, &map, &superblock, config.barrier)?;
        }
        if fast {
            // On disk with the first tail.
            superblock.enable_fast_commits();
        }
        let ring = Ring::new(superblock.first(), superblock.end());
        // One past the number in the superblock, as Linux does: that one may have been used.
        let next = Tid::new(superblock.sequence()).next();
        Ok(Self {
            external: !std::ptr::addr_eq(Arc::as_ptr(&dev), Arc::as_ptr(cache.device())),
            dev,
            map,
            bs,
            format: superblock.format(),
            ring,
            fast,
            fast_area: Mutex::new(FastArea::new(superblock.fast_commit_area())),
            barrier: config.barrier,
            failpoint: config.failpoint,
            superblock: Mutex::new(OnDisk {
                superblock,
                empty: true,
            }),
            index: Mutex::new(LogIndex::new(ring, next)),
            batch_written: Condvar::new(),
            checkpoint_work: Condvar::new(),
            checkpoint: Mutex::new(()),
        })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let bs = self.bs.bytes();
        #[allow(clippy::cast_possible_truncation, reason = "records of one block")]
        let (tags, revokes) = (
            self.format.tags_per_block(bs) as u32,
            self.format.revokes_per_block(bs) as u32,
        );
        Sizes::for_log(self.ring.len(), tags, revokes)
    }

    pub(crate) fn next_tid(&self) -> Tid {
        self.index.lock().next()
    }

    /// Waits until no other checkpoint runs.
    pub(crate) fn lock_checkpoint(&self) -> CheckpointGuard<'_> {
        CheckpointGuard(self.checkpoint.lock())
    }

    pub(crate) fn recorded_errno(&self) -> i32 {
        self.superblock.lock().superblock.errno()
    }

    pub(crate) fn clear_errno(&self) -> Result<(), JournalError> {
        self.change(&mut self.superblock.lock(), |superblock| {
            superblock.clear_errno();
        })
    }

    /// Records for the next mount that the journal stopped because of a fault. It is a note, which
    /// may get lost. It repeats the tail that was last written without an error.
    pub(crate) fn record_errno(&self, errno: i32) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        on_disk.superblock.set_errno(errno);
        log_superblock::write_note(&*self.dev, self.bs, &self.map, &on_disk.superblock)
    }

    /// Returns whether the journal has an area for fast commits while the log is in use.
    pub(crate) fn has_fast_area(&self) -> bool {
        !self.fast_area.lock().is_empty()
    }

    /// Names the tail `start` in the superblock if that says the log is empty.
    pub(crate) fn name_first_tail(&self, start: u32, tid: Tid) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        if on_disk.empty {
            ensure(
                self.ring.contains(start),
                "the tail lies outside of the log",
            )?;
            self.change(&mut on_disk, |superblock| {
                superblock.set_tail(start, tid.get());
                if self.fast {
                    superblock.enable_fast_commits();
                }
            })?;
            on_disk.empty = false;
        }
        Ok(())
    }

    /// Moves the tail on disk, under the checkpoint lock. What was written to the log's device
    /// before is durable first.
    pub(crate) fn move_tail(
        &self,
        _checkpoint: &CheckpointGuard<'_>,
        tail: Tail,
    ) -> Result<DurableTail, JournalError> {
        ensure(
            self.ring.contains(tail.start),
            "the tail lies outside of the log",
        )?;
        let mut on_disk = self.superblock.lock();
        let before = Tid::new(on_disk.superblock.sequence());
        let forward = !on_disk.empty && tail.tid.is_after(before);
        ensure(forward, "J27: the log's tail moves forward only")?;
        self.change(&mut on_disk, |superblock| {
            superblock.set_tail(tail.start, tail.tid.get());
        })?;
        Ok(DurableTail::written(tail))
    }

    /// Names the log's first block as its tail, under the checkpoint lock. The log has nothing, and
    /// `tid` comes next: a replay finds nothing at either tail.
    pub(crate) fn begin_anew(
        &self,
        _checkpoint: &CheckpointGuard<'_>,
        tid: Tid,
    ) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        if !on_disk.empty {
            let is_next = on_disk.superblock.sequence() == tid.get();
            ensure(is_next, "J27: the log begins anew behind its tail")?;
            self.change(&mut on_disk, |superblock| {
                superblock.set_tail(self.ring.first(), tid.get());
            })?;
        }
        drop(on_disk);
        self.index.lock().begin_anew()
    }

    /// Writes a superblock that says the log is empty and continues at `head` with `next`, under
    /// the checkpoint lock. Returns `tail`, which is then durable as well.
    pub(crate) fn mark_empty(
        &self,
        _checkpoint: &CheckpointGuard<'_>,
        (head, next): (u32, Tid),
        tail: Option<Tail>,
    ) -> Result<Option<DurableTail>, JournalError> {
        ensure(self.ring.contains(head), "the head lies outside of the log")?;
        let mut on_disk = self.superblock.lock();
        if !on_disk.empty {
            self.change(&mut on_disk, |superblock| {
                superblock.set_tail(0, next.get());
                superblock.set_head(head);
                if self.fast {
                    superblock.disable_fast_commits();
                }
            })?;
            on_disk.empty = true;
        }
        Ok(tail.map(DurableTail::written))
    }

    /// Changes the superblock on disk, and in memory if the write succeeded: a later write must not
    /// contain what a failed one did not bring to the device.
    fn change(
        &self,
        on_disk: &mut OnDisk,
        change: impl FnOnce(&mut JournalSuperblock),
    ) -> Result<(), JournalError> {
        let mut changed = on_disk.superblock.clone();
        change(&mut changed);
        let written = log_superblock::write(&*self.dev, self.bs, &self.map, &changed, self.barrier);
        if written.is_err() && self.failpoint.is(Failpoint::TailAfterFailedFlush) {
            // The mistake: once more, past the failure that the device remembers.
            log_superblock::write_note(&*self.dev, self.bs, &self.map, &changed)?;
        } else {
            written?;
        }
        on_disk.superblock = changed;
        Ok(())
    }

    /// The device block of the log block `by` blocks after `at`.
    fn device_block(&self, at: u32, by: u32) -> Result<Pblk, JournalError> {
        let at = self.ring.advance(at, by);
        ensure_some(
            self.map.block(at),
            "a log block lies outside of the log's map",
        )
    }

    /// Writes consecutive log blocks from `at` on.
    pub(crate) fn write<'a>(
        &self,
        at: u32,
        blocks: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), JournalError> {
        let located: Result<Vec<(Pblk, &[u8])>, JournalError> = (0..)
            .zip(blocks)
            .map(|(i, bytes)| Ok((self.device_block(at, i)?, bytes)))
            .collect();
        write_blocks(&*self.dev, self.bs, located?).map_err(JournalError::io("writing the log"))
    }

    /// Writes the commit record of `tid` at log block `at`. With barriers it is durable, and
    /// everything that was written to the log's device before is durable first.
    pub(crate) fn write_commit(
        &self,
        at: u32,
        tid: Tid,
        since_1970: (u64, u32),
    ) -> Result<(), JournalError> {
        let mut block = vec![0; self.bs.bytes()];
        let (seconds, nanoseconds) = since_1970;
        self.format
            .write_commit(&mut block, tid.get(), seconds, nanoseconds);
        self.write_last(self.device_block(at, 0)?, &block)
            .map_err(JournalError::io("writing the commit record"))
    }

    /// Writes the block that makes a commit one. With barriers it is durable, and everything that
    /// was written to the log's device before is durable first.
    fn write_last(&self, at: Pblk, block: &[u8]) -> std::io::Result<()> {
        let past = || std::io::Error::other("a log block lies past the device");
        let offset = self.bs.dev_off(at).ok_or_else(past)?;
        if self.failpoint.is(Failpoint::FlushLeftOut) {
            let written = self.dev.write_at(offset, block);
            written.and_then(|()| self.dev.flush())
        } else if self.barrier {
            self.dev.write_durable(offset, block)
        } else {
            self.dev.write_at(offset, block)
        }
    }

    /// Clears the head of the fast commits in the area, durably: their transaction is in the log,
    /// and e2fsck would not read a log beside which they stand.
    pub(crate) fn clear_fast_head(&self) -> Result<(), JournalError> {
        let first = self.fast_area.lock().first_block();
        self.clear_area_block(first)
    }

    /// Clears what a log without any fast commits has left in its area, as far as it is looked at:
    /// the head, and the block that stays unused.
    pub(crate) fn clear_fast_area(&self) -> Result<(), JournalError> {
        let unused = self.fast_area.lock().unused_block();
        self.clear_area_block(unused)?;
        self.clear_fast_head()
    }

    fn clear_area_block(&self, at: Option<u32>) -> Result<(), JournalError> {
        let Some(at) = at else {
            return Ok(());
        };
        let place = ensure_some(
            self.map.block(at),
            "the fast-commit area is not in the log's map",
        )?;
        self.write_last(place, &vec![0; self.bs.bytes()])
            .map_err(JournalError::io("clearing the area of fast commits"))
    }

    /// Writes the whole blocks `bytes` of a fast commit at block `at` of the journal, one of them
    /// as [`Log::write_commit`] does: the last or, of the first fast commit of a transaction, the
    /// first. That one has the head, without which nothing is read. e2fsck and Linux refuse the
    /// whole log for a head whose fast commit is torn.
    pub(crate) fn write_fast(
        &self,
        at: u32,
        bytes: &[u8],
        has_head: bool,
    ) -> Result<(), JournalError> {
        let io = JournalError::io("writing a fast commit");
        let located: Result<Vec<(Pblk, &[u8])>, JournalError> = (at..)
            .zip(bytes.chunks(self.bs.bytes()))
            .map(|(at, block)| {
                let place = self.map.block(at);
                let place = ensure_some(place, "the fast-commit area is not in the log's map")?;
                Ok((place, block))
            })
            .collect();
        let mut located = located?;
        if has_head && !located.is_empty() {
            located.rotate_left(1);
        }
        let Some((last, block)) = located.pop() else {
            return Ok(());
        };
        let written = write_blocks(&*self.dev, self.bs, located);
        written
            .and_then(|()| self.write_last(last, block))
            .map_err(io)
    }

    /// Wakes all threads that wait for this log, because the journal has stopped.
    pub(crate) fn wake_all(&self) {
        // A thread that has looked at the state under this lock is waiting by now.
        drop(self.index.lock());
        self.batch_written.notify_all();
        self.checkpoint_work.notify_all();
    }

    /// Tells the checkpoint thread to end.
    pub(crate) fn stop(&self) {
        self.index.lock().stopping = true;
        self.checkpoint_work.notify_all();
    }
}
