//! The image under check: superblock, descriptors, blocks as they are after a replay.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::csum::Crc32c;
use extant_disk::dirent::DirFormat;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::inode::{InodeCore, InodeError, InodeFormat};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_units::{DevOff, Group, Ino, Pblk};

use super::journal;
use super::report::Findings;
use super::superblock;
use crate::error::{Error, Result};
use extant_disk::location::Location;

/// Ro-compat features of volumes that are checked: those that are supported, and `read-only`, which
/// changes nothing in the structures.
const RO_COMPAT: RoCompat = RoCompat::SUPPORTED.union(RoCompat::READONLY);

/// The file system as the checker sees it. Immutable after [`Volume::open`], so shared freely by threads.
pub(super) struct Volume {
    dev: CowDevice<Arc<dyn BlockDevice>>,
    pub(super) sb: Superblock,
    pub(super) groups: Vec<GroupDesc>,
    pub(super) checksum: GroupChecksum,
    pub(super) format: InodeFormat,
    pub(super) csum_seed: Option<Crc32c>,
    /// Transactions replayed into memory.
    pub(super) replayed: u64,
}

impl Volume {
    /// Reads superblock and descriptors, replaying the journal into at most `memory` bytes if it is
    /// dirty.
    pub(super) fn open(
        dev: Arc<dyn BlockDevice>,
        memory: u64,
        findings: &Findings,
    ) -> Result<Self> {
        let dev = CowDevice::with_limit(dev, memory);
        let mut volume = Self::read(dev, findings)?;
        superblock::check(&volume, findings)?;
        if volume.sb.features().has_incompat(Incompat::RECOVER) {
            let before = findings.count();
            let replayed = journal::replay(&volume, memory, findings)?;
            volume = Self::read(volume.dev, findings)?;
            if before == 0 {
                superblock::check(&volume, findings)?;
            }
            volume.replayed = replayed;
        }
        Ok(volume)
    }

    fn read(dev: CowDevice<Arc<dyn BlockDevice>>, findings: &Findings) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if dev.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Err(Error::TooShort);
        }
        dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
        let sb = Superblock::parse(&bytes)?;
        sb.check_device_len(dev.len())?;
        let features = sb.features();
        if let Some(name) = (features.incompat - Incompat::SUPPORTED).names().next() {
            return Err(Error::UnsupportedFeature(name));
        }
        if let Some(name) = (features.ro_compat - RO_COMPAT).names().next() {
            return Err(Error::UnsupportedFeature(name));
        }
        let csum_seed = features.metadata_csum().then(|| sb.checksum_seed());
        let format = InodeFormat {
            inode_size: u16::try_from(sb.inode_size()).unwrap_or(128),
            block_size: sb.block_size(),
            huge_file: features.has_ro_compat(RoCompat::HUGE_FILE),
            wide_blocks: features.has_incompat(Incompat::SIXTY_FOUR_BIT),
            csum_seed,
        };
        let mut volume = Self {
            dev,
            groups: Vec::new(),
            checksum: GroupChecksum::of(&sb),
            format,
            csum_seed,
            replayed: 0,
            sb,
        };
        volume.groups = volume.read_descriptors(findings)?;
        Ok(volume)
    }

    fn read_descriptors(&self, findings: &Findings) -> Result<Vec<GroupDesc>> {
        let size = self.sb.desc_size();
        let mut groups = Vec::new();
        let first = self.sb.descriptor_start().get();
        for at in 0..u64::from(self.sb.desc_blocks()) {
            let block = self.block(Pblk::new(first + at))?;
            for bytes in block.chunks_exact(size) {
                let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
                if number >= self.group_count() {
                    break;
                }
                let group = Group::new(number);
                let unsealed = |error| {
                    findings.add(Location::GroupDesc(group), error);
                    let mut desc = GroupDesc::parse(bytes, group, &GroupChecksum::None)
                        .map_err(|error| Error::corrupt(Location::GroupDesc(group), error))?;
                    // What it says not to look at is looked at.
                    let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
                    desc.flags.remove(uninit);
                    desc.itable_unused = 0;
                    Ok::<_, Error>(desc)
                };
                let desc = GroupDesc::parse(bytes, group, &self.checksum).or_else(unsealed)?;
                groups.push(desc);
            }
        }
        Ok(groups)
    }

    pub(super) fn group_count(&self) -> u32 {
        self.sb.group_count()
    }

    pub(super) fn device(&self) -> &dyn BlockDevice {
        &self.dev
    }

    /// One past the last block.
    pub(super) fn end(&self) -> u64 {
        self.sb.blocks_count().get()
    }

    /// The first block of a group.
    pub(super) fn group_start(&self, group: Group) -> u64 {
        self.sb.first_data_block().get()
            + u64::from(group.get()) * u64::from(self.sb.blocks_per_group())
    }

    /// Blocks of a group: fewer in the last.
    pub(super) fn group_len(&self, group: Group) -> u32 {
        let left = self.end().saturating_sub(self.group_start(group));
        u32::try_from(left)
            .unwrap_or(u32::MAX)
            .min(self.sb.blocks_per_group())
    }

    /// Blocks of a group's inode table.
    pub(super) fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.sb.inodes_per_group()) * u64::from(self.format.inode_size);
        self.sb.block_size().blocks_for(bytes).get()
    }

    /// Blocks at the start of a group that hold a superblock, descriptors and their reserve.
    pub(super) fn backup_blocks(&self, group: Group) -> u64 {
        if group == Group::new(0) {
            let start = self.sb.descriptor_start().get() - self.group_start(group);
            start + u64::from(self.sb.desc_blocks()) + u64::from(self.sb.reserved_gdt_blocks())
        } else if self.sb.has_backup(group) {
            1 + u64::from(self.sb.desc_blocks()) + u64::from(self.sb.reserved_gdt_blocks())
        } else {
            0
        }
    }

    /// Whether `[first, first + count)` lies behind the first data block and on the device.
    pub(super) fn holds(&self, first: Pblk, count: u64) -> bool {
        first.get() >= self.sb.first_data_block().get().max(1)
            && first
                .get()
                .checked_add(count)
                .is_some_and(|end| end <= self.end())
    }

    /// The bytes of a block.
    pub(super) fn block(&self, pblk: Pblk) -> Result<Vec<u8>> {
        self.blocks(pblk, 1)
    }

    /// The bytes of a few blocks in a row.
    pub(super) fn blocks(&self, first: Pblk, count: usize) -> Result<Vec<u8>> {
        let bs = self.sb.block_size();
        let out_of_range =
            || Error::corrupt(Location::Block(first), "past the end of the file system");
        let offset = bs.dev_off(first).ok_or_else(out_of_range)?;
        let len = count.checked_mul(bs.bytes()).ok_or_else(out_of_range)?;
        if first
            .get()
            .checked_add(count as u64)
            .is_none_or(|end| end > self.end())
        {
            return Err(out_of_range());
        }
        let mut bytes = vec![0; len];
        self.dev.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The inode's checksum seed for what it owns.
    pub(super) fn owner_seed(&self, ino: Ino, generation: u32) -> Option<Crc32c> {
        self.format.inode_seed(ino, generation)
    }

    /// The layout of a directory's blocks.
    pub(super) fn dir_format(&self, ino: Ino, generation: u32) -> DirFormat {
        DirFormat {
            block_size: self.sb.block_size(),
            file_type: self.sb.features().has_incompat(Incompat::FILETYPE),
            max_ino: self.sb.inodes_count(),
            seed: self.owner_seed(ino, generation),
        }
    }

    /// Reads one inode, for the few that are needed before the scan.
    pub(super) fn inode(&self, ino: Ino) -> Result<Result<InodeCore, InodeError>> {
        let missing = || Error::corrupt(Location::Inode(ino), "no such inode");
        let at = ino.get() - 1;
        let group = at / self.sb.inodes_per_group();
        let desc = self.groups.get(group as usize).ok_or_else(missing)?;
        let size = self.format.record_size();
        let offset = (at % self.sb.inodes_per_group()) as usize * size;
        let block = desc
            .inode_table
            .checked_add((offset / self.sb.block_size().bytes()) as u64)
            .ok_or_else(missing)?;
        let bytes = self.block(block)?;
        let start = offset % self.sb.block_size().bytes();
        let record = bytes.get(start..start + size).ok_or_else(missing)?;
        Ok(InodeCore::decode(&self.format, ino, record))
    }
}
