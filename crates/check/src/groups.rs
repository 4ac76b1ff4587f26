//! Pass 4: bitmaps, descriptors, totals and copies against the outcome of the passes before.

use std::cell::OnceCell;
use std::sync::Arc;

use extant_disk::bitmap;
use extant_disk::damage::{BitRuns, BitmapDamage, GroupDamage};
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::{GroupDesc, GroupFlags};
use extant_disk::location::Location;
use extant_units::{Group, Pblk, exact_u32};

use crate::copies;
use crate::error::Result;
use crate::facts::Facts;
use crate::findings::Findings;
use crate::inodes::Scan;
use crate::remedy::{GroupCounts, Repair};
use crate::superblock;
use crate::volume::Volume;
use crate::work::Work;

/// Free clusters and inodes, as found.
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
    let free = work.spread(&groups, |&group, _| {
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
    let blocks = total.blocks << volume.sb.cluster_bits();
    superblock::totals(volume, blocks, total.inodes, findings);
    copies::compare(volume, findings, work)
}

/// The bitmap of a group, as it should be.
struct Bitmap<'a> {
    place: Location,
    /// Bits of what is in use.
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
            // Half of it is not stored in descriptors of 32 bytes.
            let stored = checksum;
            self.wrong(bitmap, BitmapDamage::Checksum { stored, computed });
        }
        self.differences(bitmap, &stored);
        // Bits behind the last one must be set.
        let bits = self.volume.bits_per_block();
        if bitmap::next_clear(&stored, bitmap.len, bits) < bits {
            self.wrong(bitmap, BitmapDamage::Padding);
        }
        Ok(())
    }

    /// Reports a fault of a bitmap, which the whole of it mends.
    fn wrong(&self, bitmap: &Bitmap<'_>, damage: BitmapDamage) {
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
        self.findings.add_repairable(bitmap.place, damage, repair);
    }

    /// Checks the block bitmap. Returns the number of free clusters.
    fn blocks(&self) -> Result<u32> {
        let (volume, desc) = (self.volume, self.desc());
        let (usage, len) = (&self.scan.usage, volume.group_clusters(self.group));
        // Only blocks of the file system are claimed.
        let free = len - usage.used(self.group);
        let unwritten = self.has_flag(GroupFlags::BLOCK_UNINIT);
        let has_files = usage.has_files(self.group);
        // The last group may be cut short. Its bits behind the end stand nowhere else.
        let is_cut = len < volume.sb.blocks_per_group() >> volume.sb.cluster_bits();
        if unwritten && !has_files && !is_cut {
            return Ok(free);
        }
        let bitmap = Bitmap {
            place: Location::BlockBitmap(self.group),
            used: &usage.bits(self.group),
            len,
            covered: volume.sb.blocks_per_group() >> volume.sb.cluster_bits(),
            repair: OnceCell::new(),
        };
        if unwritten {
            self.wrong(
                &bitmap,
                match has_files {
                    true => BitmapDamage::FilesInUnwritten,
                    false => BitmapDamage::LastUnwritten,
                },
            );
        } else {
            self.bitmap(&bitmap, desc.block_bitmap, desc.block_bitmap_csum)?;
        }
        Ok(free)
    }

    /// Checks the inode bitmap. Returns the number of free inodes.
    fn inodes(&self) -> Result<u32> {
        let (volume, desc) = (self.volume, self.desc());
        let per_group = volume.sb.inodes_per_group();
        let facts = self.scan.of_group(self.group);
        // Reserved inodes count as in use, also those without a meaning. The groups after them
        // have none.
        let before = self.group.get() * per_group;
        let reserved = (volume.sb.first_inode() - 1)
            .saturating_sub(before)
            .min(per_group);
        let unwritten = self.has_flag(GroupFlags::INODE_UNINIT);
        if unwritten && reserved == 0 && facts.is_empty() {
            return Ok(per_group);
        }
        let index = |facts: &Facts| (facts.ino.get() - 1) % per_group;
        let mut used = vec![0; per_group.div_ceil(8) as usize];
        for facts in facts {
            bitmap::set(&mut used, index(facts));
        }
        bitmap::set_range(&mut used, 0..reserved);
        let free = bitmap::count_clear(&used, per_group);
        if !unwritten {
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
        let dirs = exact_u32(dirs.count() as u64);
        let too_many = volume.sb.features().group_csum() && desc.itable_unused > per_group;
        let right = GroupCounts {
            blocks: free_blocks,
            inodes: free_inodes,
            dirs,
            unused: if too_many { 0 } else { desc.itable_unused },
        };
        let wrong = |damage: GroupDamage| {
            let repair = || Repair::Counts(self.group, right);
            let place = Location::GroupDesc(self.group);
            self.findings.add_repairable(place, damage, repair);
        };
        if desc.free_blocks != free_blocks {
            wrong(GroupDamage::FreeBlocks {
                stored: desc.free_blocks,
                found: free_blocks,
            });
        }
        if desc.free_inodes != free_inodes {
            wrong(GroupDamage::FreeInodes {
                stored: desc.free_inodes,
                found: free_inodes,
            });
        }
        if too_many {
            wrong(GroupDamage::TooManyUnused {
                unused: desc.itable_unused,
                inodes: per_group,
            });
        }
        if desc.used_dirs != dirs {
            wrong(GroupDamage::Directories {
                stored: desc.used_dirs,
                found: dirs,
            });
        }
    }

    fn differences(&self, bitmap: &Bitmap<'_>, stored: &[u8]) {
        let len = bitmap.len.div_ceil(8) as usize;
        let (stored, used) = (&stored[..len], &bitmap.used[..len]);
        // Nearly always.
        if stored == used {
            return;
        }
        let (mut missing, mut extra) = (BitRuns::default(), BitRuns::default());
        let bytes = (0..bitmap.len).step_by(8).zip(stored.iter().zip(used));
        for (first, _) in bytes.filter(|(_, (stored, used))| stored != used) {
            for bit in first..bitmap.len.min(first + 8) {
                match (bitmap::test(stored, bit), bitmap::test(used, bit)) {
                    (false, true) => missing.add(bit),
                    (true, false) => extra.add(bit),
                    _ => {}
                }
            }
        }
        if missing.count() > 0 {
            let count = missing.count();
            let runs = missing;
            self.wrong(bitmap, BitmapDamage::MarkedFree { count, runs });
        }
        if extra.count() > 0 {
            let count = extra.count();
            let runs = extra;
            self.wrong(bitmap, BitmapDamage::MarkedInUse { count, runs });
        }
    }
}
