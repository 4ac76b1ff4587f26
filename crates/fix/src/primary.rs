//! The primary superblock when only its checksum is wrong, as a torn write leaves it.
//!
//! A copy in another group with the same geometry confirms the fields. Without a copy, or with one
//! of another size while a log waits (a resize was cut while it was replayed), the check has to:
//! everything that the superblock leads to must turn out sound.

use extant_blockdev::BlockDevice;
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockError};
use extant_units::{DevOff, Group};
use zerocopy::IntoBytes;

use crate::error::Result;
use crate::image::{Overlay, edit_super, super_bytes};

/// A superblock that was given a new checksum.
pub(crate) struct Resealed {
    /// What was wrong.
    pub(crate) error: SuperblockError,
    /// Whether a copy agrees with it.
    pub(crate) confirmed: bool,
}

/// Stores the right checksum if that is all that is wrong.
///
/// # Errors
/// The superblock cannot be used, whatever its checksum; or a copy contradicts it.
pub(crate) fn reseal(dev: &Overlay) -> Result<Option<Resealed>> {
    let error = match Superblock::parse(&super_bytes(dev)?) {
        Ok(_) => return Ok(None),
        Err(error @ SuperblockError::BadChecksum { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    edit_super(dev, |_| {})?;
    let sb = Superblock::parse(&super_bytes(dev)?)?;
    sb.check_device_len(dev.len())?;
    let backups = (1..sb.group_count()).map(Group::new);
    let mut confirmed = false;
    for group in backups.filter(|group| sb.has_backup(*group)).take(1) {
        let first = sb.first_data_block().get();
        let block = first + u64::from(group.get()) * u64::from(sb.blocks_per_group());
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(DevOff::new(block << sb.block_size().log2()), &mut bytes)?;
        match Superblock::parse(&bytes) {
            Ok(copy) if is_same_volume(&sb, &copy) => confirmed = true,
            Ok(copy) if is_resized(&sb, &copy) => {}
            Ok(_) => return Err(error.into()),
            Err(_) => {}
        }
    }
    Ok(Some(Resealed { error, confirmed }))
}

/// Whether two superblocks differ in what a resize changes at most, and a log waits that may have
/// one in it.
fn is_resized(one: &Superblock, two: &Superblock) -> bool {
    let mut raw = two.raw().clone();
    raw.set_blocks_count(one.blocks_count());
    raw.inodes_count = one.raw().inodes_count;
    raw.reserved_gdt_blocks = one.raw().reserved_gdt_blocks;
    raw.seal();
    let waits = one.features().has_incompat(Incompat::RECOVER);
    waits && Superblock::parse(raw.as_bytes()).is_ok_and(|two| is_same_volume(one, &two))
}

/// Whether two superblocks have the same geometry and features, and say the same of everything that
/// a reader of the volume relies on. What a mount changes in the original alone is not compared.
fn is_same_volume(one: &Superblock, two: &Superblock) -> bool {
    let features = |sb: &Superblock| {
        let mut features = sb.features();
        features.compat.remove(Compat::EXT_ATTR);
        features.incompat.remove(Incompat::RECOVER);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        features
    };
    let geometry = |sb: &Superblock| {
        let raw = sb.raw();
        (
            (sb.blocks_count(), sb.inodes_count(), sb.block_size()),
            (sb.blocks_per_group(), sb.inodes_per_group()),
            (sb.inode_size(), sb.first_inode(), sb.desc_size()),
            (sb.reserved_gdt_blocks(), raw.first_meta_bg.get()),
            (raw.log_groups_per_flex, raw.backup_bgs.map(|bg| bg.get())),
        )
    };
    let meaning = |sb: &Superblock| {
        let raw = sb.raw();
        (
            (raw.uuid, raw.checksum_seed.get()),
            (sb.hash_seed(), raw.def_hash_version, raw.flags.get()),
            (raw.journal_inum.get(), raw.orphan_file_inum.get()),
        )
    };
    features(one) == features(two) && geometry(one) == geometry(two) && meaning(one) == meaning(two)
}
