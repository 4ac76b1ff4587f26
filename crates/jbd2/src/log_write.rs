//! Writing a transaction to the log: revoke blocks, descriptors and copies, the commit record.
//!
//! # Invariants
//! - J27: the transaction fits between head and tail, and its blocks are not checkpointed before
//!   its commit record is durable.
//! - J28: no block is revoked by the transaction that logs it. A revoke record suppresses the
//!   copies of its own transaction too, so the block would be lost.

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use extant_disk::jbd2::descriptor::{Tag, escape, needs_escape};
use extant_failpoint::Failpoint;
use extant_units::{Pblk, Tid};

use crate::blockio::write_blocks;
use crate::error::{JournalError, ensure};
use crate::log::Log;
use crate::shared::{Shared, count};
use crate::transaction::{Parts, PblkSet, Snapshot, take_snapshots};

/// The blocks of a transaction in the log, in front of its commit record.
type Image<'a> = Vec<Cow<'a, [u8]>>;

impl Shared {
    /// Makes `tid` durable through the log. See `commit.rs` for the steps and their order.
    pub(crate) fn commit_to_log(
        &self,
        log: &Log,
        tid: Tid,
        parts: &mut Parts,
    ) -> Result<(), JournalError> {
        let blocks = std::mem::take(&mut parts.blocks);
        log.index.lock().mark_resident(tid, &blocks);
        let snapshots = take_snapshots(tid, &blocks);
        let resident = blocks.iter().map(|block| block.pblk().get()).collect();
        drop(blocks);
        let logs_revoked = |s: &Snapshot| parts.revokes.contains(&s.block.pblk().get());
        let distinct = parts.revokes.is_empty() || !snapshots.iter().any(logs_revoked);
        ensure(distinct, "J28: a transaction revokes a block that it logs")?;

        let image = self.image(log, tid, &snapshots, &parts.revokes);
        let len = self.log_blocks(log, &image, &snapshots, &parts.revokes)?;
        self.wait_for_log_blocks(log, len)?;
        if log.has_fast_area() && log.index.lock().would_wrap(len) {
            self.begin_anew(log, tid)?;
        }
        let (head, next) = {
            let index = log.index.lock();
            (index.head(), index.next())
        };
        ensure(next == tid, "the ids of transactions in the log have a gap")?;
        self.check_alive()?;
        if self.config.failpoint.is(Failpoint::HomeBeforeCommit) {
            self.write_home_early(&snapshots)?;
        }
        log.name_first_tail(head, tid)?;
        log.write(head, image.iter().map(|block| &**block))?;
        drop(image);
        // What is written from here on is not covered by this commit.
        self.note_flushing();
        if log.external && !self.config.failpoint.is(Failpoint::CommitBeforeVolumeFlush) {
            // The preflush of the commit record covers blocks and data only on the log's device.
            self.flush()?;
        }
        self.check_alive()?;
        log.write_commit(log.ring.advance(head, len - 1), tid, now())?;

        let c = &self.counters;
        count(&c.blocks_logged, snapshots.len() as u64);
        count(&c.revokes, parts.revokes.len() as u64);
        count(&c.log_blocks_written, len.into());
        self.add_committed(log, len, resident, snapshots, &parts.forgotten)
    }

    /// The log blocks of a transaction: its image and the commit record.
    fn log_blocks(
        &self,
        log: &Log,
        image: &Image<'_>,
        snapshots: &[Snapshot],
        revokes: &PblkSet,
    ) -> Result<u32, JournalError> {
        let too_large = |_| JournalError::TransactionTooLarge {
            needed: u32::MAX,
            log: log.ring.len(),
        };
        let [len, copies, revokes] = [image.len() + 1, snapshots.len(), revokes.len()]
            .map(|count| u32::try_from(count).map_err(too_large));
        let (len, copies, revokes) = (len?, copies?, revokes?);
        let declared = self.sizes.log_blocks(copies, revokes);
        ensure(
            declared == len.into(),
            "J22: a transaction's size is miscounted",
        )?;
        Ok(len)
    }

    /// Failpoint `home_before_commit`: writes blocks to their home locations before the commit is
    /// durable.
    fn write_home_early(&self, snapshots: &[Snapshot]) -> Result<(), JournalError> {
        let pieces = snapshots.iter().map(|s| (s.block.pblk(), &*s.data));
        write_blocks(&**self.cache.device(), self.cache.block_size(), pieces)
            .map_err(JournalError::io("writing metadata blocks"))
    }

    /// The blocks to write in front of the commit record.
    fn image<'a>(
        &self,
        log: &Log,
        tid: Tid,
        snapshots: &'a [Snapshot],
        revokes: &PblkSet,
    ) -> Image<'a> {
        let format = &log.format;
        let bs = self.cache.block_size().bytes();
        let mut revoked: Vec<Pblk> = revokes.iter().copied().map(Pblk::new).collect();
        revoked.sort_unstable();
        // Room for a descriptor per 32 copies; the vector grows if blocks hold fewer tags.
        let mut image = Vec::with_capacity(snapshots.len() + snapshots.len() / 32 + 8);
        for records in revoked.chunks(format.revokes_per_block(bs)) {
            let mut block = vec![0; bs];
            format.write_revokes(&mut block, tid.get(), records);
            image.push(Cow::Owned(block));
        }
        for group in snapshots.chunks(format.tags_per_block(bs)) {
            let mut tags = Vec::with_capacity(group.len());
            let mut copies: Image<'a> = Vec::with_capacity(group.len());
            for snapshot in group {
                let mut copy: Cow<'a, [u8]> = Cow::Borrowed(&snapshot.data);
                let escaped = needs_escape(&copy);
                if escaped {
                    escape(copy.to_mut());
                }
                debug_assert!(
                    !needs_escape(&copy),
                    "no copy looks like a block of the log"
                );
                tags.push(Tag {
                    block: snapshot.block.pblk(),
                    escaped,
                    checksum: format.copy_checksum(tid.get(), &copy),
                });
                copies.push(copy);
            }
            let mut descriptor = vec![0; bs];
            format.write_descriptor(&mut descriptor, tid.get(), &tags);
            image.push(Cow::Owned(descriptor));
            image.append(&mut copies);
        }
        image
    }

    /// Waits until the log has `len` free blocks. It has them already, unless handles used more
    /// than they declared.
    fn wait_for_log_blocks(&self, log: &Log, len: u32) -> Result<(), JournalError> {
        while log.index.lock().free() < len {
            if !self.checkpoint_for(len.into())? && log.index.lock().free() < len {
                return Err(JournalError::TransactionTooLarge {
                    needed: len,
                    log: log.ring.len(),
                });
            }
        }
        Ok(())
    }

    /// Empties the log, and has `tid` begin at its first block. Beside an area for fast commits no
    /// log wraps: e2fsck, and Linux before 6.5, read on into the area at its end.
    fn begin_anew(&self, log: &Log, tid: Tid) -> Result<(), JournalError> {
        self.checkpoint_for(log.ring.len().into())?;
        log.begin_anew(&log.lock_checkpoint(), tid)
    }

    /// Adds a durable transaction to the index. Returns when no checkpoint is writing a block that
    /// the transaction freed.
    fn add_committed(
        &self,
        log: &Log,
        len: u32,
        resident: Vec<u64>,
        snapshots: Vec<Snapshot>,
        freed: &PblkSet,
    ) -> Result<(), JournalError> {
        let mut index = log.index.lock();
        index.add_committed(len, resident, snapshots, freed)?;
        if index
            .checkpoint_target(self.cache.budget_blocks())
            .is_some()
        {
            log.checkpoint_work.notify_one();
        }
        while index.is_in_flight(freed) {
            self.check_alive()?;
            log.batch_written.wait(&mut index);
        }
        Ok(())
    }
}

/// Seconds and nanoseconds since 1970; zero on a host whose clock is earlier.
pub(crate) fn now() -> (u64, u32) {
    extant_sync::time::system_now()
        .duration_since(UNIX_EPOCH)
        .map_or((0, 0), |time| (time.as_secs(), time.subsec_nanos()))
}
