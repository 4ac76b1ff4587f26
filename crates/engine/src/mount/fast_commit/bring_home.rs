//! From the private copy to the device: the blocks that differ, by the log.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::damage::JournalDamage;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_jbd2::replace_fast_commits;
use extant_units::{BlockSize, Pblk};

use super::super::find_journal::FoundJournal;
use super::super::volume_marks::set_recover;
use crate::state::volume::mounted_superblock::write_directly;
use crate::state::volume::{Layout, mmp};
use crate::types::error::{Error, Location, Result};

/// Writes what differs on `copy` as one transaction in the place of the fast commits, and replays
/// it. `sb` is the superblock before. The block of multi-mount protection stays: the copy has it
/// as it was when something beside it changed, and the mount writes it all the time. Returns
/// the number of blocks.
///
/// # Errors
/// The blocks do not fit the log; a copy in the log that cannot be read back; a failed device.
pub(super) fn bring_home(
    dev: &Arc<dyn BlockDevice>,
    copy: &Arc<CowDevice<Arc<dyn BlockDevice>>>,
    found: &FoundJournal,
    sb: &Superblock,
) -> Result<u64> {
    let layout = Layout::new(sb);
    let bs = layout.block_size;
    let overlay: Arc<dyn BlockDevice> = Arc::clone(copy) as _;
    // The copy was unmounted. The volume still waits for its log.
    write_directly(&overlay, |raw| set_recover(raw, true))?;
    let log = found.log_map();
    let mmp = mmp::zone(sb);
    let stays = |block| {
        let mmp = mmp.as_ref();
        log.contains(block) || mmp.is_some_and(|zone| (zone.start..zone.end).contains(&block))
    };
    let mut changed = differing(dev, copy, bs)?;
    changed.retain(|&block| !stays(block));
    let place = (&**dev, bs, &log);
    replace_fast_commits(place, &**copy, &changed)?;
    let replayed = found.replay_transactions(dev, &layout)?;
    if let Some(copies) = replayed.skipped_copies() {
        let damage = JournalDamage::ReplayedAround { copies };
        return Err(Error::corrupt(Location::Journal, damage));
    }
    debug_assert_eq!(replayed.replayed, changed.len() as u64);
    Ok(changed.len() as u64)
}

/// The blocks whose contents differ, in order.
fn differing(
    dev: &Arc<dyn BlockDevice>,
    copy: &CowDevice<Arc<dyn BlockDevice>>,
    bs: BlockSize,
) -> Result<Vec<Pblk>> {
    debug_assert!(SUPERBLOCK_OFFSET < dev.len(), "it was mounted");
    let mut changed: Vec<Pblk> = Vec::new();
    let (mut old, mut new) = (vec![0; bs.bytes()], vec![0; bs.bytes()]);
    for range in copy.changed() {
        let (first, last) = (range.start.get(), range.end.get());
        for number in first / bs.bytes_u64()..last.div_ceil(bs.bytes_u64()) {
            let block = Pblk::new(number);
            let Some(at) = bs.dev_off(block).filter(|_| changed.last() != Some(&block)) else {
                continue;
            };
            if at.get() + bs.bytes_u64() > dev.len() {
                // The tail of a device is no block.
                continue;
            }
            dev.read_at(at, &mut old).map_err(Error::from)?;
            copy.read_at(at, &mut new).map_err(Error::from)?;
            if old != new {
                changed.push(block);
            }
        }
    }
    Ok(changed)
}
