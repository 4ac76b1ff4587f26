//! Block usage: every block is claimed once, by its owner.

use std::ops::Range;

use extant_disk::bitmap;
use extant_disk::location::Location;
use extant_units::{Group, Pblk, index};
use parking_lot::Mutex;

use crate::error::Result;
use crate::findings::Findings;
use crate::mmp;
use crate::volume::Volume;

/// The bits of one group, once something in it is claimed.
type Bits = Mutex<Option<Box<[u8]>>>;

/// A bit per block; the bits of a group are made when a block of it is claimed first.
///
/// # Locks
/// One per group, held for one range.
pub(crate) struct Usage {
    groups: Box<[Bits]>,
    first: u64,
    per_group: u32,
}

impl Usage {
    /// Nothing claimed.
    pub(crate) fn empty(volume: &Volume) -> Self {
        Self {
            groups: (0..volume.group_count())
                .map(|_| Mutex::new(None))
                .collect(),
            first: volume.sb.first_data_block().get(),
            per_group: volume.sb.blocks_per_group(),
        }
    }

    /// Only the metadata of the groups claimed: superblocks, descriptors and their reserve,
    /// bitmaps, tables, and the block of multiple mount protection.
    pub(crate) fn with_metadata(volume: &Volume, findings: &Findings) -> Result<Self> {
        let usage = Self::empty(volume);
        for (group, desc) in volume.groups() {
            let place = Location::GroupDesc(group);
            let parts = [
                (
                    "superblock and descriptors",
                    volume.group_start(group),
                    volume.backup_blocks(group),
                ),
                ("block bitmap", desc.block_bitmap.get(), 1),
                ("inode bitmap", desc.inode_bitmap.get(), 1),
                ("inode table", desc.inode_table.get(), volume.table_blocks()),
            ];
            for (name, start, len) in parts {
                let first = Pblk::new(start);
                // With 1 KiB blocks the first data block is 1; block 0 is the boot block.
                if len > 0 && start < usage.first
                    || start.checked_add(len).is_none_or(|end| end > volume.end())
                {
                    findings.add(
                        place,
                        format_args!("{name} at {start} lies outside of the file system"),
                    );
                } else if let Some(taken) = usage.claim(first, len) {
                    findings.add(
                        place,
                        format_args!("{name} overlaps other metadata at block {taken}"),
                    );
                }
            }
        }
        if let Some(block) = mmp::check(volume, findings)?
            && let Some(taken) = usage.claim(block, 1)
        {
            let what = format_args!(
                "the block of multiple mount protection overlaps other metadata at block {taken}"
            );
            findings.add(Location::Superblock, what);
        }
        Ok(usage)
    }

    /// Claims `[first, first + count)`, which lies within the file system. Returns the first block
    /// that has an owner already, if any; all are claimed nevertheless.
    pub(crate) fn claim(&self, first: Pblk, count: u64) -> Option<Pblk> {
        let mut taken = None;
        for (group, range) in self.split(first, count) {
            let mut bits = self.groups[group].lock();
            let bits =
                bits.get_or_insert_with(|| vec![0; self.per_group.div_ceil(8) as usize].into());
            let already = bitmap::next_set(bits, range.start, range.end);
            if already < range.end && taken.is_none() {
                let base = self.first + group as u64 * u64::from(self.per_group);
                taken = Some(Pblk::new(base + u64::from(already)));
            }
            bitmap::set_range(bits, range);
        }
        taken
    }

    /// The bits of a group of the volume, or `None` if no block of it is claimed.
    pub(crate) fn group(&self, group: Group) -> Option<Box<[u8]>> {
        self.groups[group.index()].lock().clone()
    }

    /// Claimed blocks in all.
    pub(crate) fn count(&self) -> u64 {
        let count = |bits: &[u8]| u64::from(bitmap::count_set(bits, 0..self.per_group));
        let groups = self.groups.iter();
        groups
            .map(|bits| bits.lock().as_deref().map_or(0, count))
            .sum()
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
