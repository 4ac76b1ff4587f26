//! The log on its device: superblock, geometry, and writing to it.
//!
//! # Locks
//! `turn` is held by whoever checkpoints, through I/O. `superblock` is held while it is written. `index` is
//! a leaf and never held through I/O.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::jbd2::Format;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_units::{BlockSize, Blocks, DevOff, Pblk, Tid};
use parking_lot::{Condvar, Mutex};

use crate::block::zeroed;
use crate::blockio::write_blocks;
use crate::cache::BlockCache;
use crate::config::Config;
use crate::error::JournalError;
use crate::log_index::{LogIndex, Ring, Tail};
use crate::log_map::LogMap;
use crate::sizes::Sizes;

/// The log of an open journal.
pub(crate) struct Log {
    dev: Arc<dyn BlockDevice>,
    map: LogMap,
    bs: BlockSize,
    pub(crate) format: Format,
    pub(crate) ring: Ring,
    barrier: bool,
    failpoint: ActiveFailpoint,
    /// Whether blocks live on another device than the log: then a flush of the log does not flush them.
    pub(crate) external: bool,
    superblock: Mutex<OnDisk>,
    pub(crate) index: Mutex<LogIndex>,
    /// A batch of blocks has been written home.
    pub(crate) landed: Condvar,
    /// The log may have become too full, or the checkpoint thread is to look up.
    pub(crate) pressure: Condvar,
    /// One checkpoint at a time.
    pub(crate) turn: Mutex<()>,
}

struct OnDisk {
    superblock: JournalSuperblock,
    /// The superblock on disk says that the log is empty: it must name a tail before anything is logged.
    empty: bool,
}

/// The journal's superblock as it is on the device, checked against the file system and the log's map.
pub(crate) fn read_superblock(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    map: &LogMap,
) -> Result<JournalSuperblock, JournalError> {
    map.check(Blocks::new(dev.len() >> bs.log2()))?;
    let mut block = vec![0; bs.bytes()];
    dev.read_at(superblock_offset(bs, map)?, &mut block)
        .map_err(JournalError::io("reading the journal's superblock"))?;
    Ok(JournalSuperblock::parse(&block, bs, map.len())?)
}

/// Writes the journal's superblock, durably with `barrier`: never before what was written earlier.
pub(crate) fn write_superblock(
    dev: &dyn BlockDevice,
    bs: BlockSize,
    map: &LogMap,
    superblock: &JournalSuperblock,
    barrier: bool,
) -> Result<(), JournalError> {
    let offset = superblock_offset(bs, map)?;
    let bytes = superblock.to_bytes();
    if barrier {
        dev.write_durable(offset, &bytes)
    } else {
        dev.write_at(offset, &bytes)
    }
    .map_err(JournalError::io("writing the journal's superblock"))
}

fn superblock_offset(bs: BlockSize, map: &LogMap) -> Result<DevOff, JournalError> {
    map.block(0)
        .and_then(|p| bs.dev_off(p))
        .ok_or_else(|| JournalError::corrupt("it has no blocks"))
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
        let mut superblock = read_superblock(&*dev, bs, &map)?;
        if superblock.start() != 0 {
            return Err(JournalError::NeedsRecovery);
        }
        if dev.is_read_only() {
            return Err(JournalError::ReadOnly);
        }
        let wide = cache.device_blocks().get() > u64::from(u32::MAX);
        if superblock.upgrade(wide, config.checksums) {
            write_superblock(&*dev, bs, &map, &superblock, config.barrier)?;
        }
        let ring = Ring {
            first: superblock.first(),
            end: superblock.end(),
        };
        // One past the number in the superblock, as Linux does: it may have been used.
        let next = Tid::new(superblock.sequence()).next();
        Ok(Self {
            external: !std::ptr::addr_eq(Arc::as_ptr(&dev), Arc::as_ptr(cache.device())),
            dev,
            map,
            bs,
            format: superblock.format(),
            ring,
            barrier: config.barrier,
            failpoint: config.failpoint,
            superblock: Mutex::new(OnDisk {
                superblock,
                empty: true,
            }),
            index: Mutex::new(LogIndex::new(ring, next)),
            landed: Condvar::new(),
            pressure: Condvar::new(),
            turn: Mutex::new(()),
        })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let fit = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Sizes::for_log(
            self.ring.len(),
            fit(self.format.tags_per_block(self.bs.bytes())),
            fit(self.format.revokes_per_block(self.bs.bytes())),
        )
    }

    pub(crate) fn next_tid(&self) -> Tid {
        self.index.lock().next()
    }

    pub(crate) fn recorded_errno(&self) -> i32 {
        self.superblock.lock().superblock.errno()
    }

    pub(crate) fn clear_errno(&self) -> Result<(), JournalError> {
        self.change(&mut self.superblock.lock(), |superblock| {
            superblock.clear_errno();
        })
    }

    /// Records that the journal stopped because of a fault, for the next user: a note, which may
    /// not arrive. It repeats the tail that was written last with success.
    pub(crate) fn record_errno(&self, errno: i32) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        on_disk.superblock.set_errno(errno);
        self.note(&on_disk.superblock)
    }

    /// Writes the superblock as well as can be.
    fn note(&self, superblock: &JournalSuperblock) -> Result<(), JournalError> {
        let offset = superblock_offset(self.bs, &self.map)?;
        self.dev
            .write_note(offset, &superblock.to_bytes())
            .map_err(JournalError::io("writing the journal's superblock"))
    }

    /// Names a tail in the superblock if that says the log is empty.
    pub(crate) fn begin(&self, start: u32, tid: Tid) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        if on_disk.empty {
            self.change(&mut on_disk, |superblock| {
                superblock.set_tail(start, tid.get());
            })?;
            on_disk.empty = false;
        }
        Ok(())
    }

    /// Moves the tail on disk. What was written to the log's device before is durable first.
    pub(crate) fn move_tail(&self, tail: Tail) -> Result<(), JournalError> {
        self.change(&mut self.superblock.lock(), |superblock| {
            superblock.set_tail(tail.start, tail.tid.get());
        })
    }

    /// Says on disk that the log is empty and will go on at `head` with `next`.
    pub(crate) fn mark_empty(&self, head: u32, next: Tid) -> Result<(), JournalError> {
        let mut on_disk = self.superblock.lock();
        if !on_disk.empty {
            self.change(&mut on_disk, |superblock| {
                superblock.set_tail(0, next.get());
                superblock.set_head(head);
            })?;
            on_disk.empty = true;
        }
        Ok(())
    }

    /// Changes the superblock on disk, and in memory if that succeeded: a later write must not say what a failed one did not.
    fn change(
        &self,
        on_disk: &mut OnDisk,
        change: impl FnOnce(&mut JournalSuperblock),
    ) -> Result<(), JournalError> {
        let mut changed = on_disk.superblock.clone();
        change(&mut changed);
        let written = write_superblock(&*self.dev, self.bs, &self.map, &changed, self.barrier);
        if written.is_err() && self.failpoint.is(Failpoint::TailAfterFailedFlush) {
            // The mistake: once more, past what the device remembers.
            self.note(&changed)?;
        } else {
            written?;
        }
        on_disk.superblock = changed;
        Ok(())
    }

    /// The device block of the log block `by` blocks after `at`.
    fn place(&self, at: u32, by: u32) -> Pblk {
        // The ring lies within the map: the superblock was checked against it.
        self.map
            .block(self.ring.advance(at, by))
            .unwrap_or(Pblk::MAX)
    }

    /// Writes consecutive log blocks from `at` on.
    pub(crate) fn write<'a>(
        &self,
        at: u32,
        blocks: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), JournalError> {
        let placed = (0..)
            .zip(blocks)
            .map(|(i, bytes)| (self.place(at, i), bytes));
        write_blocks(&*self.dev, self.bs, placed).map_err(JournalError::io("writing the log"))
    }

    /// Writes the commit record of `sequence` at log block `at`, durably and after all before it.
    pub(crate) fn write_commit(
        &self,
        at: u32,
        tid: Tid,
        since_1970: (u64, u32),
    ) -> Result<(), JournalError> {
        let mut block = zeroed(self.bs.bytes());
        if let Some(bytes) = Arc::get_mut(&mut block) {
            self.format
                .write_commit(bytes, tid.get(), since_1970.0, since_1970.1);
        }
        let offset = self.bs.dev_off(self.place(at, 0)).unwrap_or(DevOff::MAX);
        if self.failpoint.is(Failpoint::FlushLeftOut) {
            let written = self.dev.write_at(offset, &block);
            written.and_then(|()| self.dev.flush())
        } else if self.barrier {
            self.dev.write_durable(offset, &block)
        } else {
            self.dev.write_at(offset, &block)
        }
        .map_err(JournalError::io("writing the commit record"))
    }

    /// Wakes everybody who waits for this log, because the journal has stopped.
    pub(crate) fn wake_all(&self) {
        drop(self.index.lock());
        self.landed.notify_all();
        self.pressure.notify_all();
    }

    /// Lets the checkpoint thread end.
    pub(crate) fn stop(&self) {
        self.index.lock().stopping = true;
        self.pressure.notify_all();
    }
}
