//! REPLAY: reading copies from the log, checking them, writing them home.

use extant_disk::jbd2::descriptor::unescape;
use extant_units::Pblk;

use super::LogReader;
use super::scan::LoggedCopy;
use crate::blockio::write_blocks;
use crate::error::JournalError;

/// Copies that are in memory together.
const BATCH: usize = 1024;

/// Checks the checksums of all `copies`.
pub(super) fn verify(reader: &LogReader<'_>, copies: &[LoggedCopy]) -> Result<(), JournalError> {
    if !reader.format.has_block_checksums() {
        return Ok(());
    }
    let mut block = reader.block();
    copies
        .iter()
        .try_for_each(|copy| load(reader, copy, &mut block))
}

/// Writes `copies`, which are in the order of their targets, home.
pub(super) fn write_home(
    reader: &LogReader<'_>,
    copies: &[LoggedCopy],
) -> Result<(), JournalError> {
    for batch in copies.chunks(BATCH) {
        let mut blocks: Vec<(Pblk, Vec<u8>)> = Vec::with_capacity(batch.len());
        for copy in batch {
            let mut block = reader.block();
            load(reader, copy, &mut block)?;
            blocks.push((copy.target, block));
        }
        let pieces = blocks.iter().map(|(target, bytes)| (*target, &**bytes));
        write_blocks(reader.dev, reader.bs, pieces)
            .map_err(JournalError::io("replaying the journal"))?;
    }
    Ok(())
}

/// Reads a copy, checks it, and undoes its escaping.
fn load(reader: &LogReader<'_>, copy: &LoggedCopy, block: &mut [u8]) -> Result<(), JournalError> {
    reader.read(copy.at, block)?;
    let format = &reader.format;
    if format.has_block_checksums() && format.copy_checksum(copy.tid.get(), block) != copy.checksum
    {
        return Err(JournalError::corrupt(format!(
            "transaction {}, log block {}: wrong checksum of the copy of block {}",
            copy.tid, copy.at, copy.target
        )));
    }
    if copy.escaped {
        unescape(block);
    }
    Ok(())
}
