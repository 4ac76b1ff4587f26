//! The image under check: superblock, descriptors, and blocks as they are after a replay.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::csum::Crc32c;
use extant_disk::damage::{BlockDamage, InodeDamage, SuperblockDamage};
use extant_disk::dirent::DirFormat;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::inode::{InodeCore, InodeError, InodeFormat};
use extant_disk::location::Location;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::LogMap;
use extant_units::{DevOff, Group, Ino, Pblk, exact_u32};

use crate::error::{Error, Result};
use crate::feature_gate::require_checked_features;
use crate::findings::Findings;
use crate::remedy::Repair;

/// The file system as the check sees it.
///
/// # Invariants
/// - It does not change after [`Volume::read`], so threads share it without a lock.
/// - `groups` has one descriptor for each group of the superblock.
pub(crate) struct Volume {
    dev: CowDevice<Arc<dyn BlockDevice>>,
    pub(crate) sb: Superblock,
    groups: Vec<GroupDesc>,
    pub(crate) checksum: GroupChecksum,
    pub(crate) format: InodeFormat,
    pub(crate) csum_seed: Option<Crc32c>,
    /// The log, if it is on a device of its own that was given.
    pub(crate) external_log: Option<LogMap>,
}

impl Volume {
    /// Reads superblock and descriptors.
    pub(crate) fn read(dev: CowDevice<Arc<dyn BlockDevice>>, findings: &Findings) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if dev.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
            return Err(Error::TooShort);
        }
        dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
        let sb = Superblock::parse(&bytes)?;
        sb.check_device_len(dev.len())?;
        let features = sb.features();
        require_checked_features(features)?;
        let csum_seed = features.metadata_csum().then(|| sb.checksum_seed());
        let format = InodeFormat {
            inode_size: inode_size(&sb),
            block_size: sb.block_size(),
            huge_file: features.has_ro_compat(RoCompat::HUGE_FILE),
            wide_blocks: features.has_incompat(Incompat::SIXTY_FOUR_BIT),
            large_dir: features.has_incompat(Incompat::LARGEDIR),
            csum_seed,
        };
        let mut volume = Self {
            dev,
            groups: Vec::new(),
            checksum: GroupChecksum::of(&sb),
            format,
            csum_seed,
            external_log: None,
            sb,
        };
        volume.groups = volume.read_descriptors(findings)?;
        Ok(volume)
    }

    fn read_descriptors(&self, findings: &Findings) -> Result<Vec<GroupDesc>> {
        let size = self.sb.desc_size();
        let mut groups = Vec::new();
        let mut numbers = self.group_numbers();
        let first = self.sb.descriptor_start().get();
        let tabled = self.tabled_blocks();
        let in_table = chunks(u64::from(tabled)).map(|(at, count)| (first + at, count));
        let elsewhere = (tabled..self.sb.desc_blocks()).map(|at| (self.spread_block(at), 1));
        let mut buffer = Vec::new();
        for (block, count) in in_table.chain(elsewhere) {
            self.read_blocks(Pblk::new(block), count, &mut buffer)?;
            for (bytes, group) in buffer.chunks_exact(size).zip(&mut numbers) {
                groups.push(self.descriptor(bytes, group, findings)?);
            }
        }
        if groups.len() != self.group_count() as usize {
            // The number of descriptor blocks follows from the number of groups.
            debug_assert!(false, "{} descriptors", groups.len());
            let damage = SuperblockDamage::DescriptorTable;
            return Err(Error::corrupt(Location::Superblock, damage));
        }
        Ok(groups)
    }

    /// One descriptor. If only its checksum is wrong, that is a finding; its flags and counts that
    /// exclude parts of the group from the check are ignored then.
    fn descriptor(&self, bytes: &[u8], group: Group, findings: &Findings) -> Result<GroupDesc> {
        let error = match GroupDesc::parse(bytes, group, &self.checksum) {
            Ok(desc) => return Ok(desc),
            Err(error) => error,
        };
        let place = Location::GroupDesc(group);
        let mut desc = GroupDesc::parse(bytes, group, &GroupChecksum::None)
            .map_err(|error| Error::corrupt(place, error))?;
        findings.add_repairable(place, error, || Repair::Descriptor(group, desc.flags));
        let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
        desc.flags.remove(uninit);
        desc.itable_unused = 0;
        Ok(desc)
    }

    pub(crate) fn group_count(&self) -> u32 {
        self.sb.group_count()
    }

    /// All groups, in order.
    pub(crate) fn group_numbers(&self) -> impl Iterator<Item = Group> + use<> {
        (0..self.group_count()).map(Group::new)
    }

    /// All groups with their descriptors, in order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Group, &GroupDesc)> {
        self.group_numbers().zip(&self.groups)
    }

    /// The descriptor of a group of the volume.
    pub(crate) fn desc(&self, group: Group) -> &GroupDesc {
        &self.groups[group.index()]
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &self.dev
    }

    /// The private copy of the device, with what was replayed into it.
    pub(crate) fn into_device(self) -> CowDevice<Arc<dyn BlockDevice>> {
        self.dev
    }

    /// One past the last block.
    pub(crate) fn end(&self) -> u64 {
        self.sb.blocks_count().get()
    }

    /// The first block of a group of the volume.
    pub(crate) fn group_start(&self, group: Group) -> u64 {
        debug_assert!(group.get() < self.group_count(), "group {group}");
        self.sb.first_data_block().get()
            + u64::from(group.get()) * u64::from(self.sb.blocks_per_group())
    }

    /// Blocks of a group: fewer in the last.
    pub(crate) fn group_len(&self, group: Group) -> u32 {
        let (start, full) = (self.group_start(group), self.sb.blocks_per_group());
        debug_assert!(start < self.end(), "group {group} begins at {start}");
        // More than 2^32 blocks to the end of the volume are more than a group has.
        u32::try_from(self.end() - start).map_or(full, |left| left.min(full))
    }

    /// Clusters of a group, which without `bigalloc` are its blocks.
    pub(crate) fn group_clusters(&self, group: Group) -> u32 {
        self.group_len(group).div_ceil(1 << self.sb.cluster_bits())
    }

    /// Bits of a bitmap block.
    pub(crate) fn bits_per_block(&self) -> u32 {
        8 << self.sb.block_size().log2()
    }

    /// Blocks of a group's inode table.
    pub(crate) fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.sb.inodes_per_group()) * u64::from(self.format.inode_size);
        self.sb.block_size().blocks_for(bytes).get()
    }

    /// Blocks of descriptors that lie in one table behind the superblock: all, without `meta_bg`.
    fn tabled_blocks(&self) -> u32 {
        let all = self.sb.desc_blocks();
        self.sb.first_meta_bg().map_or(all, |first| first.min(all))
    }

    /// Descriptors in one block, which are those of a meta group.
    fn descriptors_per_block(&self) -> u32 {
        exact_u32((self.sb.block_size().bytes() / self.sb.desc_size()) as u64)
    }

    /// The block of the descriptors `at`, which are behind the table: it is in the first group that
    /// they are of.
    fn spread_block(&self, at: u32) -> u64 {
        let group = Group::new(at * self.descriptors_per_block());
        self.group_start(group) + self.boot_blocks(group) + self.superblocks_of(group)
    }

    /// Blocks before the superblock: the boot block, where `group` begins with it.
    fn boot_blocks(&self, group: Group) -> u64 {
        let first = self.sb.first_data_block();
        let start = self.sb.descriptor_start().distance_from(first);
        u64::from(group == Group::new(0) && start.is_some_and(|start| start > 1))
    }

    /// Blocks of a group that hold a superblock: one or none.
    fn superblocks_of(&self, group: Group) -> u64 {
        u64::from(group == Group::new(0) || self.sb.has_backup(group))
    }

    /// Blocks at the start of a group that hold a superblock, descriptors and their reserve, with
    /// the boot block before them.
    pub(crate) fn backup_blocks(&self, group: Group) -> u64 {
        let (boot, superblocks) = (self.boot_blocks(group), self.superblocks_of(group));
        let place = group.get() % self.descriptors_per_block();
        if group.get() / self.descriptors_per_block() >= self.tabled_blocks() {
            let of_meta_group = [0, 1, self.descriptors_per_block() - 1].contains(&place);
            return boot + superblocks + u64::from(of_meta_group);
        }
        let reserved = u64::from(self.sb.reserved_gdt_blocks());
        boot + superblocks * (1 + u64::from(self.tabled_blocks()) + reserved)
    }

    /// The copy of descriptors in `group`, which is not the first: where it begins, its blocks, and
    /// the first group that it is of.
    pub(crate) fn descriptor_copy(&self, group: Group) -> Option<(Pblk, u64, Group)> {
        let per_block = self.descriptors_per_block();
        let start = self.group_start(group) + self.superblocks_of(group);
        let (meta_group, place) = (group.get() / per_block, group.get() % per_block);
        if meta_group >= self.tabled_blocks() {
            let copied = place == 1 || place == per_block - 1;
            let of = Group::new(meta_group * per_block);
            return copied.then_some((Pblk::new(start), 1, of));
        }
        let blocks = u64::from(self.tabled_blocks());
        let copied = self.sb.has_backup(group);
        copied.then_some((Pblk::new(start), blocks, Group::new(0)))
    }

    /// Returns whether `[first, first + count)` lies behind the boot block and on the volume.
    pub(crate) fn holds(&self, first: Pblk, count: u64) -> bool {
        first.get() >= self.sb.first_data_block().get().max(1)
            && first
                .get()
                .checked_add(count)
                .is_some_and(|end| end <= self.end())
    }

    /// The bytes of a block.
    pub(crate) fn block(&self, pblk: Pblk) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_blocks(pblk, 1, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a few blocks in a row; `bytes` has them and nothing else then.
    pub(crate) fn read_blocks(&self, first: Pblk, count: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let bs = self.sb.block_size();
        let out_of_range = || Error::corrupt(Location::Block(first), BlockDamage::PastVolume);
        let offset = bs.dev_off(first).ok_or_else(out_of_range)?;
        let len = count.checked_mul(bs.bytes()).ok_or_else(out_of_range)?;
        if first
            .get()
            .checked_add(count as u64)
            .is_none_or(|end| end > self.end())
        {
            return Err(out_of_range());
        }
        bytes.resize(len, 0);
        Ok(self.dev.read_at(offset, bytes)?)
    }

    /// The inode's checksum seed for what it owns.
    pub(crate) fn owner_seed(&self, ino: Ino, generation: u32) -> Option<Crc32c> {
        self.format.inode_seed(ino, generation)
    }

    /// The layout of a directory's blocks, of names that are not folded.
    pub(crate) fn dir_format(&self, ino: Ino, generation: u32) -> DirFormat {
        DirFormat {
            block_size: self.sb.block_size(),
            file_type: self.sb.features().has_incompat(Incompat::FILETYPE),
            max_ino: self.sb.inodes_count(),
            seed: self.owner_seed(ino, generation),
            folded: false,
            hashes: false,
        }
    }

    /// The inode at `index` of a group of the volume.
    pub(crate) fn inode_at(&self, group: Group, index: u32) -> Option<Ino> {
        Ino::new(group.get() * self.sb.inodes_per_group() + index + 1)
    }

    /// Reads one inode, for the few that are needed before the scan.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Result<InodeCore, InodeError>> {
        let record = self.record(ino)?;
        Ok(InodeCore::decode(&self.format, ino, &record))
    }

    /// The record of one inode.
    pub(crate) fn record(&self, ino: Ino) -> Result<Vec<u8>> {
        let missing = || Error::corrupt(Location::Inode(ino), InodeDamage::Missing);
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
        Ok(record.to_vec())
    }
}

/// Blocks that are read at a time.
const CHUNK: usize = 64;

/// `count` blocks in pieces that are read at a time: where each begins, and its blocks.
pub(crate) fn chunks(count: u64) -> impl Iterator<Item = (u64, usize)> {
    let pieces = (0..count).step_by(CHUNK);
    pieces.map(move |at| (at, CHUNK.min(extant_units::index(count - at))))
}

/// The size of an inode's record.
fn inode_size(sb: &Superblock) -> u16 {
    match sb.is_revision_0() {
        true => 128,
        false => sb.raw().inode_size.get(),
    }
}
