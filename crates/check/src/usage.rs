//! Who owns which block: every block is claimed once.

use std::ops::Range;

use extant_disk::bitmap;
use extant_units::{Group, Pblk};
use parking_lot::Mutex;

use super::mmp;
use super::report::Findings;
use super::volume::Volume;
use extant_disk::location::Location;

/// The bits of one group, once something in it is claimed.
type Bits = Mutex<Option<Box<[u8]>>>;

/// A bit per block, made per group when first needed. One lock per group, held for one range.
pub(super) struct Usage {
    groups: Box<[Bits]>,
    first: u64,
    per_group: u32,
}

impl Usage {
    /// Nothing claimed.
    pub(super) fn empty(volume: &Volume) -> Self {
        Self {
            groups: (0..volume.group_count())
                .map(|_| Mutex::new(None))
                .collect(),
            first: volume.sb.first_data_block().get(),
            per_group: volume.sb.blocks_per_group(),
        }
    }

    /// Nothing claimed but what the file system itself needs: superblocks, descriptors and their reserve, bitmaps, tables.
    pub(super) fn with_metadata(volume: &Volume, findings: &Findings) -> Self {
        let usage = Self::empty(volume);
        for (number, desc) in volume.groups.iter().enumerate() {
            let group = Group::new(u32::try_from(number).unwrap_or(u32::MAX));
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
        if let Some(block) = mmp::check(volume, findings)
            && let Some(taken) = usage.claim(block, 1)
        {
            let what = format_args!(
                "the block of multiple mount protection overlaps other metadata at block {taken}"
            );
            findings.add(Location::Superblock, what);
        }
        usage
    }

    /// Claims `[first, first + count)`, which lies within the file system. Returns the first block that had an
    /// owner already, if any; all are claimed nevertheless.
    pub(super) fn claim(&self, first: Pblk, count: u64) -> Option<Pblk> {
        let mut taken = None;
        for (group, range) in self.split(first, count) {
            let Some(slot) = self.groups.get(group) else {
                continue;
            };
            let mut bits = slot.lock();
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

    /// The bits of a group, or `None` if nothing in it is claimed.
    pub(super) fn group(&self, group: Group) -> Option<Box<[u8]>> {
        self.groups
            .get(group.index())
            .and_then(|slot| slot.lock().clone())
    }

    /// Claimed blocks in all.
    pub(super) fn count(&self) -> u64 {
        let count = |bits: &Option<Box<[u8]>>| {
            let bits = bits.as_deref().unwrap_or_default();
            u64::from(bitmap::count_set(
                bits,
                0..u32::try_from(bits.len() * 8).unwrap_or(0),
            ))
        };
        self.groups.iter().map(|slot| count(&slot.lock())).sum()
    }

    fn split(&self, first: Pblk, count: u64) -> impl Iterator<Item = (usize, Range<u32>)> + use<> {
        let per_group = u64::from(self.per_group);
        let mut at = first.get().saturating_sub(self.first);
        let end = at.saturating_add(count);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = at / per_group;
            let inside = at % per_group;
            let len = (per_group - inside).min(end - at);
            at += len;
            let start = u32::try_from(inside).ok()?;
            Some((
                usize::try_from(group).ok()?,
                start..start + u32::try_from(len).ok()?,
            ))
        })
    }
}
