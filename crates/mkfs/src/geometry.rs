//! Sizes and counts: blocks, groups, inodes per group, descriptors and the room they may grow into.
//!
//! The rules are mke2fs's. A last group too small to be worth its metadata is left out; inodes per
//! group fill whole blocks of the table; descriptors reserve room for a volume 1024 times as large.

use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::{DESC_SIZE_32, DESC_SIZE_64};
use extant_disk::quota::QuotaKind;
use extant_units::{BlockSize, exact_u16, exact_u32};

use crate::clusters;
use crate::error::{Error, Result};
use crate::features;
use crate::options::Options;
use crate::profile::Profile;

/// Inodes that are the format's own: 1 to 10.
pub(crate) const RESERVED_INODES: u32 = 10;
/// `s_first_ino`: the first inode for files.
pub(crate) const FIRST_INO: u32 = RESERVED_INODES + 1;
/// The largest number of inodes that a group may have beside those of its last block.
const MAX_GROUP_INODES: u64 = 1 << 16;
/// The largest inode: its size is a power of two with 16 bits.
const MAX_INODE_SIZE: u64 = 1 << 15;
/// The least number of inodes: the format's own, lost+found and an orphan file, in whole bytes of a
/// bitmap. (mke2fs begins with 12, which some sizes of inodes round down to 8, and then fails.)
const LEAST_INODES: u64 = 16;
/// Groups per flex group, as a power of two.
const LOG_FLEX: u8 = 4;

/// Requests from which a geometry is computed.
struct Wanted {
    features: FeatureSets,
    block_size: BlockSize,
    cluster_bits: u32,
    inode_size: u64,
    /// Blocks of the device: with clusters, the volume may have fewer.
    blocks: u64,
    inodes: u64,
    reserved: u64,
}

/// The geometry of a new volume of `bytes` bytes.
pub(crate) fn choose(options: &Options, profile: &Profile, bytes: u64) -> Result<Geometry> {
    let mut wanted = Wanted::of(options, profile, bytes)?;
    let mut per_group = clusters::group_blocks(wanted.block_size, wanted.cluster_bits);
    let mut blocks = wanted.blocks >> wanted.cluster_bits << wanted.cluster_bits;
    let mut reserved = wanted.reserved;
    loop {
        match wanted.attempt(blocks, per_group, bytes)? {
            Attempt::Stands(mut geometry) => {
                // What is left out for whole clusters may be most of a small volume.
                geometry.reserved_blocks = reserved.min(geometry.blocks / 2);
                return Ok(*geometry);
            }
            Attempt::FewerBlocks(fewer) => {
                (blocks, reserved) = (fewer, wanted.reserved_of(fewer));
            }
            // The blocks that were left out are back; as in mke2fs, not their reserved part.
            Attempt::SmallerGroups => (blocks, per_group) = (wanted.blocks, per_group - 8),
        }
    }
}

enum Attempt {
    Stands(Box<Geometry>),
    FewerBlocks(u64),
    SmallerGroups,
}

impl Wanted {
    fn of(options: &Options, profile: &Profile, bytes: u64) -> Result<Self> {
        let mut features = features::resolve(profile.features, &options.features)?;
        let default = options.external_journal.as_ref();
        let default = default.map_or(profile.block_size, |journal| journal.block_size);
        let block_size = block_size(options.block_size.unwrap_or(default))?;
        let cluster_bits = clusters::cluster_bits(options.cluster_size, features, block_size)?;
        let inode_size = u64::from(options.inode_size.unwrap_or(profile.inode_size));
        let largest = block_size.bytes_u64().min(MAX_INODE_SIZE);
        if !inode_size.is_power_of_two() || !(128..=largest).contains(&inode_size) {
            let why = "it has to be a power of two from 128 to the block size, at most 32768";
            return Err(Error::bad("the inode size", inode_size, why));
        }
        if inode_size == 128 && features.has_incompat(Incompat::INLINE_DATA) {
            let why = "inline_data needs room behind the fixed fields";
            return Err(Error::bad("the inode size", inode_size, why));
        }
        if options.quotas.has(QuotaKind::Project) {
            features.ro_compat |= RoCompat::PROJECT;
        }
        if inode_size == 128 && features.has_ro_compat(RoCompat::PROJECT) {
            let why = "project needs room behind the fixed fields";
            return Err(Error::bad("the inode size", inode_size, why));
        }
        let blocks = bytes / block_size.bytes_u64();
        if blocks <= u64::from(block_size == BlockSize::KIB1) {
            let what = "a group";
            return Err(Error::TooSmall { bytes, what });
        }
        if blocks > u64::from(u32::MAX) {
            if !features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
                let why = "without 64bit at most 2^32 - 1 are possible";
                return Err(Error::TooLarge { blocks, why });
            }
            // Its inode has numbers of 32 bits.
            features.compat -= Compat::RESIZE_INODE;
        }
        if blocks >> 48 != 0 {
            let why = "block numbers have 48 bits";
            return Err(Error::TooLarge { blocks, why });
        }
        let percent = options.reserved_percent.unwrap_or(profile.reserved_percent);
        if !(0.0..=50.0).contains(&percent) {
            let why = "it has to be from 0 to 50 percent";
            return Err(Error::bad("the share of reserved blocks", percent, why));
        }
        let wide = features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        let bytes = block_size.bytes_u64();
        let wanted = Self {
            features,
            block_size,
            cluster_bits,
            inode_size,
            blocks,
            inodes: inodes(
                options,
                profile,
                blocks * bytes,
                bytes << cluster_bits,
                wide,
            )?,
            reserved: share(blocks, percent),
        };
        if wanted.inodes * inode_size >= blocks * block_size.bytes_u64() {
            return Err(wanted.too_many_inodes());
        }
        Ok(wanted)
    }

    fn too_many_inodes(&self) -> Error {
        Error::TooManyInodes {
            inodes: self.inodes,
            blocks: self.blocks,
            block_size: self.block_size.bytes(),
        }
    }

    /// The geometry with `blocks` blocks in groups of `per_group`, or what to try instead.
    fn attempt(&mut self, blocks: u64, per_group: u64, bytes: u64) -> Result<Attempt> {
        let too_small = |what| Error::TooSmall { bytes, what };
        let bs = self.block_size.bytes_u64();
        let first = self.first_block();
        let data = blocks.saturating_sub(first);
        let groups = data.div_ceil(per_group);
        if groups == 0 {
            return Err(too_small("a group"));
        }
        let wide = self.features.has_incompat(Incompat::SIXTY_FOUR_BIT);
        let desc_size = if wide { DESC_SIZE_64 } else { DESC_SIZE_32 };
        let per_block = bs / desc_size as u64;
        let desc_blocks = groups.div_ceil(per_block);
        let inodes = self.inodes.max(LEAST_INODES);
        if inodes.div_ceil(groups) > bs * 8 {
            if per_group < 256 || self.features.has_ro_compat(RoCompat::BIGALLOC) {
                return Err(self.too_many_inodes());
            }
            return Ok(Attempt::SmallerGroups);
        }
        // The least that a group can have is a byte of its inode bitmap.
        if groups > u64::from(u32::MAX) / 8 {
            let why = "its groups would have more inodes than can be numbered";
            return Err(Error::TooLarge { blocks, why });
        }
        let (inodes_per_group, itable_blocks) = self.group_inodes(inodes, groups);
        let mut reserved_gdt = self.reserved_gdt(blocks, per_group, per_block, desc_blocks);
        if reserved_gdt + desc_blocks > per_group * 3 / 4 {
            // A table of descriptors would fill the groups.
            self.features.incompat |= Incompat::META_BG;
            self.features.compat -= Compat::RESIZE_INODE;
            reserved_gdt = 0;
        }
        let spread = self.features.has_incompat(Incompat::META_BG);
        let at_most = if spread { 1 } else { desc_blocks };
        if 3 + itable_blocks + reserved_gdt + at_most > per_group {
            return Err(self.too_many_inodes());
        }
        let flex = self.features.has_incompat(Incompat::FLEX_BG);
        let geometry = Geometry {
            features: self.features,
            block_size: self.block_size,
            blocks,
            reserved_blocks: self.reserved,
            cluster_bits: self.cluster_bits,
            blocks_per_group: exact_u32(per_group),
            groups: exact_u32(groups),
            inode_size: exact_u16(self.inode_size),
            inodes_per_group: exact_u32(inodes_per_group),
            itable_blocks: exact_u32(itable_blocks),
            desc_size,
            desc_blocks: exact_u32(desc_blocks),
            first_meta_bg: spread.then_some(0),
            reserved_gdt: exact_u32(reserved_gdt),
            log_groups_per_flex: if flex { LOG_FLEX } else { 0 },
            backups: self.backups(exact_u32(groups)),
        };
        let overhead = geometry.overhead(geometry.groups - 1);
        let rest = data % per_group;
        if groups == 1 && rest != 0 && rest < overhead {
            return Err(too_small("its own metadata"));
        }
        if rest != 0 && rest < geometry.least_last_group() {
            return Ok(Attempt::FewerBlocks(blocks - rest));
        }
        Ok(Attempt::Stands(Box::new(geometry)))
    }

    /// The first block of group 0.
    fn first_block(&self) -> u64 {
        u64::from(self.block_size == BlockSize::KIB1 && self.cluster_bits == 0)
    }

    /// Inodes of a group, and the blocks of its table that they fill.
    fn group_inodes(&self, inodes: u64, groups: u64) -> (u64, u64) {
        let bs = self.block_size.bytes_u64();
        let most = MAX_GROUP_INODES - bs / self.inode_size;
        let mut per_group = inodes.div_ceil(groups).min(most);
        loop {
            let table = (per_group * self.inode_size).div_ceil(bs);
            let filled = (table * bs / self.inode_size).max(8) & !7;
            if filled * groups <= u64::from(u32::MAX) {
                return (filled, (filled * self.inode_size).div_ceil(bs));
            }
            per_group -= 1;
        }
    }

    /// Blocks that reserve room for the descriptors of a volume 1024 times as large.
    fn reserved_gdt(&self, blocks: u64, per_group: u64, per_block: u64, desc_blocks: u64) -> u64 {
        if !self.features.has_compat(Compat::RESIZE_INODE) {
            return 0;
        }
        let first = self.first_block();
        let most = u64::from(u32::MAX);
        let largest = if blocks < most / 1024 {
            blocks * 1024
        } else {
            most
        };
        let groups = (largest - first).div_ceil(per_group);
        let more = groups.div_ceil(per_block) - desc_blocks;
        more.min(self.block_size.bytes_u64() / 4)
    }

    /// The groups of `sparse_super2`'s backups: the second and the last.
    fn backups(&self, groups: u32) -> [u32; 2] {
        if !self.features.has_compat(Compat::SPARSE_SUPER2) {
            return [0, 0];
        }
        match groups {
            1 => [0, 0],
            2 => [0, 1],
            more => [1, more - 1],
        }
    }

    /// The reserved part of fewer blocks than were wanted.
    fn reserved_of(&self, blocks: u64) -> u64 {
        #[allow(clippy::cast_precision_loss, reason = "as mke2fs rounds it")]
        let percent = 100.0 * self.reserved as f64 / self.blocks as f64;
        share(blocks, percent)
    }
}

/// `percent` of `blocks`, rounded down.
fn share(blocks: u64, percent: f64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count below 2^48, from 0 to half of it"
    )]
    {
        (percent * blocks as f64 / 100.0) as u64
    }
}

pub(crate) fn block_size(bytes: u32) -> Result<BlockSize> {
    let why = "it has to be a power of two from 1024 to 65536";
    BlockSize::from_bytes(bytes).ok_or_else(|| Error::bad("the block size", bytes, why))
}

/// How many inodes are asked for, of a volume of `bytes` bytes with clusters of `cluster`.
fn inodes(
    options: &Options,
    profile: &Profile,
    bytes: u64,
    cluster: u64,
    wide: bool,
) -> Result<u64> {
    let most = u64::from(u32::MAX);
    if let Some(inodes) = options.inodes {
        if !(1..=most).contains(&inodes) {
            let why = "it has to be from 1 to 2^32 - 1";
            return Err(Error::bad("the number of inodes", inodes, why));
        }
        return Ok(inodes);
    }
    // An inode for each cluster is the most, unless more are asked for.
    let default = profile.bytes_per_inode.max(cluster);
    let ratio = options.bytes_per_inode.unwrap_or(default);
    if options.bytes_per_inode.is_some() && !(1024..=1 << 26).contains(&ratio) {
        let why = "it has to be from 1024 to 67108864";
        return Err(Error::bad("the number of bytes for an inode", ratio, why));
    }
    let inodes = bytes / ratio;
    if inodes > most && !wide {
        let why = "it makes more than 2^32 - 1 inodes, which without 64bit have to be asked for";
        return Err(Error::bad("the number of bytes for an inode", ratio, why));
    }
    Ok(inodes.min(most))
}
