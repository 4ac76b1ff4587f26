//! Bringing the copy to the device, at once.
//!
//! With a journal, a cut at any write leaves the old volume or the new one:
//!
//! ```text
//! 1. blocks that the old volume does not use     directly; nothing leads to them
//! 2. superblock: needs recovery                  the log is empty: still the old volume
//! 3. one transaction with all other blocks       in the log, which is not begun yet
//! 4. the sector that begins the log              from here on, the new volume
//! 5. recovery                                    as after a crash
//! 6. copies of superblock and descriptors      only a repair reads them
//! ```
//!
//! The sector of step 4 is that of the log's superblock. If the log moves, it is that of the
//! journal's inode: the new log is complete before, and a transaction of its own leads to the same
//! blocks, so that a recovery that was cut short finds it again, whichever superblock it reads.
//!
//! A cut in step 6, or before it, leaves copies of the old volume; the same resize again writes
//! them. The superblock of the first copy is written last, once all else is durable: a mount that
//! is asked to grow to the size that it has looks at that one only.
//!
//! Without a journal the volume is marked as not clean first, and the superblock is written last: a
//! cut on the way leaves an image that has to be checked.

use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use extant_blockdev::{BlockDevice, memory_share};
use extant_disk::bitmap;
use extant_disk::features::Incompat;
use extant_disk::jbd2::descriptor::{Tag, escape, needs_escape};
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State};
use extant_jbd2::{LogMap, recover_within};
use extant_units::{Blocks, DevOff, Group, Pblk, at_most_u32};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::prepare::Judged;
use crate::volume::{Volume, edit_super, read_super};

/// Bytes that a drive writes whole.
const SECTOR: usize = 512;
/// Bytes that are written together.
const WRITE_BYTES: usize = 1 << 20;
/// Blocks of a transaction beside those that are counted: what a log that moves changes.
const MARGIN: u64 = 64;

/// The blocks that differ.
#[derive(Default)]
pub(crate) struct Changes {
    /// Those that the old volume does not use.
    direct: Vec<u64>,
    /// Those that it uses.
    used: Vec<u64>,
}

impl Volume {
    /// The blocks that differ between the copy and the device.
    pub(crate) fn changes(&self) -> Result<Changes> {
        let log2 = self.old.block_size.log2();
        let mut changes = Changes::default();
        let (mut group, mut bits) = (u32::MAX, Vec::new());
        let mut next = 0;
        for range in self.dev.changed() {
            let end = range.end.get().div_ceil(1 << log2).min(self.new.blocks);
            for block in (range.start.get() >> log2).max(next)..end {
                next = block + 1;
                if self.block(block)? == self.old_block(block)? {
                    continue;
                }
                let of = self.old.group_of(block);
                if of != group && block < self.old.blocks {
                    (group, bits) = (of, self.old_bitmap(of)?);
                }
                // No bitmap has the blocks before the first group.
                let behind = block.saturating_sub(self.old.group_start(of));
                let bit = at_most_u32(behind >> self.old.cluster_bits);
                let used = block < self.old.first_block()
                    || (block < self.old.blocks && bitmap::test(&bits, bit));
                match used {
                    true => changes.used.push(block),
                    false => changes.direct.push(block),
                }
            }
        }
        for blocks in [&changes.direct, &changes.used] {
            assert!(
                blocks.is_sorted_by(|one, next| one < next),
                "each block once"
            );
        }
        Ok(changes)
    }

    /// How many blocks a log needs for a transaction of all blocks in use that differ, if that is
    /// more than it has.
    pub(crate) fn log_shortage(&self) -> Result<Option<u64>> {
        let (Some(log), Some(superblock)) = (&self.log, self.log_super()?) else {
            return Ok(None);
        };
        let superblock = self.upgraded(superblock);
        let per_block = superblock.format().tags_per_block(self.block_bytes());
        let usable = u64::from(superblock.first())..u64::from(superblock.end());
        let needed = log_needed(
            self.changes()?.used.len() as u64,
            per_block.max(1) as u64,
            &usable,
            self.old_log_len()?,
        );
        Ok((needed > log.len()).then_some(needed))
    }

    fn old_log_len(&self) -> Result<u64> {
        match self.journal() {
            Some(ino) => Ok(self.old_log(ino)?.len()),
            None => Ok(0),
        }
    }

    /// Writes the new volume, which was `judged`.
    ///
    /// # Errors
    /// [`Error::Begun`], whatever it was: what the new volume has may be needed.
    pub(crate) fn commit(&self, judged: Judged) -> Result<()> {
        let stored = read_super(&*self.dev)?.blocks_count().get();
        // Nothing is harmed: the device has not been written to by the commit.
        assert_eq!(stored, self.new.blocks, "what is committed was stored");
        assert_eq!(judged.blocks, stored, "what is committed was judged");
        self.write().map_err(|error| Error::Begun(Box::new(error)))
    }

    /// Writes nothing but the copies of superblock and descriptors.
    ///
    /// # Errors
    /// As [`Volume::commit`].
    pub(crate) fn commit_copies(&self) -> Result<()> {
        let written = self.write_copies();
        written.map_err(|error| Error::Begun(Box::new(error)))
    }

    fn write(&self) -> Result<()> {
        let dev = self.dev.base();
        let changes = self.changes()?;
        let mut writes = Writes::new(self);
        for block in &changes.direct {
            writes.add(*block, &self.block(*block)?)?;
        }
        writes.end()?;
        dev.flush()?;
        match (&self.log, self.log_super()?) {
            (Some(log), Some(superblock)) => self.through_log(log, superblock, &changes.used)?,
            _ => self.in_place(&changes.used)?,
        }
        self.write_copies()
    }

    fn through_log(&self, log: &LogMap, superblock: JournalSuperblock, used: &[u64]) -> Result<()> {
        let dev = self.dev.base();
        let mut superblock = self.upgraded(superblock);
        superblock.set_len(at_most_u32(log.len()));
        set_recover(dev, true)?;
        self.write_transaction(log, &superblock, used)?;
        superblock.set_tail(superblock.first(), superblock.sequence());
        let at = self.log_block(log, 0)?;
        match self.log_moved {
            false => self.write_first_sector(at, &superblock)?,
            true => {
                let mut block = vec![0; self.block_bytes()];
                if let Some(head) = block.get_mut(..SUPERBLOCK_SIZE) {
                    head.copy_from_slice(&superblock.to_bytes());
                }
                dev.write_at(self.at(at.get())?, &block)?;
                dev.flush()?;
                self.switch_log()?;
            }
        }
        let blocks = Blocks::new(self.old.blocks.max(self.new.blocks));
        let bs = self.old.block_size;
        let recovery = recover_within(dev, bs, log, blocks, memory_share())?;
        if let Some(copies) = recovery.skipped_copies() {
            return Err(Error::Unreadable(copies.to_string()));
        }
        set_recover(dev, false)
    }

    /// The log's superblock with the features that the transaction needs: they decide how many
    /// blocks a descriptor has room for.
    fn upgraded(&self, mut superblock: JournalSuperblock) -> JournalSuperblock {
        let features = self.old.features;
        let wide = features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        superblock.upgrade(wide, features.metadata_csum());
        superblock.disable_fast_commits();
        superblock
    }

    /// The block of the device that block `at` of the log is.
    fn log_block(&self, log: &LogMap, at: u32) -> Result<Pblk> {
        let block = log.block(at);
        block.ok_or_else(|| Error::unreadable(format_args!("the log has no block {at}")))
    }

    /// Writes the transaction and makes it durable.
    fn write_transaction(
        &self,
        log: &LogMap,
        superblock: &JournalSuperblock,
        used: &[u64],
    ) -> Result<()> {
        let (dev, format) = (self.dev.base(), superblock.format());
        let (sequence, len) = (superblock.sequence(), self.block_bytes());
        // Nothing is harmed: the log holds no transaction yet.
        assert!(
            !used.iter().any(|block| log.contains(Pblk::new(*block))),
            "no block of the log is in its own transaction"
        );
        let (mut logged, mut descriptors) = (0, 0);
        let mut at = superblock.first();
        let mut writes = Writes::new(self);
        let mut write = |bytes: &[u8]| -> Result<()> {
            if at >= superblock.end() {
                return Err(Error::Unsupported(
                    "its journal is too small for the resize",
                ));
            }
            let block = self.log_block(log, at)?;
            at += 1;
            writes.add(block.get(), bytes)
        };
        for part in used.chunks(format.tags_per_block(len).max(1)) {
            let (mut tags, mut copies) = (Vec::new(), Vec::new());
            for block in part {
                let mut copy = self.logged(*block)?;
                let escaped = needs_escape(&copy);
                if escaped {
                    escape(&mut copy);
                }
                tags.push(Tag {
                    block: Pblk::new(*block),
                    escaped,
                    checksum: format.copy_checksum(sequence, &copy),
                });
                copies.push(copy);
            }
            let mut descriptor = vec![0; len];
            format.write_descriptor(&mut descriptor, sequence, &tags);
            debug_assert_eq!(tags.len(), copies.len(), "each copy has a tag");
            descriptors += 1;
            write(&descriptor)?;
            for copy in copies {
                logged += 1;
                write(&copy)?;
            }
        }
        let mut commit = vec![0; len];
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        format.write_commit(&mut commit, sequence, now.as_secs(), now.subsec_nanos());
        assert_eq!(logged, used.len(), "each block is logged once");
        write(&commit)?;
        assert_eq!(
            (at - superblock.first()) as usize,
            logged + descriptors + 1,
            "the transaction is copies, descriptors and a commit block"
        );
        writes.end()?;
        Ok(dev.flush()?)
    }

    /// A block as it goes to the log: until the recovery has ended, the superblock asks for it.
    fn logged(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = self.block(block)?;
        let log2 = self.old.block_size.log2();
        if block == SUPERBLOCK_OFFSET >> log2 {
            let at = extant_units::index(SUPERBLOCK_OFFSET - (block << log2));
            if let Some(slot) = bytes.get_mut(at..at + SUPERBLOCK_SIZE)
                && let Some(mut raw) = RawSuperblock::copy_from(slot)
            {
                recover(&mut raw, true);
                raw.seal();
                slot.copy_from_slice(raw.as_bytes());
            }
        }
        Ok(bytes)
    }

    /// Writes the part of the log's superblock that says where the log begins.
    fn write_first_sector(&self, at: Pblk, superblock: &JournalSuperblock) -> Result<()> {
        let bytes = superblock.to_bytes();
        let at = self.at(at.get())?;
        Ok(self.dev.base().write_durable(at, &bytes[..SECTOR])?)
    }

    /// Writes the journal's inode as it becomes, where it is: one sector.
    fn switch_log(&self) -> Result<()> {
        let Some(ino) = self.journal() else {
            return Ok(());
        };
        let record = self.record(ino)?;
        let (block, at) = self.old_record_at(ino)?;
        let mut new = self.old_block(block)?;
        let old = new.clone();
        new[at..at + record.len()].copy_from_slice(&record);
        let start = self.at(block)?;
        let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR)).enumerate();
        let changed: Vec<_> = sectors.filter(|(_, (old, new))| old != new).collect();
        // Nothing is harmed: the volume on the device is the old one until the sector is written.
        assert!(changed.len() <= 1, "one sector switches the log");
        for (nth, (_, sector)) in changed {
            let at = start.plus((nth * SECTOR) as u64);
            self.dev.base().write_durable(at, sector)?;
        }
        Ok(())
    }

    /// Without a journal.
    fn in_place(&self, used: &[u64]) -> Result<()> {
        let dev = self.dev.base();
        edit_super(dev, |raw| raw.set_state(raw.state() - State::VALID))?;
        let of_super = SUPERBLOCK_OFFSET >> self.old.block_size.log2();
        for block in used.iter().filter(|block| **block != of_super) {
            dev.write_at(self.at(*block)?, &self.block(*block)?)?;
        }
        let raw = read_super(&*self.dev)?.raw().clone();
        // The mark that the volume is being changed goes by itself, last: by it a mount knows a
        // superblock that a power failure tore.
        let mut marked = raw.clone();
        marked.set_state(raw.state() - State::VALID);
        marked.seal();
        let at = DevOff::new(SUPERBLOCK_OFFSET);
        dev.write_durable(at, marked.as_bytes())?;
        Ok(dev.write_durable(at, raw.as_bytes())?)
    }

    /// Writes the copies of superblock and descriptors in other groups, as mke2fs leaves them: not
    /// marked as unmounted cleanly, so that a volume is checked that is mounted by one.
    fn write_copies(&self) -> Result<()> {
        let dev = self.dev.base();
        let sb = read_super(dev)?;
        let new = &self.new;
        let superblock = |group: u32| -> Result<()> {
            let mut block = vec![0; self.block_bytes()];
            let copy = sb.raw().backup(Group::new(group));
            block[..SUPERBLOCK_SIZE].copy_from_slice(copy.as_bytes());
            Ok(dev.write_at(self.at(new.group_start(group))?, &block)?)
        };
        let first = new.backup_groups().next();
        for group in (1..new.groups).rev() {
            if let Some((start, blocks)) = new.desc_copy(group) {
                let mut bytes = Vec::new();
                for at in blocks {
                    bytes.extend(self.old_block(new.desc_block(at))?);
                }
                dev.write_at(self.at(start)?, &bytes)?;
            }
            if new.has_backup(group) && Some(group) != first {
                superblock(group)?;
            }
        }
        dev.flush()?;
        if let Some(first) = first {
            superblock(first)?;
        }
        Ok(dev.flush()?)
    }
}

/// The blocks of a log for a transaction of `used` blocks, of which a descriptor names `per_block`.
/// The log has `len` blocks and uses those in `usable`: in front of them is its superblock, behind
/// them what is reserved for fast commits.
fn log_needed(used: u64, per_block: u64, usable: &Range<u64>, len: u64) -> u64 {
    let blocks = used + MARGIN;
    // A commit block, and one to spare.
    let transaction = blocks + blocks.div_ceil(per_block) + 2;
    let apart = usable.start + (len - usable.end);
    transaction + apart
}

/// Writes of whole blocks, of which neighbours go to the device together.
struct Writes<'a> {
    volume: &'a Volume,
    first: u64,
    bytes: Vec<u8>,
}

impl<'a> Writes<'a> {
    fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            first: 0,
            bytes: Vec::new(),
        }
    }

    fn add(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        debug_assert_eq!(bytes.len(), self.volume.block_bytes(), "a whole block");
        let waiting = (self.bytes.len() / self.volume.block_bytes()) as u64;
        if self.bytes.len() >= WRITE_BYTES || block != self.first + waiting {
            self.end()?;
        }
        if self.bytes.is_empty() {
            self.first = block;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what waits.
    fn end(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            let at = self.volume.at(self.first)?;
            self.volume.dev.base().write_at(at, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Marks a superblock as one whose log holds transactions, or not.
fn recover(raw: &mut RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(features);
}

fn set_recover(dev: &Arc<dyn BlockDevice>, on: bool) -> Result<()> {
    edit_super(dev, |raw| recover(raw, on))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_needs_room_for_the_transaction_and_what_lies_apart() {
        // Copies with the margin, descriptors, two more, the superblock.
        assert_eq!(log_needed(36, 50, &(1..1024), 1024), 100 + 2 + 2 + 1);
        assert_eq!(log_needed(37, 50, &(1..1024), 1024), 101 + 3 + 2 + 1);
        // The last 256 blocks are reserved for fast commits.
        let apart = 2 + 256;
        assert_eq!(log_needed(36, 50, &(2..768), 1024), 100 + 2 + 2 + apart);
    }
}
