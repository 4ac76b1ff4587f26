//! Pass 4: bitmaps, descriptors, totals and copies against the outcome of the passes before.

use extant_disk::bitmap;
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_disk::location::Location;
use extant_units::{Group, Ino, Pblk};

use crate::copies;
use crate::error::Result;
use crate::findings::Findings;
use crate::inodes::{Facts, Scan};
use crate::superblock;
use crate::volume::Volume;
use crate::work::Work;

/// Free blocks and inodes, as found.
#[derive(Clone, Copy, Default)]
struct Free {
    blocks: u64,
    inodes: u64,
}

/// Compares all groups, in parallel, and then the totals.
pub(crate) fn compare(
    volume: &Volume,
    scan: &Scan,
    findings: &Findings,
    work: &Work<'_>,
) -> Result<()> {
    let groups: Vec<Group> = volume.group_numbers().collect();
    let free = work.spread(&groups, |&group| {
        let check = Check {
            volume,
            scan,
            findings,
            group,
        };
        Ok(Free {
            blocks: u64::from(check.blocks()?),
            inodes: u64::from(check.inodes()?),
        })
    })?;
    let total = free.iter().fold(Free::default(), |sum, group| Free {
        blocks: sum.blocks + group.blocks,
        inodes: sum.inodes + group.inodes,
    });
    superblock::totals(volume, total.blocks, total.inodes, findings);
    copies::compare(volume, findings)
}

struct Check<'a> {
    volume: &'a Volume,
    scan: &'a Scan,
    findings: &'a Findings,
    group: Group,
}

impl Check<'_> {
    fn desc(&self) -> &GroupDesc {
        self.volume.desc(self.group)
    }

    fn has_flag(&self, flag: GroupFlags) -> bool {
        self.volume.sb.features().group_csum() && self.desc().flags.contains(flag)
    }

    /// Reads a bitmap of `bits` bits and checks its checksum and its padding.
    fn bitmap(&self, place: Location, at: Pblk, bits: u32, stored: u32) -> Result<Option<Vec<u8>>> {
        if !self.volume.holds(at, 1) {
            return Ok(None);
        }
        let bytes = self.volume.block(at)?;
        // A group has at most as many blocks, and inodes, as a block has bits.
        let covered = &bytes[..bits.div_ceil(8) as usize];
        if let Some(computed) = self.volume.checksum.of_bitmap(covered)
            && !GroupDesc::bitmap_csum_matches(stored, computed, self.volume.sb.desc_size())
        {
            self.findings.add(place, "bad checksum");
        }
        Ok(Some(bytes))
    }

    /// Checks the block bitmap. Returns the number of free blocks.
    fn blocks(&self) -> Result<u32> {
        let (volume, desc) = (self.volume, self.desc());
        let place = Location::BlockBitmap(self.group);
        let len = volume.group_len(self.group);
        let nothing = || vec![0; len.div_ceil(8) as usize].into();
        let used = self.scan.usage.group(self.group).unwrap_or_else(nothing);
        let free = bitmap::count_clear(&used, len);
        if !self.has_flag(GroupFlags::BLOCK_UNINIT) {
            let bits = volume.sb.blocks_per_group();
            if let Some(stored) =
                self.bitmap(place, desc.block_bitmap, bits, desc.block_bitmap_csum)?
            {
                self.differences(place, &stored, |bit| bitmap::test(&used, bit), len);
                self.padding(place, &stored, len);
            }
        } else if self.owns_file_blocks(&used, len) {
            self.findings.add(
                place,
                "marked as never written, but files own blocks of the group",
            );
        }
        if desc.free_blocks != free {
            let what = format_args!("{} free blocks, found {free}", desc.free_blocks);
            self.findings.add(Location::GroupDesc(self.group), what);
        }
        Ok(free)
    }

    /// Whether more blocks are in use than those of the metadata that lies in the group.
    fn owns_file_blocks(&self, used: &[u8], len: u32) -> bool {
        let start = self.volume.group_start(self.group);
        let end = start + u64::from(len);
        // Saturating: a damaged descriptor may name any block, and a range may lie outside.
        let inside = |first: Pblk, count: u64| {
            let low = first.get().max(start);
            let high = first.get().saturating_add(count).min(end);
            high.saturating_sub(low)
        };
        // With flex groups the metadata of several groups lies in one.
        let metadata: u64 = self
            .volume
            .groups()
            .map(|(_, desc)| {
                inside(desc.block_bitmap, 1)
                    + inside(desc.inode_bitmap, 1)
                    + inside(desc.inode_table, self.volume.table_blocks())
            })
            .sum();
        u64::from(bitmap::count_set(used, 0..len))
            > metadata + self.volume.backup_blocks(self.group)
    }

    /// Checks the inode bitmap. Returns the number of free inodes.
    fn inodes(&self) -> Result<u32> {
        let (volume, desc) = (self.volume, self.desc());
        let place = Location::InodeBitmap(self.group);
        let per_group = volume.sb.inodes_per_group();
        let facts = self.scan.of_group(self.group);
        let index = |facts: &Facts| (facts.ino.get() - 1) % per_group;
        let mut used = vec![0; per_group.div_ceil(8) as usize];
        for facts in facts {
            bitmap::set(&mut used, index(facts));
        }
        // Reserved inodes count as in use, also those without a meaning.
        for number in 1..volume.sb.first_inode() {
            if Ino::new(number).is_some() && (number - 1) / per_group == self.group.get() {
                bitmap::set(&mut used, (number - 1) % per_group);
            }
        }
        let free = bitmap::count_clear(&used, per_group);
        if !self.has_flag(GroupFlags::INODE_UNINIT)
            && let Some(stored) =
                self.bitmap(place, desc.inode_bitmap, per_group, desc.inode_bitmap_csum)?
        {
            self.differences(place, &stored, |bit| bitmap::test(&used, bit), per_group);
            self.padding(place, &stored, per_group);
        }
        let desc_place = Location::GroupDesc(self.group);
        if desc.free_inodes != free {
            self.findings.add(
                desc_place,
                format_args!("{} free inodes, found {free}", desc.free_inodes),
            );
        }
        let unused = desc.itable_unused;
        if volume.sb.features().group_csum() && unused > per_group {
            let what = format_args!("{unused} inodes that were never used, of {per_group}");
            self.findings.add(desc_place, what);
        }
        let dirs = facts
            .iter()
            .filter(|facts| facts.kind == Some(FileKind::Directory))
            .count();
        if u64::from(desc.used_dirs) != dirs as u64 {
            self.findings.add(
                desc_place,
                format_args!("{} directories, found {dirs}", desc.used_dirs),
            );
        }
        Ok(free)
    }

    fn differences(&self, place: Location, stored: &[u8], used: impl Fn(u32) -> bool, len: u32) {
        let (mut missing, mut extra) = (Runs::default(), Runs::default());
        for bit in 0..len {
            match (bitmap::test(stored, bit), used(bit)) {
                (false, true) => missing.add(bit),
                (true, false) => extra.add(bit),
                _ => {}
            }
        }
        if missing.count > 0 {
            self.findings.add(
                place,
                format_args!("{} in use but marked free: {missing}", missing.count),
            );
        }
        if extra.count > 0 {
            self.findings.add(
                place,
                format_args!("{} free but marked in use: {extra}", extra.count),
            );
        }
    }

    /// Bits behind the last one must be set.
    fn padding(&self, place: Location, stored: &[u8], len: u32) {
        let bits = self.volume.bits_per_block();
        if bitmap::next_clear(stored, len, bits) < bits {
            self.findings
                .add(place, "the padding at the end is not set");
        }
    }
}

/// The first few ranges of a set of bits, for a message.
#[derive(Default)]
struct Runs {
    ranges: Vec<(u32, u32)>,
    count: u64,
}

impl Runs {
    const SHOWN: usize = 5;

    fn add(&mut self, bit: u32) {
        self.count += 1;
        if let Some((_, end)) = self.ranges.last_mut()
            && *end + 1 == bit
        {
            *end = bit;
        } else if self.ranges.len() <= Self::SHOWN {
            self.ranges.push((bit, bit));
        }
    }
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (first, last)) in self.ranges.iter().take(Self::SHOWN).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        if self.ranges.len() > Self::SHOWN {
            write!(f, " ...")?;
        }
        Ok(())
    }
}
