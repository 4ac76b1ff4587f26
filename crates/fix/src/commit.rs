//! Bringing the repaired copy to the device.
//!
//! # Invariants
//! Each cut leaves an image on which a repair goes on:
//!
//! 1. A log that holds transactions is replayed first, as a mount does.
//! 2. With a log, what differs is one transaction where it fits, else several. The superblock's
//!    mark for recovery is durable before the first, and is cleared after all are home.
//! 3. Without a log, blocks are written in an order in which each part only leads to what is
//!    durable: directories, extent nodes and attribute blocks, then bitmaps, then inodes, then
//!    descriptors. A repair gives blocks to inodes and takes none away, so a cut behind the bitmaps
//!    leaves a leak, never a block that an inode has and a bitmap calls free. Of a block of the
//!    first kind the last sector goes first: a new entry is durable before the record in front of
//!    it makes room for it. With a log, the parts of several transactions go in the same order.
//! 4. The superblock is last, and then the error that the journal remembers is forgotten.
//!    A log on a device of its own is replayed, and not written: it is as if there were none.
//! 5. Other hosts are kept away from before the first write until after the last one.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, memory_share};
use extant_check::external_log;
use extant_disk::features::Incompat;
use extant_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock, SuperblockError,
};
use extant_engine::replay_fast_commits;
use extant_jbd2::LogMap;
use extant_units::{BlockSize, DevOff, Group, Pblk, exact_u32};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::hold::{Protection, block_of};
use crate::image::{Image, Overlay, edit_super, super_bytes};
use crate::replay::Means;
use crate::{log, replay};

/// Bytes that a drive writes whole.
const SECTOR: usize = 512;

/// The order in which parts are written without a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Content,
    Bitmaps,
    Inodes,
    Descriptors,
}

/// A block that differs.
type Changed = (Part, Pblk);

/// Writes what differs between the copy and the device, a superblock that was `restored` first: it
/// says that the volume is not clean. Returns the number of blocks, the superblock's not counted.
pub(crate) fn commit(
    dev: &Arc<dyn BlockDevice>,
    overlay: &Overlay,
    means: Means<'_>,
    protection: &Protection,
    restored: Option<&[u8; SUPERBLOCK_SIZE]>,
) -> Result<u64> {
    if !differs(dev, overlay)? {
        return Ok(0);
    }
    let hold = protection.hold(dev)?;
    if let Some(bytes) = restored {
        dev.write_durable(DevOff::new(SUPERBLOCK_OFFSET), bytes)?;
    }
    let blocks = write(dev, overlay, means)?;
    if let Some(hold) = hold {
        hold.release()?;
    }
    Ok(blocks)
}

/// Returns whether any byte differs.
fn differs(dev: &dyn BlockDevice, overlay: &Overlay) -> Result<bool> {
    for range in overlay.changed() {
        let len = extant_units::index(range.end.get() - range.start.get());
        let (mut old, mut new) = (vec![0; len], vec![0; len]);
        dev.read_at(range.start, &mut old)?;
        overlay.read_at(range.start, &mut new)?;
        if old != new {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write(dev: &Arc<dyn BlockDevice>, overlay: &Overlay, means: Means<'_>) -> Result<u64> {
    let memory = means.memory.min(memory_share());
    let image = Image::open(overlay)?;
    // The copy reads through to the device where it has no changes.
    let right = super_bytes(overlay)?;
    if let Err(SuperblockError::BadChecksum { .. }) = Superblock::parse(&super_bytes(dev)?) {
        edit_super(dev, |_| {})?;
    }
    let sb = Superblock::parse(&super_bytes(dev)?)?;
    let log = replay::find(Arc::clone(overlay) as _)?;
    if let Some(log) = &log
        && sb.features().has_incompat(Incompat::RECOVER)
    {
        let fast = replay_fast_commits(dev, None, memory).map_err(Error::FastCommits)?;
        if fast == 0 {
            replay::onto(dev, &sb, log, memory)?;
        }
    }
    if sb.has_journal_elsewhere() && sb.features().has_incompat(Incompat::RECOVER) {
        // Its replay is all that it is used for: repairs are written in order.
        let journal = means.journal.ok_or(extant_check::Error::NoJournal)?;
        let log = external_log(&sb, journal)?;
        let fast = replay_fast_commits(dev, Some(journal), memory).map_err(Error::FastCommits)?;
        if fast == 0 {
            replay::onto(dev, &sb, &log, memory)?;
        }
    }
    let changed = differing(dev, overlay, &image, log.as_ref())?;
    // Nothing is harmed: no repair is on the device yet.
    assert!(
        changed.is_sorted_by(|one, next| one < next),
        "part by part, each block once"
    );
    if !changed.is_empty() {
        match log.clone().filter(|log| log::opens(overlay, &image, log)) {
            Some(log) => through_log(dev, overlay, &image, log, &changed)?,
            None => in_order(dev, overlay, &image, &changed)?,
        }
    }
    write_super(dev, &right, log.is_some())?;
    if let Some(log) = log
        && log::remembers_error(dev, &image, &log)
        && !log::remembers_error(overlay, &image, &log)
    {
        log::clear_error(dev, &image, log)?;
    }
    Ok(changed.len() as u64)
}

/// Makes `right` the superblock. The mark of a volume that is being changed is set before and goes
/// last, by itself: by it a mount knows a superblock that a power failure tore.
fn write_super(dev: &dyn BlockDevice, right: &[u8], has_log: bool) -> Result<()> {
    if right == super_bytes(dev)? {
        return Ok(());
    }
    let mark = |raw: &mut RawSuperblock| match has_log {
        true => replay::set_recover(raw, true),
        false => raw.set_state(raw.state() - State::VALID),
    };
    let at = DevOff::new(SUPERBLOCK_OFFSET);
    // One that is damaged gets no checksum that is right.
    let is_sound = Superblock::parse(&super_bytes(dev)?).is_ok();
    if let Some(mut marked) = RawSuperblock::copy_from(right).filter(|_| is_sound) {
        edit_super(dev, mark)?;
        mark(&mut marked);
        marked.seal();
        dev.write_durable(at, marked.as_bytes())?;
    }
    Ok(dev.write_durable(at, right)?)
}

/// Reads a block of either side.
fn read(dev: &dyn BlockDevice, bs: BlockSize, pblk: Pblk) -> Result<Vec<u8>> {
    let at = bs.dev_off(pblk);
    let at = at.ok_or_else(|| Error::Unreadable(format!("block {pblk}")))?;
    let mut bytes = vec![0; bs.bytes()];
    dev.read_at(at, &mut bytes)?;
    Ok(bytes)
}

/// The blocks that differ, in the order of their parts. The log and the block of multiple mount
/// protection are no part of what is repaired, and the superblock has a time of its own.
fn differing(
    dev: &Arc<dyn BlockDevice>,
    overlay: &Overlay,
    image: &Image,
    log: Option<&LogMap>,
) -> Result<Vec<Changed>> {
    let bs = image.sb.block_size();
    let parts = Parts::of(image)?;
    let mut changed = BTreeSet::new();
    for range in overlay.changed() {
        let first = range.start.get() >> bs.log2();
        let end = range.end.get().div_ceil(bs.bytes_u64());
        for block in first..end.min(image.sb.blocks_count().get()) {
            let pblk = Pblk::new(block);
            let is_super = SUPERBLOCK_OFFSET >> bs.log2() == block;
            let apart = is_super
                || log.is_some_and(|log| log.contains(pblk))
                || block_of(image) == Some(pblk);
            if !apart && read(dev, bs, pblk)? != read(overlay, bs, pblk)? {
                changed.insert((parts.part(pblk), pblk));
            }
        }
    }
    debug_assert!(
        SUPERBLOCK_SIZE <= bs.bytes(),
        "the superblock lies in one block"
    );
    Ok(changed.into_iter().collect())
}

/// The blocks of the groups' metadata, by their kinds.
struct Parts {
    descriptors: BTreeSet<u64>,
    bitmaps: BTreeSet<u64>,
    /// The first block of each table.
    tables: BTreeSet<u64>,
    table_blocks: u64,
}

impl Parts {
    fn of(image: &Image) -> Result<Parts> {
        let mut parts = Parts {
            descriptors: image.geometry().desc_block_numbers().collect(),
            bitmaps: BTreeSet::new(),
            tables: BTreeSet::new(),
            table_blocks: image.table_blocks(),
        };
        for group in (0..image.sb.group_count()).map(Group::new) {
            let desc = image.desc(group)?;
            parts.bitmaps.insert(desc.block_bitmap.get());
            parts.bitmaps.insert(desc.inode_bitmap.get());
            parts.tables.insert(desc.inode_table.get());
        }
        Ok(parts)
    }

    fn part(&self, pblk: Pblk) -> Part {
        let block = pblk.get();
        let table = self.tables.range(..=block).next_back();
        if self.descriptors.contains(&block) {
            Part::Descriptors
        } else if self.bitmaps.contains(&block) {
            Part::Bitmaps
        } else if table.is_some_and(|first| block - first < self.table_blocks) {
            Part::Inodes
        } else {
            Part::Content
        }
    }
}

/// Writes the blocks as transactions of the journal.
fn through_log(
    dev: &Arc<dyn BlockDevice>,
    overlay: &Overlay,
    image: &Image,
    log: LogMap,
    changed: &[Changed],
) -> Result<()> {
    let bs = image.sb.block_size();
    edit_super(dev, |raw| replay::set_recover(raw, true))?;
    // Nothing is harmed: the log is empty, and the mark leads to an empty recovery.
    assert!(
        !changed.iter().any(|(_, pblk)| log.contains(*pblk)),
        "no block of the log is in its own transaction"
    );
    let (cache, journal) = log::open(dev, image, log)?;
    let mut logged = 0;
    let most = journal.max_credits().max(1) as usize;
    for part in changed.chunks(most) {
        let mut handle = journal.start(exact_u32(part.len() as u64))?;
        for (_, pblk) in part {
            let bytes = read(overlay, bs, *pblk)?;
            let block = cache.read_unchecked(*pblk)?;
            handle.modify(&block, |to| to.copy_from_slice(&bytes))?;
            logged += 1;
        }
    }
    // What is logged is sound by itself: a replay, or the next repair, goes on from there.
    assert_eq!(
        logged,
        changed.len(),
        "each block that differs is logged once"
    );
    journal.close()?;
    Ok(())
}

/// Writes the blocks to their home locations, part by part.
fn in_order(
    dev: &Arc<dyn BlockDevice>,
    overlay: &Overlay,
    image: &Image,
    changed: &[Changed],
) -> Result<()> {
    let bs = image.sb.block_size();
    edit_super(dev, |raw| raw.set_state(raw.state() - State::VALID))?;
    let mut left = changed.len();
    for part in [
        Part::Content,
        Part::Bitmaps,
        Part::Inodes,
        Part::Descriptors,
    ] {
        let blocks = changed.iter().filter(|(of, _)| *of == part);
        let blocks: Vec<Pblk> = blocks.map(|(_, pblk)| *pblk).collect();
        // Parts that are derived may be torn: the next repair derives them again.
        let sectors = match part {
            Part::Content => bs.bytes() / SECTOR,
            _ => 1,
        };
        let len = bs.bytes() / sectors;
        assert_eq!(len * sectors, bs.bytes(), "the sectors are all of a block");
        left -= blocks.len();
        for sector in (0..sectors).rev().filter(|_| !blocks.is_empty()) {
            let mut written = false;
            for pblk in &blocks {
                let (old, new) = (read(dev, bs, *pblk)?, read(overlay, bs, *pblk)?);
                let range = sector * len..(sector + 1) * len;
                let (old, new) = (&old[range.clone()], &new[range]);
                if old != new {
                    let block = bs.dev_off(*pblk);
                    let block = block.ok_or_else(|| Error::Unreadable(format!("block {pblk}")))?;
                    dev.write_at(block.plus((sector * len) as u64), new)?;
                    written = true;
                }
            }
            if written {
                dev.flush()?;
            }
        }
    }
    // What is written is sound by itself: the next repair goes on from there.
    assert_eq!(
        left, 0,
        "each block that differs is of a part that is written"
    );
    Ok(())
}
