//! Pass 4: bitmaps, descriptors, totals and copies against the outcome of the passes before.

use std::cell::OnceCell;
use std::sync::Arc;

use extant_disk::bitmap;
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_disk::location::Location;
use extant_units::{Group, Ino, Pblk};

use crate::copies;
use crate::error::Result;
use crate::findings::Findings;
use crate::inodes::{Facts, Scan};
use crate::remedy::{GroupCounts, Repair};
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
        let (blocks, inodes) = (check.blocks()?, check.inodes()?);
        check.counts(blocks, inodes);
        Ok(Free {
            blocks: u64::from(blocks),
            inodes: u64::from(inodes),
        })
    })?;
    let total = free.iter().fold(Free::default(), |sum, group| Free {
        blocks: sum.blocks + group.blocks,
        inodes: sum.inodes + group.inodes,
    });
    superblock::totals(volume, total.blocks, total.inodes, findings);
    copies::compare(volume, findings)
}

/// The bitmap of a group, as it should be.
struct Bitmap<'a> {
    place: Location,
    /// What is in use.
    used: &'a [u8],
    /// Bits with a meaning; those behind them are set.
    len: u32,
    /// Bits that the checksum covers.
    covered: u32,
    /// The repair, once it is asked for.
    repair: OnceCell<Repair>,
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

    /// Compares a bitmap with what is stored at `at`: checksum, bits and padding.
    fn bitmap(&self, bitmap: &Bitmap<'_>, at: Pblk, checksum: u32) -> Result<()> {
        if !self.volume.holds(at, 1) {
            return Ok(());
        }
        let stored = self.volume.block(at)?;
        // A group has at most as many blocks, and inodes, as a block has bits.
        let covered = &stored[..bitmap.covered.div_ceil(8) as usize];
        if let Some(computed) = self.volume.checksum.of_bitmap(covered)
            && !GroupDesc::bitmap_csum_matches(checksum, computed, self.volume.sb.desc_size())
        {
            self.wrong(bitmap, "bad checksum");
        }
        self.differences(bitmap, &stored);
        // Bits behind the last one must be set.
        let bits = self.volume.bits_per_block();
        if bitmap::next_clear(&stored, bitmap.len, bits) < bits {
            self.wrong(bitmap, "the padding at the end is not set");
        }
        Ok(())
    }

    /// Reports a fault of a bitmap, which the whole of it mends.
    fn wrong(&self, bitmap: &Bitmap<'_>, what: impl std::fmt::Display) {
        let repair = || {
            let bits = self.volume.bits_per_block();
            let mut whole = vec![0; bits as usize / 8];
            let used = bitmap.len.div_ceil(8) as usize;
            whole[..used].copy_from_slice(&bitmap.used[..used]);
            bitmap::set_range(&mut whole, bitmap.len..bits);
            let whole: Arc<[u8]> = whole.into();
            match bitmap.place {
                Location::InodeBitmap(group) => Repair::InodeBitmap(group, whole),
                _ => Repair::BlockBitmap(self.group, whole),
            }
        };
        let repair = || bitmap.repair.get_or_init(repair).clone();
        self.findings.add_repairable(bitmap.place, what, repair);
    }

    /// Checks the block bitmap. Returns the number of free blocks.
    fn blocks(&self) -> Result<u32> {
        let (volume, desc) = (self.volume, self.desc());
        let len = volume.group_len(self.group);
        let nothing = || vec![0; len.div_ceil(8) as usize].into();
        let used = self.scan.usage.group(self.group).unwrap_or_else(nothing);
        let free = bitmap::count_clear(&used, len);
        let bitmap = Bitmap {
            place: Location::BlockBitmap(self.group),
            used: &used,
            len,
            covered: volume.sb.blocks_per_group(),
            repair: OnceCell::new(),
        };
        if !self.has_flag(GroupFlags::BLOCK_UNINIT) {
            self.bitmap(&bitmap, desc.block_bitmap, desc.block_bitmap_csum)?;
        } else if self.owns_file_blocks(&used, len) {
            let what = "marked as never written, but files own blocks of the group";
            self.wrong(&bitmap, what);
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
        if !self.has_flag(GroupFlags::INODE_UNINIT) {
            let bitmap = Bitmap {
                place: Location::InodeBitmap(self.group),
                used: &used,
                len: per_group,
                covered: per_group,
                repair: OnceCell::new(),
            };
            self.bitmap(&bitmap, desc.inode_bitmap, desc.inode_bitmap_csum)?;
        }
        Ok(free)
    }

    /// Checks the counts of the descriptor.
    fn counts(&self, free_blocks: u32, free_inodes: u32) {
        let (volume, desc) = (self.volume, self.desc());
        let per_group = volume.sb.inodes_per_group();
        let facts = self.scan.of_group(self.group).iter();
        let dirs = facts.filter(|facts| facts.kind == Some(FileKind::Directory));
        // No group has more inodes than 32 bits count.
        let dirs = u32::try_from(dirs.count()).unwrap_or(u32::MAX);
        let too_many = volume.sb.features().group_csum() && desc.itable_unused > per_group;
        let right = GroupCounts {
            blocks: free_blocks,
            inodes: free_inodes,
            dirs,
            unused: if too_many { 0 } else { desc.itable_unused },
        };
        let wrong = |what: std::fmt::Arguments<'_>| {
            let repair = || Repair::Counts(self.group, right);
            let place = Location::GroupDesc(self.group);
            self.findings.add_repairable(place, what, repair);
        };
        if desc.free_blocks != free_blocks {
            wrong(format_args!(
                "{} free blocks, found {free_blocks}",
                desc.free_blocks
            ));
        }
        if desc.free_inodes != free_inodes {
            wrong(format_args!(
                "{} free inodes, found {free_inodes}",
                desc.free_inodes
            ));
        }
        if too_many {
            let unused = desc.itable_unused;
            wrong(format_args!(
                "{unused} inodes that were never used, of {per_group}"
            ));
        }
        if desc.used_dirs != dirs {
            wrong(format_args!("{} directories, found {dirs}", desc.used_dirs));
        }
    }

    fn differences(&self, bitmap: &Bitmap<'_>, stored: &[u8]) {
        let (mut missing, mut extra) = (Runs::default(), Runs::default());
        for bit in 0..bitmap.len {
            match (bitmap::test(stored, bit), bitmap::test(bitmap.used, bit)) {
                (false, true) => missing.add(bit),
                (true, false) => extra.add(bit),
                _ => {}
            }
        }
        if missing.count > 0 {
            let what = format_args!("{} in use but marked free: {missing}", missing.count);
            self.wrong(bitmap, what);
        }
        if extra.count > 0 {
            let what = format_args!("{} free but marked in use: {extra}", extra.count);
            self.wrong(bitmap, what);
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
