//! The superblock as bytes.

use extant_disk::dir_hash::HashAlgorithm;
use extant_disk::features::{Compat, Incompat};
use extant_disk::superblock::{
    DefaultMountOpts, MAGIC, RawSuperblock, STRICT_NAMES, State, SuperFlags, UTF8_12_1,
};
use extant_units::{Blocks, exact_u16, exact_u32};
use zerocopy::little_endian::U32;

use crate::files::JOURNAL_INO;
use crate::geometry::FIRST_INO;
use crate::identity::Identity;
use crate::inodes::{Contents, MMP_SECONDS};
use crate::layout::Layout;

/// `s_errors`: go on after an error. What mke2fs writes where nothing was chosen.
pub(crate) const ERRORS_CONTINUE: u16 = 1;
/// `s_max_mnt_count`: never checked because of the number of mounts.
pub(crate) const NO_LIMIT: u16 = u16::MAX;
/// `s_checksum_type`: crc32c.
pub(crate) const CRC32C: u8 = 1;
/// `s_jnl_backup_type`: `s_jnl_blocks` has a copy of the journal's inode.
const JOURNAL_BACKUP: u8 = 1;
/// `s_encrypt_algos`: AES-256-XTS and AES-256-CTS. Policies name their modes themselves.
const USUAL_CIPHERS: [u8; 4] = [1, 4, 0, 0];
/// Bytes behind byte 128 that inodes of more than 128 bytes have for the format's fields.
pub(crate) const EXTRA_ISIZE: u16 = 32;

/// The superblock, not sealed. `kib_written` is what was written to the device so far.
pub(crate) fn superblock(
    layout: &Layout,
    identity: &Identity,
    contents: &Contents,
    kib_written: u64,
) -> Box<RawSuperblock> {
    let mut raw = RawSuperblock::zeroed();
    counts(&mut raw, layout);
    let geometry = &layout.geometry;
    let features = geometry.features;
    raw.set_features(features);
    raw.magic.set(MAGIC);
    raw.set_state(State::VALID);
    raw.errors.set(ERRORS_CONTINUE);
    raw.max_mnt_count.set(NO_LIMIT);
    raw.rev_level.set(1);
    raw.first_ino.set(FIRST_INO);
    raw.inode_size.set(geometry.inode_size);
    raw.uuid = identity.uuid;
    raw.volume_name = identity.label;
    times(&mut raw, identity.time);
    let words = identity.hash_seed.as_chunks::<4>().0;
    for (word, bytes) in raw.hash_seed.iter_mut().zip(words) {
        *word = U32::from_bytes(*bytes);
    }
    raw.def_hash_version = HashAlgorithm::HalfMd4.version();
    let options = DefaultMountOpts::XATTR_USER | DefaultMountOpts::ACL;
    raw.default_mount_opts.set(options.bits());
    raw.flags.set(SuperFlags::SIGNED_HASH.bits());
    if geometry.inode_size > 128 {
        raw.min_extra_isize.set(EXTRA_ISIZE);
        raw.want_extra_isize.set(EXTRA_ISIZE);
    }
    if features.has_incompat(Incompat::SIXTY_FOUR_BIT) {
        raw.desc_size.set(exact_u16(geometry.desc_size as u64));
    }
    raw.raid_stride.set(exact_u16(layout.stride.into()));
    raw.raid_stripe_width.set(layout.stripe_width);
    if features.has_incompat(Incompat::CASEFOLD) {
        raw.encoding.set(UTF8_12_1);
        raw.encoding_flags
            .set(u16::from(layout.strict_names) * STRICT_NAMES);
    }
    if features.has_incompat(Incompat::ENCRYPT) {
        raw.encrypt_algos = USUAL_CIPHERS;
    }
    raw.log_groups_per_flex = geometry.log_groups_per_flex;
    raw.kbytes_written.set(kib_written);
    if let Some(seed) = identity.seed(features) {
        raw.checksum_type = CRC32C;
        if features.has_incompat(Incompat::CSUM_SEED) {
            raw.checksum_seed.set(seed.raw());
        }
    }
    files(&mut raw, layout, contents);
    raw
}

fn counts(raw: &mut RawSuperblock, layout: &Layout) {
    let geometry = &layout.geometry;
    let low = |count: u64| U32::new(exact_u32(count & 0xFFFF_FFFF));
    geometry.store_size(raw);
    assert!(
        layout.free_blocks() + geometry.metadata() <= geometry.blocks,
        "free blocks and metadata are within the volume"
    );
    raw.set_free_blocks_count(Blocks::new(layout.free_blocks()));
    raw.free_inodes_count.set(layout.free_inodes());
    raw.first_data_block = low(geometry.first_block());
    raw.log_block_size.set(geometry.block_size.log2() - 10);
    raw.log_cluster_size = (raw.log_block_size.get() + geometry.cluster_bits).into();
    raw.blocks_per_group.set(geometry.blocks_per_group);
    raw.clusters_per_group.set(geometry.clusters_per_group());
    raw.inodes_per_group.set(geometry.inodes_per_group);
    raw.overhead_blocks = low(layout.overhead);
}

pub(crate) fn times(raw: &mut RawSuperblock, seconds: u64) {
    raw.set_write_time(seconds);
    (raw.mkfs_time, raw.mkfs_time_hi) = (raw.wtime, raw.wtime_hi);
    (raw.lastcheck, raw.lastcheck_hi) = (raw.wtime, raw.wtime_hi);
}

fn files(raw: &mut RawSuperblock, layout: &Layout, contents: &Contents) {
    if let Some((i_block, size)) = contents.journal {
        raw.journal_inum.set(JOURNAL_INO);
        raw.jnl_backup_type = JOURNAL_BACKUP;
        let numbers = i_block.as_chunks::<4>().0;
        for (slot, bytes) in raw.jnl_blocks.iter_mut().zip(numbers) {
            *slot = U32::from_bytes(*bytes);
        }
        raw.jnl_blocks[15].set(exact_u32(size >> 32));
        raw.jnl_blocks[16].set(exact_u32(size & 0xFFFF_FFFF));
    }
    if let Some(journal) = &layout.external_journal {
        raw.journal_uuid = journal.uuid;
        raw.journal_dev.set(journal.number);
    }
    if let Some(block) = layout.files.mmp {
        raw.mmp_block.set(block);
        raw.mmp_interval.set(MMP_SECONDS);
    }
    let features = layout.geometry.features;
    if features.has_compat(Compat::ORPHAN_FILE) {
        raw.orphan_file_inum.set(layout.files.orphan_ino());
    }
    for file in &layout.files.quotas {
        file.kind.set_file(raw, file.ino);
    }
}
