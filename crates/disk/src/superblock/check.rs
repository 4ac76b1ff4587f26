//! Rules that a superblock must satisfy before anything is computed from it.

use extant_units::BlockSize;

use super::raw_superblock::{RawSuperblock, join};
use super::superblock_error::SuperblockError;
use super::{MAGIC, Superblock, UTF8_12_1};
use crate::features::{FeatureSets, Incompat, RoCompat};

impl Superblock {
    /// Parses and checks the 1024 bytes of a superblock.
    ///
    /// # Errors
    /// See [`SuperblockError`]. A superblock of an external journal parses, its feature
    /// [`Incompat::JOURNAL_DEV`] says.
    pub fn parse(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let raw = RawSuperblock::copy_from(bytes)
            .ok_or(SuperblockError::WrongLength { found: bytes.len() })?;
        check(raw)
    }
}

fn bad(field: &'static str, value: impl Into<u64>, why: &'static str) -> SuperblockError {
    SuperblockError::BadField {
        field,
        value: value.into(),
        why,
    }
}

/// Checks every field that later arithmetic relies on.
fn check(raw: Box<RawSuperblock>) -> Result<Superblock, SuperblockError> {
    let magic = raw.magic.get();
    if magic != MAGIC {
        return Err(SuperblockError::BadMagic { found: magic });
    }
    if raw.rev_level.get() > 1 {
        return Err(bad("rev_level", raw.rev_level.get(), "0 and 1 are known"));
    }
    let features = raw.features();
    if raw.rev_level.get() == 0 && features != FeatureSets::default() {
        return Err(bad(
            "rev_level",
            0u8,
            "revision 0 has no features, but some are set",
        ));
    }
    let mut sb = Superblock {
        raw,
        block_size: BlockSize::KIB1,
        group_count: 0,
    };
    check_checksum(&sb)?;
    sb.block_size = check_block_size(&sb)?;
    check_inode_fields(&sb)?;
    check_encoding(&sb)?;
    if sb.features().has_incompat(Incompat::JOURNAL_DEV) {
        // An external journal has no groups; the mount refuses it by its feature.
        sb.group_count = 1;
        return Ok(sb);
    }
    check_group_sizes(&sb)?;
    sb.group_count = check_counts(&sb)?;
    check_descriptors(&sb)?;
    Ok(sb)
}

/// Checks that the encoding of names is one that can be folded.
fn check_encoding(sb: &Superblock) -> Result<(), SuperblockError> {
    let encoding = sb.raw.encoding.get();
    if sb.features().has_incompat(Incompat::CASEFOLD) && encoding != UTF8_12_1 {
        return Err(bad("encoding", encoding, "only 1 (utf8-12.1) is known"));
    }
    Ok(())
}

fn check_checksum(sb: &Superblock) -> Result<(), SuperblockError> {
    if !sb.features().metadata_csum() {
        return Ok(());
    }
    let kind = sb.raw.checksum_type;
    if kind != 1 {
        return Err(bad("checksum_type", kind, "only 1 (crc32c) is known"));
    }
    let (stored, computed) = (sb.raw.checksum.get(), sb.raw.compute_checksum());
    if stored != computed {
        return Err(SuperblockError::BadChecksum { stored, computed });
    }
    Ok(())
}

fn check_block_size(sb: &Superblock) -> Result<BlockSize, SuperblockError> {
    let log = sb.raw.log_block_size.get();
    let size = log
        .checked_add(10)
        .and_then(BlockSize::from_log2)
        .ok_or_else(|| bad("log_block_size", log, "block sizes go from 1 KiB to 64 KiB"))?;
    let cluster = sb.raw.log_cluster_size.get();
    if sb.features().has_ro_compat(RoCompat::BIGALLOC) {
        if cluster < log || cluster > 20 {
            return Err(bad(
                "log_cluster_size",
                cluster,
                "a cluster has at least a block and at most 1 GiB",
            ));
        }
    } else if cluster != log {
        return Err(bad(
            "log_cluster_size",
            cluster,
            "without bigalloc a cluster is a block",
        ));
    }
    Ok(size)
}

fn check_inode_fields(sb: &Superblock) -> Result<(), SuperblockError> {
    let size = sb.inode_size();
    if !size.is_power_of_two() || size < 128 || size > sb.block_size.bytes() {
        return Err(bad(
            "inode_size",
            sb.raw.inode_size.get(),
            "inodes have a power of two of bytes, at least 128, at most a block",
        ));
    }
    if sb.first_inode() < 11 {
        return Err(bad(
            "first_ino",
            sb.first_inode(),
            "ten inodes are reserved",
        ));
    }
    Ok(())
}

fn check_group_sizes(sb: &Superblock) -> Result<(), SuperblockError> {
    let bits = sb.block_size.bytes_u64() * 8;
    let per_group = sb.blocks_per_group();
    let clusters = u64::from(sb.raw.clusters_per_group.get());
    let cluster_bits = sb.cluster_bits();
    if per_group == 0 || !per_group.is_multiple_of(8) {
        return Err(bad(
            "blocks_per_group",
            per_group,
            "must be a multiple of 8",
        ));
    }
    if u64::from(per_group) >> cluster_bits > bits {
        return Err(bad(
            "blocks_per_group",
            per_group,
            "more than one bitmap block holds",
        ));
    }
    // Old images leave the field of clusters alone when there are none.
    let bigalloc = sb.features().has_ro_compat(RoCompat::BIGALLOC);
    if bigalloc && clusters << cluster_bits != u64::from(per_group) {
        return Err(bad(
            "clusters_per_group",
            clusters,
            "does not match blocks_per_group",
        ));
    }
    let inodes = sb.inodes_per_group();
    if inodes == 0 || !inodes.is_multiple_of(8) {
        return Err(bad("inodes_per_group", inodes, "must be a multiple of 8"));
    }
    if u64::from(inodes) > bits {
        return Err(bad(
            "inodes_per_group",
            inodes,
            "more than one bitmap block holds",
        ));
    }
    // Counts of a group have 16 bits in small descriptors.
    let counted = (u64::from(per_group) >> cluster_bits).max(inodes.into());
    if !sb.features().has_incompat(Incompat::SIXTY_FOUR_BIT) && counted > u64::from(u16::MAX) {
        return Err(bad(
            "blocks_per_group",
            per_group,
            "more than a descriptor of 32 bytes counts",
        ));
    }
    let first = sb.raw.first_data_block.get();
    let expected = u32::from(sb.block_size == BlockSize::KIB1 && cluster_bits == 0);
    if first != expected {
        return Err(bad(
            "first_data_block",
            first,
            "1 with blocks of 1 KiB, else 0",
        ));
    }
    Ok(())
}

fn check_counts(sb: &Superblock) -> Result<u32, SuperblockError> {
    let blocks = sb.blocks_count().get();
    let sixty_four = sb.features().has_incompat(Incompat::SIXTY_FOUR_BIT);
    if !sixty_four && sb.raw.blocks_count_hi.get() != 0 {
        let all = join(sb.raw.blocks_count_lo, sb.raw.blocks_count_hi);
        return Err(bad("blocks_count", all, "needs the feature 64bit"));
    }
    let data = blocks
        .checked_sub(sb.first_data_block().get())
        .filter(|&data| data > 0)
        .ok_or_else(|| bad("blocks_count", blocks, "no block left for a group"))?;
    if blocks >> 48 != 0 {
        return Err(bad("blocks_count", blocks, "block numbers have 48 bits"));
    }
    let groups = data.div_ceil(u64::from(sb.blocks_per_group()));
    let groups = u32::try_from(groups)
        .map_err(|_| bad("blocks_count", blocks, "more than 2^32 - 1 groups"))?;
    let inodes = u64::from(groups) * u64::from(sb.inodes_per_group());
    if inodes != u64::from(sb.inodes_count()) {
        return Err(bad(
            "inodes_count",
            sb.inodes_count(),
            "is not groups times inodes_per_group",
        ));
    }
    if sb.first_inode() > sb.inodes_count() {
        return Err(bad("first_ino", sb.first_inode(), "past the last inode"));
    }
    Ok(groups)
}

fn check_descriptors(sb: &Superblock) -> Result<(), SuperblockError> {
    let size = usize::from(sb.raw.desc_size.get());
    if sb.features().has_incompat(Incompat::SIXTY_FOUR_BIT)
        && (!size.is_power_of_two() || !(64..=1024).contains(&size))
    {
        return Err(bad(
            "desc_size",
            sb.raw.desc_size.get(),
            "with 64bit a power of two from 64 to 1024",
        ));
    }
    let reserved = sb.reserved_gdt_blocks();
    if u64::from(reserved) > sb.block_size.bytes_u64() / 4 {
        return Err(bad(
            "reserved_gdt_blocks",
            reserved,
            "more than an indirect block names",
        ));
    }
    // Superblock and descriptors lie in front of group 0's data (meta_bg spreads them instead).
    let first = sb.first_data_block().get();
    let start = sb.descriptor_start().get() - first;
    let tabled = sb.first_meta_bg().unwrap_or(sb.desc_blocks());
    if tabled > sb.desc_blocks() {
        return Err(bad(
            "first_meta_bg",
            tabled,
            "more than there are blocks of descriptors",
        ));
    }
    let table = u64::from(tabled) + u64::from(reserved) + start;
    let blocks = sb.blocks_count().get() - first;
    let room = blocks.min(u64::from(sb.blocks_per_group()));
    if table > room {
        return Err(bad(
            "blocks_count",
            sb.blocks_count().get(),
            "the group descriptors do not fit group 0",
        ));
    }
    if u64::from(sb.desc_blocks()) >= blocks {
        return Err(bad(
            "blocks_count",
            sb.blocks_count().get(),
            "the group descriptors fill the volume",
        ));
    }
    Ok(())
}
