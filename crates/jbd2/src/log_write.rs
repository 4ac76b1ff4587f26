//! Writing a transaction to the log: revoke blocks, descriptors and copies, the commit record.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use extant_disk::jbd2::descriptor::{Tag, escape, needs_escape};
use extant_failpoint::Failpoint;
use extant_units::{Pblk, Tid};

use crate::blockio::write_blocks;
use crate::commit::Snapshot;
use crate::error::JournalError;
use crate::journal::Core;
use crate::log::Log;
use crate::transaction::{Parts, PblkSet};

impl Core {
    /// Makes `tid` durable through the log. See `commit.rs` for the steps and their order.
    pub(crate) fn commit_to_log(
        &self,
        log: &Log,
        tid: Tid,
        parts: &mut Parts,
    ) -> Result<(), JournalError> {
        let blocks = std::mem::take(&mut parts.blocks);
        log.index.lock().note_logging(tid, &blocks);
        let snapshots = self.snapshots(tid, &blocks);
        let noted = blocks.iter().map(|block| block.pblk().get()).collect();
        drop(blocks);

        let image = self.image(log, tid, &snapshots, &parts.revokes);
        let len = u32::try_from(image.len() + 1).unwrap_or(u32::MAX);
        self.wait_for_log_blocks(log, len)?;
        let (head, next) = {
            let index = log.index.lock();
            (index.head(), index.next())
        };
        if next != tid {
            let why = format!("internal error: transaction {tid} where {next} belongs");
            return Err(JournalError::Aborted(why.into()));
        }
        self.check_alive()?;
        if self.config.failpoint.is(Failpoint::HomeBeforeCommit) {
            self.write_home_early(&snapshots)?;
        }
        log.begin(head, tid)?;
        log.write(head, image.iter().map(|block| &**block))?;
        drop(image);
        if log.external {
            // Blocks and data at home are covered by the record's preflush only on the log's device.
            self.flush()?;
        }
        self.note_flushing();
        self.check_alive()?;
        log.write_commit(log.ring.advance(head, len - 1), tid, now())?;

        let c = &self.counters;
        let add = |counter: &std::sync::atomic::AtomicU64, n: usize| {
            counter.fetch_add(n as u64, Ordering::Relaxed);
        };
        add(&c.blocks_logged, snapshots.len());
        add(&c.revokes, parts.revokes.len());
        c.log_blocks_written
            .fetch_add(len.into(), Ordering::Relaxed);
        self.note_committed(log, len, noted, snapshots, &parts.forgotten)
    }

    /// Failpoint `home_before_commit`: writes blocks to their place before the commit is durable.
    fn write_home_early(&self, snapshots: &[Snapshot]) -> Result<(), JournalError> {
        let pieces = snapshots.iter().map(|s| (s.block.pblk(), &*s.data));
        write_blocks(&**self.cache.device(), self.cache.block_size(), pieces)
            .map_err(JournalError::io("writing metadata blocks home"))
    }

    /// The blocks to write in front of the commit record.
    fn image<'a>(
        &self,
        log: &Log,
        tid: Tid,
        snapshots: &'a [Snapshot],
        revokes: &PblkSet,
    ) -> Vec<Cow<'a, [u8]>> {
        let format = &log.format;
        let bs = self.cache.block_size().bytes();
        let mut revoked: Vec<Pblk> = revokes.iter().copied().map(Pblk::new).collect();
        revoked.sort_unstable();
        let mut image = Vec::with_capacity(snapshots.len() + snapshots.len() / 32 + 8);
        for records in revoked.chunks(format.revokes_per_block(bs).max(1)) {
            let mut block = vec![0; bs];
            format.write_revokes(&mut block, tid.get(), records);
            image.push(Cow::Owned(block));
        }
        for group in snapshots.chunks(format.tags_per_block(bs).max(1)) {
            let descriptor = image.len();
            image.push(Cow::Borrowed(&[][..]));
            let tags: Vec<Tag> = group
                .iter()
                .map(|snapshot| {
                    let mut copy: Cow<'a, [u8]> = Cow::Borrowed(&snapshot.data);
                    let escaped = needs_escape(&copy);
                    if escaped {
                        escape(copy.to_mut());
                    }
                    let tag = Tag {
                        block: snapshot.block.pblk(),
                        escaped,
                        checksum: format.copy_checksum(tid.get(), &copy),
                    };
                    image.push(copy);
                    tag
                })
                .collect();
            let mut block = vec![0; bs];
            format.write_descriptor(&mut block, tid.get(), &tags);
            if let Some(slot) = image.get_mut(descriptor) {
                *slot = Cow::Owned(block);
            }
        }
        image
    }

    /// Waits until the log has `len` free blocks. It has, unless handles used more than they declared.
    fn wait_for_log_blocks(&self, log: &Log, len: u32) -> Result<(), JournalError> {
        while log.index.lock().free() < len {
            if !self.checkpoint_for(len)? && log.index.lock().free() < len {
                return Err(JournalError::TransactionTooLarge {
                    needed: len,
                    log: log.ring.len(),
                });
            }
        }
        Ok(())
    }

    /// Enters a durable transaction into the index. Returns when nothing that it freed is on its way home.
    fn note_committed(
        &self,
        log: &Log,
        len: u32,
        noted: Vec<u64>,
        snapshots: Vec<Snapshot>,
        freed: &PblkSet,
    ) -> Result<(), JournalError> {
        let mut index = log.index.lock();
        index.committed(len, noted, snapshots, freed);
        if index.wanted(self.cache.budget_blocks()).is_some() {
            log.pressure.notify_one();
        }
        while index.is_in_flight(freed) {
            self.check_alive()?;
            log.landed.wait(&mut index);
        }
        Ok(())
    }
}

/// Seconds and nanoseconds since 1970.
fn now() -> (u64, u32) {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or((0, 0), |time| (time.as_secs(), time.subsec_nanos()))
}
