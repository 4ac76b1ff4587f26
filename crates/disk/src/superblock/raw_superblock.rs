//! The superblock as it lies on disk: `struct ext4_super_block`, 1024 bytes, little-endian.

use core::mem::{offset_of, size_of};

use extant_units::{Blocks, Group};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;
use crate::features::{Compat, FeatureSets, Incompat, RoCompat};

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// The byte offset of the primary superblock on the device, whatever the block size.
pub const SUPERBLOCK_OFFSET: u64 = 1024;

/// The superblock's bytes, unchecked. Fields carry the names of the format, without the `s_`.
///
/// [`super::Superblock`] is the checked form; this one is what is modified in place, under a handle
/// or before one can exist. After a change call [`RawSuperblock::seal`].
#[repr(C)]
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[allow(missing_docs, reason = "the fields of the format, by their names")]
pub struct RawSuperblock {
    pub inodes_count: U32,
    pub blocks_count_lo: U32,
    pub r_blocks_count_lo: U32,
    pub free_blocks_count_lo: U32,
    pub free_inodes_count: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mtime: U32,
    pub wtime: U32,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_rev_level: U16,
    pub lastcheck: U32,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub rev_level: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub block_group_nr: U16,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithm_usage_bitmap: U32,
    pub prealloc_blocks: u8,
    pub prealloc_dir_blocks: u8,
    pub reserved_gdt_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inum: U32,
    pub journal_dev: U32,
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub def_hash_version: u8,
    pub jnl_backup_type: u8,
    pub desc_size: U16,
    pub default_mount_opts: U32,
    pub first_meta_bg: U32,
    pub mkfs_time: U32,
    pub jnl_blocks: [U32; 17],
    pub blocks_count_hi: U32,
    pub r_blocks_count_hi: U32,
    pub free_blocks_count_hi: U32,
    pub min_extra_isize: U16,
    pub want_extra_isize: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub reserved_pad: U16,
    pub kbytes_written: U64,
    pub snapshot_inum: U32,
    pub snapshot_id: U32,
    pub snapshot_r_blocks_count: U64,
    pub snapshot_list: U32,
    pub error_count: U32,
    pub first_error_time: U32,
    pub first_error_ino: U32,
    pub first_error_block: U64,
    pub first_error_func: [u8; 32],
    pub first_error_line: U32,
    pub last_error_time: U32,
    pub last_error_ino: U32,
    pub last_error_line: U32,
    pub last_error_block: U64,
    pub last_error_func: [u8; 32],
    pub mount_opts: [u8; 64],
    pub usr_quota_inum: U32,
    pub grp_quota_inum: U32,
    pub overhead_blocks: U32,
    pub backup_bgs: [U32; 2],
    pub encrypt_algos: [u8; 4],
    pub encrypt_pw_salt: [u8; 16],
    pub lpf_ino: U32,
    pub prj_quota_inum: U32,
    pub checksum_seed: U32,
    pub wtime_hi: u8,
    pub mtime_hi: u8,
    pub mkfs_time_hi: u8,
    pub lastcheck_hi: u8,
    pub first_error_time_hi: u8,
    pub last_error_time_hi: u8,
    pub first_error_errcode: u8,
    pub last_error_errcode: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub orphan_file_inum: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(offset_of!(RawSuperblock, magic) == 0x38);
const _: () = assert!(offset_of!(RawSuperblock, feature_compat) == 0x5C);
const _: () = assert!(offset_of!(RawSuperblock, last_orphan) == 0xE8);
const _: () = assert!(offset_of!(RawSuperblock, desc_size) == 0xFE);
const _: () = assert!(offset_of!(RawSuperblock, blocks_count_hi) == 0x150);
const _: () = assert!(offset_of!(RawSuperblock, log_groups_per_flex) == 0x174);
const _: () = assert!(offset_of!(RawSuperblock, error_count) == 0x194);
const _: () = assert!(offset_of!(RawSuperblock, mount_opts) == 0x200);
const _: () = assert!(offset_of!(RawSuperblock, checksum_seed) == 0x270);
const _: () = assert!(offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
const _: () = assert!(offset_of!(RawSuperblock, checksum) == 0x3FC);

bitflags::bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct State: u16 {
        /// Cleanly unmounted (or: nothing but the journal's replay is missing).
        const VALID = 1;
        /// Errors were detected and not repaired yet.
        const ERROR = 2;
        /// Orphans are being recovered.
        const ORPHANS = 4;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_default_mount_opts`: options in force unless the mount says otherwise.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DefaultMountOpts: u32 {
        /// `debug`
        const DEBUG = 0x1;
        /// `bsdgroups`
        const BSDGROUPS = 0x2;
        /// `user_xattr`
        const XATTR_USER = 0x4;
        /// `acl`
        const ACL = 0x8;
        /// `nouid32`
        const UID16 = 0x10;
        /// `data=journal`; with [`Self::JMODE_ORDERED`]: `data=writeback`.
        const JMODE_DATA = 0x20;
        /// `data=ordered`; with [`Self::JMODE_DATA`]: `data=writeback`.
        const JMODE_ORDERED = 0x40;
        /// `nobarrier`
        const NOBARRIER = 0x100;
        /// `block_validity`
        const BLOCK_VALIDITY = 0x200;
        /// `discard`
        const DISCARD = 0x400;
        /// `nodelalloc`
        const NODELALLOC = 0x800;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SuperFlags: u32 {
        /// Directory hashes were computed with signed chars.
        const SIGNED_HASH = 1;
        /// Directory hashes were computed with unsigned chars.
        const UNSIGNED_HASH = 2;
        /// For testing development code.
        const TEST_FILESYS = 4;
        const _ = !0;
    }
}

impl RawSuperblock {
    /// A superblock of zero bytes, for tests and for building one.
    pub fn zeroed() -> Box<Self> {
        Box::new(<Self as zerocopy::FromZeros>::new_zeroed())
    }

    /// A copy of the superblock in `bytes`, unchecked; `None` if `bytes` has another length than
    /// 1024.
    pub fn copy_from(bytes: &[u8]) -> Option<Box<Self>> {
        Self::ref_from_bytes(bytes).ok().cloned().map(Box::new)
    }

    /// The three feature sets, as stored.
    pub fn features(&self) -> FeatureSets {
        FeatureSets {
            compat: Compat::from_bits_retain(self.feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.feature_ro_compat.get()),
        }
    }

    /// Stores the three feature sets.
    pub fn set_features(&mut self, features: FeatureSets) {
        self.feature_compat.set(features.compat.bits());
        self.feature_incompat.set(features.incompat.bits());
        self.feature_ro_compat.set(features.ro_compat.bits());
    }

    /// `s_state`.
    pub fn state(&self) -> State {
        State::from_bits_retain(self.state.get())
    }

    /// Stores `s_state`.
    pub fn set_state(&mut self, state: State) {
        self.state.set(state.bits());
    }

    /// `s_blocks_count`, both halves.
    pub fn blocks_count(&self) -> Blocks {
        Blocks::new(join(self.blocks_count_lo, self.blocks_count_hi))
    }

    /// Stores `s_blocks_count`, both halves.
    pub fn set_blocks_count(&mut self, count: Blocks) {
        (self.blocks_count_lo, self.blocks_count_hi) = split(count.get());
    }

    /// `s_r_blocks_count`, the blocks that only root may take, both halves.
    pub fn reserved_blocks(&self) -> Blocks {
        Blocks::new(join(self.r_blocks_count_lo, self.r_blocks_count_hi))
    }

    /// Stores `s_r_blocks_count`, both halves.
    pub fn set_reserved_blocks(&mut self, count: Blocks) {
        (self.r_blocks_count_lo, self.r_blocks_count_hi) = split(count.get());
    }

    /// `s_free_blocks_count`, both halves.
    pub fn free_blocks_count(&self) -> Blocks {
        Blocks::new(join(self.free_blocks_count_lo, self.free_blocks_count_hi))
    }

    /// Stores `s_free_blocks_count`, both halves.
    pub fn set_free_blocks_count(&mut self, count: Blocks) {
        (self.free_blocks_count_lo, self.free_blocks_count_hi) = split(count.get());
    }

    /// The time of the last mount, seconds since the epoch (40 bits).
    pub fn mount_time(&self) -> u64 {
        time(self.mtime, self.mtime_hi)
    }

    /// Stores the time of the last mount (40 bits are kept).
    pub fn set_mount_time(&mut self, seconds: u64) {
        (self.mtime, self.mtime_hi) = split_time(seconds);
    }

    /// The time of the last write to the superblock, seconds since the epoch (40 bits).
    pub fn write_time(&self) -> u64 {
        time(self.wtime, self.wtime_hi)
    }

    /// Stores the time of the last write to the superblock (40 bits are kept).
    pub fn set_write_time(&mut self, seconds: u64) {
        (self.wtime, self.wtime_hi) = split_time(seconds);
    }

    /// Stores the time of the first error (40 bits are kept).
    pub fn set_first_error_time(&mut self, seconds: u64) {
        (self.first_error_time, self.first_error_time_hi) = split_time(seconds);
    }

    /// Stores the time of the last error (40 bits are kept).
    pub fn set_last_error_time(&mut self, seconds: u64) {
        (self.last_error_time, self.last_error_time_hi) = split_time(seconds);
    }

    /// Takes over the record of errors: how many there were, the first and the last.
    pub fn copy_error_record(&mut self, from: &Self) {
        self.error_count = from.error_count;
        self.first_error_time = from.first_error_time;
        self.first_error_time_hi = from.first_error_time_hi;
        self.first_error_ino = from.first_error_ino;
        self.first_error_block = from.first_error_block;
        self.first_error_func = from.first_error_func;
        self.first_error_line = from.first_error_line;
        self.first_error_errcode = from.first_error_errcode;
        self.last_error_time = from.last_error_time;
        self.last_error_time_hi = from.last_error_time_hi;
        self.last_error_ino = from.last_error_ino;
        self.last_error_block = from.last_error_block;
        self.last_error_func = from.last_error_func;
        self.last_error_line = from.last_error_line;
        self.last_error_errcode = from.last_error_errcode;
    }

    /// The checksum of these bytes as `metadata_csum` stores it: crc32c over everything before the
    /// field.
    pub fn compute_checksum(&self) -> u32 {
        let covered = &self.as_bytes()[..offset_of!(Self, checksum)];
        Crc32c::START.feed(covered).raw()
    }

    /// Returns whether the stored checksum is right; true without `metadata_csum`.
    pub fn checksum_ok(&self) -> bool {
        !self.features().metadata_csum() || self.checksum.get() == self.compute_checksum()
    }

    /// The copy at the start of `group`, sealed, as mke2fs leaves it: not marked as unmounted
    /// cleanly, so that a volume is checked that is mounted by it, and not waiting for a recovery.
    #[must_use]
    pub fn backup(&self, group: Group) -> Box<Self> {
        let mut copy = Box::new(self.clone());
        let mut features = copy.features();
        features.incompat.remove(Incompat::RECOVER);
        copy.set_features(features);
        copy.set_state(copy.state() - State::VALID - State::ERROR);
        // The field has 16 bits: later groups share the last number, as for mke2fs.
        let number = u16::try_from(group.get()).unwrap_or(u16::MAX);
        copy.block_group_nr = number.into();
        copy.seal();
        copy
    }

    /// Stores the checksum. Call it after the last change; without `metadata_csum` it does nothing.
    pub fn seal(&mut self) {
        if self.features().metadata_csum() {
            self.checksum.set(self.compute_checksum());
        }
    }
}

pub(super) fn join(lo: U32, hi: U32) -> u64 {
    u64::from(lo.get()) | u64::from(hi.get()) << 32
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn split(value: u64) -> (U32, U32) {
    (U32::new(value as u32), U32::new((value >> 32) as u32))
}

pub(super) fn time(lo: U32, hi: u8) -> u64 {
    u64::from(lo.get()) | u64::from(hi) << 32
}

#[allow(clippy::cast_possible_truncation, reason = "40 bits are stored")]
fn split_time(seconds: u64) -> (U32, u8) {
    (U32::new(seconds as u32), (seconds >> 32) as u8)
}
