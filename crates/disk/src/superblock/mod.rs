//! The superblock: what the file system is made of.
//!
//! [`RawSuperblock`] is the on-disk structure; [`Superblock`] is one whose checksum and geometry
//! were checked, so that arithmetic over its fields cannot divide by zero, overflow or describe
//! more metadata than the volume has room for. What the device really holds is checked by
//! [`Superblock::check_device_len`]; whether the features are supported is the mount's question.

mod check;
mod raw_superblock;
mod superblock_error;
#[cfg(test)]
mod tests;

use core::fmt;

use extant_units::{BlockSize, Blocks, Group, Ino, Pblk, exact_u32};

pub use self::raw_superblock::{
    DefaultMountOpts, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, SuperFlags,
};
use self::raw_superblock::{join, time};
pub use self::superblock_error::SuperblockError;
use crate::csum::Crc32c;
use crate::features::{Compat, FeatureSets, Incompat, RoCompat};

/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// `s_encoding`: names are UTF-8, folded by the tables of Unicode 12.1.
pub const UTF8_12_1: u16 = 1;

/// `s_encoding_flags`: folded directories have no other names.
pub const STRICT_NAMES: u16 = 1;

/// The most blocks of a group that mke2fs makes: their number, and that of the free ones, has 16
/// bits in the older descriptors.
const MOST_GROUP_BLOCKS: u64 = 65_528;

/// log2 of the bytes of the largest cluster that mke2fs makes.
const MOST_CLUSTER_LOG: u32 = 29;

/// Blocks of a full group, as mke2fs makes them: as many as a block of the bitmap has bits for.
pub fn full_group_blocks(block_size: BlockSize) -> u64 {
    (block_size.bytes_u64() * 8).min(MOST_GROUP_BLOCKS)
}

/// The bytes at which the first copy of the superblock may begin: in group 1 of full groups, for
/// each size of blocks, and then for each of clusters.
pub fn first_copies() -> impl Iterator<Item = u64> {
    let group = |size: BlockSize| full_group_blocks(size) * size.bytes_u64();
    let plain = BlockSize::all().map(move |size| {
        let first = u64::from(size == BlockSize::KIB1) * size.bytes_u64();
        first + group(size)
    });
    // A bit of a group's bitmap is a cluster, of at most 512 MiB.
    let clusters = BlockSize::all().flat_map(move |size| {
        let most = MOST_CLUSTER_LOG - size.log2();
        (1..=most).map(move |bits| group(size) << bits)
    });
    plain.chain(clusters)
}

/// A checked superblock.
///
/// Invariants, beside those of the format: at least one group and at most 2^32 - 1; every group has
/// at least one block and at most `8 * block size`; `groups * inodes_per_group == inodes_count`
/// fits 32 bits; the group descriptors fit in front of the last block; an inode is no larger than a
/// block.
#[derive(Clone)]
pub struct Superblock {
    raw: Box<RawSuperblock>,
    block_size: BlockSize,
    group_count: u32,
}

impl Superblock {
    /// The fields as stored.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The features; none with revision 0.
    pub fn features(&self) -> FeatureSets {
        self.raw.features()
    }

    /// Returns whether this is the original format without dynamic fields.
    pub fn is_revision_0(&self) -> bool {
        self.raw.rev_level.get() == 0
    }

    /// Returns whether GNU Hurd made the volume (`s_creator_os`). Its inodes name the block of a
    /// translator where those of Linux have the low half of the version.
    pub fn is_of_hurd(&self) -> bool {
        const HURD: u32 = 1;
        self.raw.creator_os.get() == HURD
    }

    /// The block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of the whole file system, first data block included; larger than `first_data_block`.
    pub fn blocks_count(&self) -> Blocks {
        Blocks::new(join(
            self.raw.blocks_count_lo,
            self.high(self.raw.blocks_count_hi),
        ))
    }

    /// Blocks that only root (or `def_resuid`, `def_resgid`) may take; at most `blocks_count`.
    pub fn reserved_blocks(&self) -> Blocks {
        let count = join(
            self.raw.r_blocks_count_lo,
            self.high(self.raw.r_blocks_count_hi),
        );
        Blocks::new(count.min(self.blocks_count().get()))
    }

    fn high(&self, field: zerocopy::little_endian::U32) -> zerocopy::little_endian::U32 {
        if self.features().has_incompat(Incompat::SIXTY_FOUR_BIT) {
            field
        } else {
            0.into()
        }
    }

    /// The first block of group 0: 1 with 1 KiB blocks (without bigalloc), else 0.
    pub fn first_data_block(&self) -> Pblk {
        Pblk::new(u64::from(self.raw.first_data_block.get()))
    }

    /// The first block of the primary descriptor table: behind the superblock's. That is not the
    /// first data block's with blocks of 1 KiB and bigalloc, whose first group begins with the boot
    /// block.
    pub fn descriptor_start(&self) -> Pblk {
        Pblk::new(SUPERBLOCK_OFFSET / self.block_size.bytes_u64() + 1)
    }

    /// Blocks of every group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        self.raw.blocks_per_group.get()
    }

    /// log2 of the blocks per cluster: 0 without bigalloc.
    pub fn cluster_bits(&self) -> u32 {
        if self.features().has_ro_compat(RoCompat::BIGALLOC) {
            // Without checks (an external journal) a cluster may seem smaller than a block.
            let cluster = self.raw.log_cluster_size.get();
            cluster.saturating_sub(self.raw.log_block_size.get())
        } else {
            0
        }
    }

    /// The number of groups, at least one.
    pub fn group_count(&self) -> u32 {
        self.group_count
    }

    /// Inodes of each group, at least one, at most `8 * block size`.
    pub fn inodes_per_group(&self) -> u32 {
        self.raw.inodes_per_group.get()
    }

    /// Inodes of the whole file system.
    pub fn inodes_count(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// Bytes of an inode in the table: a power of two from 128 to the block size.
    pub fn inode_size(&self) -> usize {
        if self.is_revision_0() {
            return 128;
        }
        usize::from(self.raw.inode_size.get())
    }

    /// The first inode that is not reserved, at least 11.
    pub fn first_inode(&self) -> u32 {
        if self.is_revision_0() {
            return 11;
        }
        self.raw.first_ino.get()
    }

    /// Bytes that new inodes reserve for fields past 128; fits the inode.
    pub fn want_extra_isize(&self) -> u16 {
        /// Bytes of the extra fields that this format defines.
        const DEFINED: u16 = 32;
        let Some(room) = self.raw.inode_size.get().checked_sub(128) else {
            return 0;
        };
        let mut want = DEFINED;
        if self.features().has_ro_compat(RoCompat::EXTRA_ISIZE) {
            want = want
                .max(self.raw.want_extra_isize.get())
                .max(self.raw.min_extra_isize.get());
        }
        if self.is_revision_0() {
            0
        } else if want > room {
            DEFINED.min(room)
        } else {
            want & !3
        }
    }

    /// Bytes of a group descriptor: 32, or with `64bit` a power of two from 64 to 1024.
    pub fn desc_size(&self) -> usize {
        if self.features().has_incompat(Incompat::SIXTY_FOUR_BIT) {
            // An external journal's is not checked, having no groups.
            usize::from(self.raw.desc_size.get()).clamp(32, 1024)
        } else {
            32
        }
    }

    /// Blocks of the group descriptor table.
    pub fn desc_blocks(&self) -> u32 {
        let per_block = self.block_size.bytes() / self.desc_size();
        self.group_count.div_ceil(exact_u32(per_block as u64))
    }

    /// With `meta_bg`: the first of the meta groups, as many groups as a block has descriptors,
    /// whose descriptors lie in their own groups.
    pub fn first_meta_bg(&self) -> Option<u32> {
        let meta_bg = self.features().has_incompat(Incompat::META_BG);
        meta_bg.then(|| self.raw.first_meta_bg.get())
    }

    /// Blocks reserved behind the descriptor table for its growth.
    pub fn reserved_gdt_blocks(&self) -> u32 {
        u32::from(self.raw.reserved_gdt_blocks.get())
    }

    /// log2 of the groups per flex group: 0 without `flex_bg`.
    pub fn log_groups_per_flex(&self) -> u32 {
        match self.raw.log_groups_per_flex {
            log @ 1..=31 if self.features().has_incompat(Incompat::FLEX_BG) => u32::from(log),
            _ => 0,
        }
    }

    /// Returns whether `group` begins with a copy of the superblock and of the descriptor table.
    pub fn has_backup(&self, group: Group) -> bool {
        let backups = self.raw.backup_bgs.map(|backup| backup.get());
        is_backup_group(self.features(), backups, group.get())
    }

    /// The start of every checksum chain but the superblock's own and jbd2's.
    pub fn checksum_seed(&self) -> Crc32c {
        if self.features().has_incompat(Incompat::CSUM_SEED) {
            Crc32c::from_raw(self.raw.checksum_seed.get())
        } else {
            Crc32c::START.feed(&self.raw.uuid)
        }
    }

    /// The journal's inode, if there is an internal journal.
    pub fn journal_inode(&self) -> Option<Ino> {
        if !self.features().has_compat(Compat::HAS_JOURNAL) {
            return None;
        }
        Ino::new(self.raw.journal_inum.get())
    }

    /// Returns whether the journal is on another device.
    pub fn has_journal_elsewhere(&self) -> bool {
        self.features().has_compat(Compat::HAS_JOURNAL) && self.journal_inode().is_none()
    }

    /// The orphan file's inode, if there is one.
    pub fn orphan_file_inode(&self) -> Option<Ino> {
        if !self.features().has_compat(Compat::ORPHAN_FILE) {
            return None;
        }
        Ino::new(self.raw.orphan_file_inum.get())
    }

    /// The head of the orphan list.
    pub fn last_orphan(&self) -> Option<Ino> {
        Ino::new(self.raw.last_orphan.get())
    }

    /// `s_default_mount_opts`.
    pub fn default_mount_opts(&self) -> DefaultMountOpts {
        DefaultMountOpts::from_bits_retain(self.raw.default_mount_opts.get())
    }

    /// `s_flags`.
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.raw.flags.get())
    }

    /// The seed of directory hashes.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(zerocopy::little_endian::U32::get)
    }

    /// Names in folded directories must be UTF-8 (`s_encoding_flags`, with `casefold`).
    pub fn strict_names(&self) -> bool {
        self.features().has_incompat(Incompat::CASEFOLD)
            && self.raw.encoding_flags.get() & STRICT_NAMES != 0
    }

    /// The label: bytes up to the first NUL.
    pub fn label(&self) -> &[u8] {
        until_nul(&self.raw.volume_name)
    }

    /// Last mount point of the file system: bytes up to the first NUL.
    pub fn last_mounted(&self) -> &[u8] {
        until_nul(&self.raw.last_mounted)
    }

    /// When the file system was made, seconds since the epoch.
    pub fn made_at(&self) -> u64 {
        time(self.raw.mkfs_time, self.raw.mkfs_time_hi)
    }

    /// Checks that a device of `device_len` bytes holds every block.
    ///
    /// # Errors
    /// [`SuperblockError::Truncated`], which names both sizes.
    pub fn check_device_len(&self, device_len: u64) -> Result<(), SuperblockError> {
        let wanted = self.block_size.bytes_of(self.blocks_count());
        match wanted {
            Some(bytes) if bytes <= device_len => Ok(()),
            _ => Err(SuperblockError::Truncated {
                // More bytes than 64 bits count fit no device: the error names the most.
                wanted: wanted.unwrap_or(u64::MAX),
                device: device_len,
            }),
        }
    }
}

impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Superblock")
            .field("block_size", &self.block_size.bytes())
            .field("blocks", &self.blocks_count())
            .field("groups", &self.group_count)
            .field("inodes", &self.inodes_count())
            .field("features", &self.features())
            .finish_non_exhaustive()
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    // `split` yields one part at least.
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Returns whether `group` begins with superblock and descriptors; `backups` are the groups that
/// `sparse_super2` names.
pub(crate) fn is_backup_group(features: FeatureSets, backups: [u32; 2], group: u32) -> bool {
    if group == 0 {
        return true;
    }
    if features.has_compat(Compat::SPARSE_SUPER2) {
        return backups.contains(&group);
    }
    if group == 1 || !features.has_ro_compat(RoCompat::SPARSE_SUPER) {
        return true;
    }
    group & 1 == 1 && [3, 5, 7].iter().any(|&base| is_power_of(group, base))
}

fn is_power_of(value: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(value) {
        power *= u64::from(base);
    }
    power == u64::from(value)
}
