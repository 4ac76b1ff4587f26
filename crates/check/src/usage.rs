//! Block usage: every block is claimed once, by its owner.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_disk::bitmap;
use extant_disk::damage::{GroupDamage, GroupPart, SuperblockDamage};
use extant_disk::location::Location;
use extant_units::{Group, Pblk, index};
use parking_lot::Mutex;

use crate::error::Result;
use crate::findings::Findings;
use crate::mmp;
use crate::volume::Volume;

/// The claimed blocks of one group.
#[derive(Default)]
struct Claimed {
    /// How many there are.
    count: u32,
    /// A bit for each block; `None` if none is claimed, or all of them are.
    bits: Option<Box<[u8]>>,
}

/// A bit per block of groups that are used in part; a count for all groups.
///
/// # Locks
/// One per group, held for one range.
pub(crate) struct Usage {
    groups: Box<[Mutex<Claimed>]>,
    /// Blocks of each group that hold metadata of groups.
    metadata: Box<[u32]>,
    /// True if a block was claimed twice. Which of its owners is told so depends on the order.
    contested: AtomicBool,
    first: u64,
    per_group: u32,
}

impl Usage {
    /// Nothing claimed.
    pub(crate) fn empty(volume: &Volume) -> Self {
        Self {
            groups: (0..volume.group_count())
                .map(|_| Mutex::default())
                .collect(),
            metadata: Box::default(),
            contested: AtomicBool::new(false),
            first: volume.sb.first_data_block().get(),
            per_group: volume.sb.blocks_per_group(),
        }
    }

    /// Only the metadata of the groups claimed: superblocks, descriptors and their reserve,
    /// bitmaps, tables, and the block of multiple mount protection.
    pub(crate) fn with_metadata(volume: &Volume, findings: &Findings) -> Result<Self> {
        let mut usage = Self::empty(volume);
        for (group, desc) in volume.groups() {
            let place = Location::GroupDesc(group);
            let parts = [
                (
                    GroupPart::Head,
                    volume.group_start(group),
                    volume.backup_blocks(group),
                ),
                (GroupPart::BlockBitmap, desc.block_bitmap.get(), 1),
                (GroupPart::InodeBitmap, desc.inode_bitmap.get(), 1),
                (
                    GroupPart::InodeTable,
                    desc.inode_table.get(),
                    volume.table_blocks(),
                ),
            ];
            for (part, start, len) in parts {
                let first = Pblk::new(start);
                // With 1 KiB blocks the first data block is 1; block 0 is the boot block.
                if len > 0 && start < usage.first
                    || start.checked_add(len).is_none_or(|end| end > volume.end())
                {
                    let start = first;
                    findings.add(place, GroupDamage::Outside { part, start });
                } else if let Some(block) = usage.claim(first, len) {
                    findings.add(place, GroupDamage::Overlap { part, block });
                }
            }
        }
        if let Some(block) = mmp::check(volume, findings)?
            && let Some(block) = usage.claim(block, 1)
        {
            findings.add(Location::Superblock, SuperblockDamage::MmpOverlap { block });
        }
        let counts = usage.groups.iter_mut();
        usage.metadata = counts.map(|group| group.get_mut().count).collect();
        // One thread has claimed until here.
        usage.contested = AtomicBool::new(false);
        Ok(usage)
    }

    /// Claims `[first, first + count)`, which lies within the file system. Returns the first block
    /// that has an owner already, if any; all are claimed nevertheless.
    pub(crate) fn claim(&self, first: Pblk, count: u64) -> Option<Pblk> {
        let mut taken = None;
        for (group, range) in self.split(first, count) {
            let already = self.groups[group]
                .lock()
                .claim(range.clone(), self.per_group);
            if already < range.end && taken.is_none() {
                let base = self.first + group as u64 * u64::from(self.per_group);
                taken = Some(Pblk::new(base + u64::from(already)));
            }
        }
        if taken.is_some() {
            self.contested.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Claims a range as [`Usage::claim`] does, for an owner that may share it.
    pub(crate) fn share(&self, first: Pblk, count: u64) {
        for (group, range) in self.split(first, count) {
            self.groups[group].lock().claim(range, self.per_group);
        }
    }

    /// Returns whether a block has two owners of which one is no metadata of groups.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested.load(Ordering::Relaxed)
    }

    /// Claimed blocks of a group of the volume.
    pub(crate) fn used(&self, group: Group) -> u32 {
        self.groups[group.index()].lock().count
    }

    /// Returns whether more blocks of the group are claimed than its metadata.
    pub(crate) fn has_files(&self, group: Group) -> bool {
        self.used(group) > self.metadata[group.index()]
    }

    /// A bit for each block of a group of the volume.
    pub(crate) fn bits(&self, group: Group) -> Box<[u8]> {
        let claimed = self.groups[group.index()].lock();
        let len = self.per_group.div_ceil(8) as usize;
        match &claimed.bits {
            Some(bits) => bits.clone(),
            None if claimed.count == 0 => vec![0; len].into(),
            None => vec![!0; len].into(),
        }
    }

    /// Claimed blocks in all.
    pub(crate) fn count(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|group| u64::from(group.lock().count)).sum()
    }

    /// The parts of `[first, first + count)` in each group: the group's index, and the bits there.
    fn split(&self, first: Pblk, count: u64) -> impl Iterator<Item = (usize, Range<u32>)> + use<> {
        debug_assert!(first.get() >= self.first || count == 0, "block {first}");
        let per_group = self.per_group;
        let mut at = first.get() - self.first;
        let end = at + count;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = index(at / u64::from(per_group));
            let inside = below(at, per_group);
            // What is left past 2^32 blocks fills the group.
            let room = per_group - inside;
            let len = u32::try_from(end - at).map_or(room, |left| left.min(room));
            at += u64::from(len);
            Some((group, inside..inside + len))
        })
    }
}

impl Claimed {
    /// Claims a range of the group's `per_group` blocks. Returns the first that was claimed before,
    /// or the end of the range.
    fn claim(&mut self, range: Range<u32>, per_group: u32) -> u32 {
        if self.count == per_group {
            return range.start;
        }
        let new = || vec![0; per_group.div_ceil(8) as usize].into();
        let bits = self.bits.get_or_insert_with(new);
        let already = bitmap::next_set(bits, range.start, range.end);
        let known = match already < range.end {
            true => bitmap::count_set(bits, range.clone()),
            false => 0,
        };
        self.count += range.end - range.start - known;
        bitmap::set_range(bits, range);
        if self.count == per_group {
            self.bits = None;
        }
        already
    }
}

/// `value` modulo `modulus`.
fn below(value: u64, modulus: u32) -> u32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a rest is less than its modulus, which has 32 bits"
    )]
    {
        (value % u64::from(modulus)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_group_keeps_no_bits_and_knows_its_owners() {
        let mut claimed = Claimed::default();
        assert_eq!(claimed.claim(0..20, 64), 20);
        assert_eq!(claimed.claim(40..64, 64), 64);
        assert_eq!((claimed.count, claimed.bits.is_some()), (44, true));
        // Twelve blocks of these were claimed before.
        assert_eq!(claimed.claim(30..52, 64), 40);
        assert_eq!(claimed.count, 54);
        assert_eq!(claimed.claim(20..30, 64), 30);
        assert_eq!((claimed.count, claimed.bits.is_none()), (64, true));
        assert_eq!(claimed.claim(7..9, 64), 7);
        assert_eq!(claimed.count, 64);
    }

    #[test]
    fn a_block_with_two_owners_is_contested_whichever_group_it_is_in() {
        let usage = Usage {
            groups: (0..3).map(|_| Mutex::default()).collect(),
            metadata: Box::default(),
            contested: AtomicBool::new(false),
            first: 1,
            per_group: 64,
        };
        // Blocks 60..70 are in two groups.
        assert_eq!(usage.claim(Pblk::new(60), 10), None);
        assert_eq!(usage.claim(Pblk::new(170), 4), None);
        assert_eq!((usage.count(), usage.is_contested()), (14, false));
        assert_eq!(usage.claim(Pblk::new(140), 40), Some(Pblk::new(170)));
        assert!(usage.is_contested());
    }
}
