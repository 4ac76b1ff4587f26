//! Block usage: every block is claimed once, by its owner.
//!
//! With `bigalloc` space is in use by clusters. Metadata of groups shares them; anything else has
//! its clusters to itself, and claims them whole.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_disk::bitmap;
use extant_disk::damage::{GroupDamage, GroupPart, SuperblockDamage};
use extant_disk::features::Incompat;
use extant_disk::location::Location;
use extant_units::{Group, Pblk, exact_u32, index};
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
    /// A bit for each block whose owners share it; `None` if there is none.
    shared: Option<Box<[u8]>>,
}

/// A bit per block of groups that are used in part; a count for all groups.
///
/// # Locks
/// One per group, held for one range.
pub(crate) struct Usage {
    groups: Box<[Mutex<Claimed>]>,
    /// Clusters of each group that hold metadata of groups.
    metadata: Box<[u32]>,
    /// True if a block was claimed twice. Which of its owners is told so depends on the order.
    contested: AtomicBool,
    first: u64,
    /// One past the last block.
    end: u64,
    per_group: u32,
    /// log2 of the blocks of a cluster.
    cluster_bits: u32,
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
            end: volume.end(),
            per_group: volume.sb.blocks_per_group(),
            cluster_bits: volume.sb.cluster_bits(),
        }
    }

    /// Only the metadata of the groups claimed: superblocks, descriptors and their reserve,
    /// bitmaps, tables, and the block of multiple mount protection.
    pub(crate) fn with_metadata(volume: &Volume, findings: &Findings) -> Result<Self> {
        let mut usage = Self::empty(volume);
        let flexible = (volume.sb.features()).has_incompat(Incompat::FLEX_BG);
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
            let own = volume.group_start(group)
                ..volume.group_start(group) + u64::from(volume.group_len(group));
            for (part, start, len) in parts {
                let first = Pblk::new(start);
                // With 1 KiB blocks the first data block is 1; block 0 is the boot block.
                if len > 0 && start < usage.first
                    || start.checked_add(len).is_none_or(|end| end > volume.end())
                {
                    let start = first;
                    findings.add(place, GroupDamage::Outside { part, start });
                    continue;
                }
                let placed = flexible || part == GroupPart::Head;
                if !placed && (start < own.start || start + len > own.end) {
                    let start = first;
                    findings.add(place, GroupDamage::Elsewhere { part, start });
                }
                if let Some(block) = usage.claim(first, len) {
                    findings.add(place, GroupDamage::Overlap { part, block });
                }
            }
        }
        if let Some(block) = mmp::check(volume, findings)?
            && let Some(block) = usage.claim(block, 1)
        {
            findings.add(Location::Superblock, SuperblockDamage::MmpOverlap { block });
        }
        usage.metadata = volume.group_numbers().map(|of| usage.used(of)).collect();
        // One thread has claimed until here.
        usage.contested = AtomicBool::new(false);
        Ok(usage)
    }

    /// Claims `[first, first + count)`, which lies within the file system. Returns the first block
    /// that has an owner already, if any; all are claimed nevertheless.
    pub(crate) fn claim(&self, first: Pblk, count: u64) -> Option<Pblk> {
        self.claim_by(first, count, Claimed::claim)
    }

    /// Claims a range by `claim`, which returns the first block of a group's range that it may not
    /// have, or the end of the range.
    fn claim_by(
        &self,
        first: Pblk,
        count: u64,
        claim: fn(&mut Claimed, Range<u32>, u32) -> u32,
    ) -> Option<Pblk> {
        let mut taken = None;
        for (group, range) in self.split(first, count) {
            let mut claimed = self.groups[group].lock();
            let already = claim(&mut claimed, range.clone(), self.per_group);
            drop(claimed);
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

    /// Claims the clusters that `[first, first + count)` touches, as [`Usage::claim`] does blocks.
    pub(crate) fn claim_clusters(&self, first: Pblk, count: u64) -> Option<Pblk> {
        let ratio = 1 << self.cluster_bits;
        let start = first.get() & !(ratio - 1);
        // The last cluster of a volume may be shorter.
        let end = (first.get() + count).next_multiple_of(ratio).min(self.end);
        self.claim(Pblk::new(start), end - start)
    }

    /// Claims a range as [`Usage::claim`] does, for an owner that shares it with others that do.
    /// Returns the first block with an owner that does not.
    pub(crate) fn share(&self, first: Pblk, count: u64) -> Option<Pblk> {
        self.claim_by(first, count, Claimed::share)
    }

    /// Returns whether a block has two owners of which one is no metadata of groups.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested.load(Ordering::Relaxed)
    }

    /// Clusters of a group of the volume with a claimed block.
    pub(crate) fn used(&self, group: Group) -> u32 {
        let claimed = self.groups[group.index()].lock();
        match (self.cluster_bits, &claimed.bits) {
            (0, _) => claimed.count,
            (bits, None) => claimed.count.div_ceil(1 << bits),
            (bits, Some(blocks)) => {
                let clusters = clusters_of(blocks, self.per_group, bits);
                bitmap::count_set(&clusters, 0..self.per_group >> bits)
            }
        }
    }

    /// Returns whether more clusters of the group are claimed than its metadata has.
    pub(crate) fn has_files(&self, group: Group) -> bool {
        self.used(group) > self.metadata[group.index()]
    }

    /// A bit for each cluster of a group of the volume.
    pub(crate) fn bits(&self, group: Group) -> Box<[u8]> {
        let claimed = self.groups[group.index()].lock();
        let len = (self.per_group >> self.cluster_bits).div_ceil(8) as usize;
        match &claimed.bits {
            Some(blocks) if self.cluster_bits > 0 => {
                clusters_of(blocks, self.per_group, self.cluster_bits)
            }
            Some(bits) => bits.clone(),
            None if claimed.count == 0 => vec![0; len].into(),
            None => vec![!0; len].into(),
        }
    }

    /// Blocks in all that are claimed, or of a cluster with a claimed one.
    pub(crate) fn count(&self) -> u64 {
        let groups = (0..self.groups.len() as u64).map(|group| Group::new(exact_u32(group)));
        let clusters: u64 = groups.map(|group| u64::from(self.used(group))).sum();
        (clusters << self.cluster_bits) - self.short_of_a_cluster()
    }

    /// Blocks that the volume's last cluster has less than others, if it is in use.
    fn short_of_a_cluster(&self) -> u64 {
        let blocks = self.end - self.first;
        let missing = blocks.next_multiple_of(1 << self.cluster_bits) - blocks;
        if missing == 0 {
            return 0;
        }
        let last = blocks - 1;
        let group = Group::new(exact_u32(last / u64::from(self.per_group)));
        let cluster = below(last, self.per_group) >> self.cluster_bits;
        match bitmap::test(&self.bits(group), cluster) {
            true => missing,
            false => 0,
        }
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

    /// Claims a range for an owner that shares it. Returns the first block that was claimed before
    /// by one that does not, or the end of the range.
    fn share(&mut self, range: Range<u32>, per_group: u32) -> u32 {
        let new = || vec![0; per_group.div_ceil(8) as usize].into();
        let mut shared = self.shared.take().unwrap_or_else(new);
        let mut at = range.start;
        let already = loop {
            let start = bitmap::next_clear(&shared, at, range.end);
            let end = bitmap::next_set(&shared, start, range.end);
            let foreign = match &self.bits {
                Some(bits) => bitmap::next_set(bits, start, end),
                None if self.count == per_group => start,
                None => end,
            };
            if foreign < end || end == range.end {
                break foreign;
            }
            at = end;
        };
        bitmap::set_range(&mut shared, range.clone());
        self.shared = Some(shared);
        self.claim(range, per_group);
        already
    }
}

/// A bit for each cluster of a group of `per_group` blocks: set if one of its blocks is.
fn clusters_of(blocks: &[u8], per_group: u32, cluster_bits: u32) -> Box<[u8]> {
    let ratio = 1 << cluster_bits;
    let clusters = per_group >> cluster_bits;
    let mut bits = vec![0; clusters.div_ceil(8) as usize];
    let mut at = bitmap::next_set(blocks, 0, per_group);
    while at < per_group {
        bitmap::set(&mut bits, at >> cluster_bits);
        let next = ((at >> cluster_bits) + 1) * ratio;
        at = bitmap::next_set(blocks, next.min(per_group), per_group);
    }
    bits.into()
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
    fn sharers_have_blocks_together_and_others_have_theirs_alone() {
        let mut claimed = Claimed::default();
        assert_eq!(claimed.claim(0..20, 64), 20);
        assert_eq!(claimed.share(20..40, 64), 40);
        assert_eq!(claimed.share(30..50, 64), 50);
        assert_eq!(claimed.count, 50);
        // Another one has block 19, and wants 49.
        assert_eq!(claimed.share(18..22, 64), 18);
        assert_eq!(claimed.claim(49..52, 64), 49);
        // The group is full.
        assert_eq!(claimed.share(52..64, 64), 64);
        assert_eq!((claimed.count, claimed.bits.is_none()), (64, true));
        assert_eq!(claimed.share(53..64, 64), 64);
        assert_eq!(claimed.share(2..5, 64), 2);
        assert_eq!(claimed.claim(63..64, 64), 63);
    }

    #[test]
    fn clusters_are_in_use_as_wholes() {
        let usage = Usage {
            groups: (0..2).map(|_| Mutex::default()).collect(),
            metadata: Box::default(),
            contested: AtomicBool::new(false),
            first: 0,
            end: 122,
            per_group: 64,
            cluster_bits: 2,
        };
        // Metadata shares a cluster.
        assert_eq!(usage.claim(Pblk::new(4), 1), None);
        assert_eq!(usage.claim(Pblk::new(5), 2), None);
        assert_eq!(usage.used(Group::new(0)), 1);
        assert_eq!(usage.claim_clusters(Pblk::new(7), 1), Some(Pblk::new(4)));
        assert_eq!(usage.claim_clusters(Pblk::new(9), 6), None);
        assert_eq!(&*usage.bits(Group::new(0)), [0b1110, 0]);
        assert_eq!(usage.claim_clusters(Pblk::new(12), 1), Some(Pblk::new(12)));
        assert_eq!(usage.count(), 12);
        // The last cluster has two blocks.
        assert_eq!(usage.claim_clusters(Pblk::new(121), 1), None);
        assert_eq!((usage.used(Group::new(1)), usage.count()), (1, 14));
    }

    #[test]
    fn a_block_with_two_owners_is_contested_whichever_group_it_is_in() {
        let usage = Usage {
            groups: (0..3).map(|_| Mutex::default()).collect(),
            metadata: Box::default(),
            contested: AtomicBool::new(false),
            first: 1,
            end: 190,
            per_group: 64,
            cluster_bits: 0,
        };
        // Blocks 60..70 are in two groups.
        assert_eq!(usage.claim(Pblk::new(60), 10), None);
        assert_eq!(usage.claim(Pblk::new(170), 4), None);
        assert_eq!((usage.count(), usage.is_contested()), (14, false));
        assert_eq!(usage.claim(Pblk::new(140), 40), Some(Pblk::new(170)));
        assert!(usage.is_contested());
    }
}
