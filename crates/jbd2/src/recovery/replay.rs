//! REPLAY: reading copies from the log, checking them, writing them to their home locations.

use std::collections::HashSet;

use extant_disk::damage::{JournalDamage, SkippedCopies, SkippedCopy};
use extant_disk::jbd2::descriptor::unescape;
use extant_units::Pblk;

use super::last_copies::LastCopies;
use super::reader::LogReader;
use super::scan::{LoggedCopy, Scan};
use crate::blockio::write_blocks;
use crate::error::JournalError;
use crate::hash::NumberHash;

/// Copies that are in memory together.
const BATCH: usize = 1024;

/// Removes the copies from `last` whose checksums are wrong, and replaces each by the copy before
/// it, where the log has a good one. Returns how many were wrong, and the first of them.
pub(super) fn skip_damaged(
    reader: &LogReader<'_>,
    scan: &Scan,
    last: &mut LastCopies,
) -> Result<(u64, Option<SkippedCopy>), JournalError> {
    if !reader.format.has_block_checksums() {
        return Ok((0, None));
    }
    let mut block = reader.buffer();
    let mut good = Vec::with_capacity(last.copies.len());
    let mut damaged: HashSet<u64, NumberHash> = HashSet::default();
    let mut first = None;
    for copy in &last.copies {
        reader.read(copy.at, &mut block)?;
        if has_right_checksum(reader, copy, &block) {
            good.push(*copy);
        } else {
            let skipped = skipped(copy);
            tracing::debug!(%skipped, "a copy is skipped");
            first.get_or_insert(skipped);
            damaged.insert(copy.target.get());
        }
    }
    let skipped = damaged.len() as u64;
    if skipped > 0 {
        for copy in scan.copies.iter().rev() {
            if damaged.contains(&copy.target.get()) && !last.is_void(copy) {
                reader.read(copy.at, &mut block)?;
                if has_right_checksum(reader, copy, &block) {
                    damaged.remove(&copy.target.get());
                    good.push(*copy);
                }
            }
        }
    }
    last.replace(good);
    Ok((skipped, first))
}

fn has_right_checksum(reader: &LogReader<'_>, copy: &LoggedCopy, block: &[u8]) -> bool {
    let format = &reader.format;
    !format.has_block_checksums() || format.copy_checksum(copy.tid.get(), block) == copy.checksum
}

fn skipped(copy: &LoggedCopy) -> SkippedCopy {
    SkippedCopy {
        block: copy.target,
        tid: copy.tid,
        log_block: copy.at,
    }
}

/// Writes `copies`, which are in the order of their targets, to their home locations.
pub(super) fn write_copies(
    reader: &LogReader<'_>,
    copies: &[LoggedCopy],
) -> Result<(), JournalError> {
    for batch in copies.chunks(BATCH) {
        let mut blocks: Vec<(Pblk, Vec<u8>)> = Vec::with_capacity(batch.len());
        for copy in batch {
            let mut block = reader.buffer();
            load(reader, copy, &mut block)?;
            if is_zero(&block) && is_zero_on_device(reader, copy.target) {
                continue;
            }
            blocks.push((copy.target, block));
        }
        let pieces = blocks.iter().map(|(target, bytes)| (*target, &**bytes));
        write_blocks(reader.dev, reader.bs, pieces)
            .map_err(JournalError::io("replaying the journal"))?;
    }
    Ok(())
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

/// Returns whether `target` is known to be zeros on the device. One that cannot be read is written.
fn is_zero_on_device(reader: &LogReader<'_>, target: Pblk) -> bool {
    let Some(offset) = reader.bs.dev_off(target) else {
        return false;
    };
    let mut block = reader.buffer();
    reader.dev.read_at(offset, &mut block).is_ok() && is_zero(&block)
}

/// Reads a copy, checks it once more, and undoes its escaping.
fn load(reader: &LogReader<'_>, copy: &LoggedCopy, block: &mut [u8]) -> Result<(), JournalError> {
    reader.read(copy.at, block)?;
    if !has_right_checksum(reader, copy, block) {
        return Err(JournalDamage::Copies {
            copies: SkippedCopies {
                first: skipped(copy),
                more: 0,
            },
        }
        .into());
    }
    if copy.escaped {
        unescape(block);
    }
    Ok(())
}
