//! One transaction in the place of the fast commits of a log: blocks as they are after these.
//!
//! The log holds nothing but the fast commits. The transaction has their number and begins at the
//! log's first block, so that its commit record replaces them in one durable write: a crash shows
//! the fast commits or the transaction. It may fill the whole log, unlike that of a handle.

use std::io;

use extant_blockdev::BlockDevice;
use extant_disk::jbd2::descriptor::{Tag, escape, needs_escape};
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_units::{BlockSize, Pblk, Tid};

use super::reader::LogReader;
use super::scan;
use crate::blockio::write_blocks;
use crate::error::JournalError;
use crate::log_map::LogMap;
use crate::log_superblock;

/// Writes a transaction of the blocks `changed`, with their contents on `from`, in the place of the
/// fast commits. The log holds nothing else ([`super::recover_to_fast_commits`] has seen to that).
/// A recovery then brings the blocks home.
///
/// # Errors
/// [`JournalError::NeedsRecovery`] if the log holds something else;
/// [`JournalError::TransactionTooLarge`] if the blocks do not fit it; the device failed. The fast
/// commits stay then.
pub fn replace_fast_commits(
    (dev, bs, log): (&dyn BlockDevice, BlockSize, &LogMap),
    from: &dyn BlockDevice,
    changed: &[Pblk],
) -> Result<(), JournalError> {
    let mut superblock = log_superblock::read(dev, bs, log)?;
    let reader = LogReader::new(dev, bs, log, &superblock);
    let nothing_else = superblock.start() == superblock.first()
        && scan::scan(&reader, &superblock, u64::MAX)?.transactions == 0;
    if !nothing_else {
        return Err(JournalError::NeedsRecovery);
    }
    let wide = (dev.len() >> bs.log2()) > u64::from(u32::MAX);
    if superblock.upgrade(wide, false) {
        log_superblock::write(dev, bs, log, &superblock, true)?;
    }
    let reader = LogReader::new(dev, bs, log, &superblock);
    let tags = reader.format.tags_per_block(bs.bytes()).max(1);
    let descriptors = changed.len().div_ceil(tags);
    let needed = changed.len() + descriptors + 1;
    let needed = u32::try_from(needed).unwrap_or(u32::MAX);
    if needed > reader.ring.len() {
        let log = reader.ring.len();
        return Err(JournalError::TransactionTooLarge { needed, log });
    }
    let mut at = superblock.first();
    for group in changed.chunks(tags) {
        let image = describe(&reader, from, group, &superblock)?;
        let located: Result<Vec<(Pblk, &[u8])>, JournalError> = (0..)
            .zip(&image)
            .map(|(by, block)| Ok((reader.location(reader.ring.advance(at, by))?, &**block)))
            .collect();
        write_blocks(log.device(dev), bs, located?).map_err(JournalError::io("writing the log"))?;
        at = reader
            .ring
            .advance(at, extant_units::at_most_u32(image.len() as u64));
    }
    let mut commit = reader.buffer();
    let tid = Tid::new(superblock.sequence());
    let (seconds, nanoseconds) = crate::log_write::now();
    reader
        .format
        .write_commit(&mut commit, tid.get(), seconds, nanoseconds);
    let offset = bs
        .dev_off(reader.location(at)?)
        .ok_or_else(|| JournalError::io("writing the commit record")(past_end()))?;
    log.device(dev)
        .write_durable(offset, &commit)
        .map_err(JournalError::io("writing the commit record"))
}

fn past_end() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// The log blocks of some of the blocks: a descriptor and the copies.
fn describe(
    reader: &LogReader<'_>,
    from: &dyn BlockDevice,
    blocks: &[Pblk],
    superblock: &JournalSuperblock,
) -> Result<Vec<Vec<u8>>, JournalError> {
    let (format, tid) = (&reader.format, superblock.sequence());
    let mut image = vec![reader.buffer()];
    let mut tags = Vec::with_capacity(blocks.len());
    for &block in blocks {
        let reading = "reading the blocks that fast commits change";
        let offset = reader.bs.dev_off(block);
        let offset = offset.ok_or_else(|| JournalError::io(reading)(past_end()))?;
        let mut copy = reader.buffer();
        from.read_at(offset, &mut copy)
            .map_err(JournalError::io(reading))?;
        let escaped = needs_escape(&copy);
        if escaped {
            escape(&mut copy);
        }
        tags.push(Tag {
            block,
            escaped,
            checksum: format.copy_checksum(tid, &copy),
        });
        image.push(copy);
    }
    if let Some(descriptor) = image.first_mut() {
        format.write_descriptor(descriptor, tid, &tags);
    }
    Ok(image)
}
