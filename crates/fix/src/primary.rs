//! How much the primary superblock can be relied on, and its checksum when only that is wrong, as a
//! torn write leaves it.
//!
//! A copy in another group with the same geometry confirms the fields. Without one, a checksum that
//! is right for other marks does, as a repair's own write of them may have been cut. Else, or with
//! a copy of another size while a log waits (a resize was cut while it was replayed), the check has
//! to: everything that the superblock leads to must turn out sound. On a volume without checksums a
//! copy is compared as well: tune2fs changes the primary alone, so only by what repairs rely on.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_check::CheckOptions;
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock, SuperblockError,
};
use extant_units::{DevOff, Group};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::image::{Overlay, edit_super, super_bytes};
use crate::options::FixOptions;

/// Evidence for the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It had its checksum, or a copy agrees with it, or a volume without checksums has no copy.
    Confirmed,
    /// Its checksum was wrong, and no copy says that it is right; or the volume has no checksums,
    /// and a copy has another size, as a resize that was cut leaves it.
    Alone,
    /// The volume has no checksums, and a copy contradicts it.
    Contradicted,
}

/// The superblock, which has a right checksum now, if it has one.
pub(crate) struct Primary {
    /// The error of its checksum, if that was wrong.
    pub(crate) resealed: Option<SuperblockError>,
    pub(crate) standing: Standing,
}

impl Primary {
    /// A superblock that a copy has restored.
    pub(crate) const ALONE: Self = Self {
        resealed: None,
        standing: Standing::Alone,
    };
}

/// Puts the copy of the superblock at byte `offset`, if one is named, in the place of the first.
/// `is_repaired` tells whether a repair of the device by other options would succeed.
///
/// # Errors
/// The first can be used, with its checksum stored anew if need be; another format has taken its
/// place; or the copy cannot be used.
pub(crate) fn restore(
    dev: &Arc<dyn BlockDevice>,
    overlay: &Overlay,
    options: &FixOptions<'_>,
    is_repaired: impl FnOnce(&FixOptions<'_>) -> bool,
) -> Result<Option<[u8; SUPERBLOCK_SIZE]>> {
    let Some(offset) = options.superblock else {
        return Ok(None);
    };
    match Superblock::parse(&super_bytes(overlay)?) {
        Ok(_) => return Err(Error::Usable),
        Err(SuperblockError::BadChecksum { .. }) if is_repaired(&alone(options)) => {
            return Err(Error::Resealable);
        }
        Err(_) => {}
    }
    if let Some(other) = extant_mkfs::find_other_format(&**dev)?
        && (!other.is_boot_sector() || is_partitioned(&**dev)?)
    {
        return Err(Error::OtherFormat(other.what));
    }
    let bytes = extant_check::superblock_from_copy(dev, offset)?;
    overlay.write_at(DevOff::new(SUPERBLOCK_OFFSET), &bytes)?;
    Ok(Some(bytes))
}

/// Returns whether a device with a boot sector is divided into partitions: a copy on it is then
/// that of a volume of former times.
fn is_partitioned(dev: &dyn BlockDevice) -> Result<bool> {
    const ENTRIES: DevOff = DevOff::new(446);
    const ENTRY_LEN: usize = 16;
    const TYPE: usize = 4;
    let mut entries = [0; 4 * ENTRY_LEN];
    dev.read_at(ENTRIES, &mut entries)?;
    let is_used = |entry: &[u8]| entry[TYPE] != 0;
    let signatures = extant_mkfs::find_signatures(dev)?;
    Ok(entries.chunks(ENTRY_LEN).any(is_used) || signatures.iter().any(|one| one.is_guid_table()))
}

/// The options of a repair without a copy, which would store the checksum of the first superblock
/// anew. It writes nothing.
fn alone<'a>(options: &FixOptions<'a>) -> FixOptions<'a> {
    FixOptions {
        dry_run: true,
        superblock: None,
        check: CheckOptions {
            progress: None,
            ..options.check
        },
    }
}

/// Stores the right checksum if that is all that is wrong.
///
/// # Errors
/// The superblock cannot be used, whatever its checksum; or it was wrong, and a copy contradicts
/// the rest.
pub(crate) fn reseal(dev: &Overlay) -> Result<Primary> {
    let bytes = super_bytes(dev)?;
    let error = match Superblock::parse(&bytes) {
        Ok(sb) => {
            let standing = match first_copy(dev, &sb)? {
                Some(copy) if !sb.features().metadata_csum() => compared(&sb, &copy),
                _ => Standing::Confirmed,
            };
            return Ok(Primary {
                resealed: None,
                standing,
            });
        }
        Err(error @ SuperblockError::BadChecksum { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    edit_super(dev, |_| {})?;
    let sb = Superblock::parse(&super_bytes(dev)?)?;
    sb.check_device_len(dev.len())?;
    let standing = match first_copy(dev, &sb)? {
        Some(copy) if is_same_volume(&sb, &copy) => Standing::Confirmed,
        Some(copy) if is_resized(&sb, &copy) => Standing::Alone,
        Some(_) => return Err(error.into()),
        None if is_torn(&bytes) => Standing::Confirmed,
        None => Standing::Alone,
    };
    Ok(Primary {
        resealed: Some(error),
        standing,
    })
}

/// Returns whether the checksum is right for other marks: one sector of a write that changed them
/// was cut off, and all else is as it was.
fn is_torn(bytes: &[u8]) -> bool {
    let Some(now) = RawSuperblock::copy_from(bytes) else {
        return false;
    };
    let with = |valid, error, waits| {
        let mut other = now.clone();
        let mut state = other.state();
        state.set(State::VALID, valid);
        state.set(State::ERROR, error);
        other.set_state(state);
        let mut features = other.features();
        features.incompat.set(Incompat::RECOVER, waits);
        other.set_features(features);
        other
    };
    let mut marks = (0..8).map(|bits| with(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0));
    marks.any(|other| other.checksum_ok())
}

/// The first copy of the superblock, if it can be read.
fn first_copy(dev: &Overlay, sb: &Superblock) -> Result<Option<Superblock>> {
    let mut groups = (1..sb.group_count()).map(Group::new);
    let Some(group) = groups.find(|group| sb.has_backup(*group)) else {
        return Ok(None);
    };
    let first = sb.first_data_block().get();
    let block = first + u64::from(group.get()) * u64::from(sb.blocks_per_group());
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(DevOff::new(block << sb.block_size().log2()), &mut bytes)?;
    Ok(Superblock::parse(&bytes).ok())
}

/// How a superblock without checksum stands to a copy.
fn compared(sb: &Superblock, copy: &Superblock) -> Standing {
    if !contradicts(sb, copy) {
        return Standing::Confirmed;
    }
    match at_size_of(sb, copy) {
        Some(copy) if !contradicts(sb, &copy) => Standing::Alone,
        _ => Standing::Contradicted,
    }
}

/// Returns whether two superblocks differ in something that repairs rely on.
fn contradicts(one: &Superblock, two: &Superblock) -> bool {
    let relied_on = |sb: &Superblock| {
        let features = sb.features();
        let kinds = features.has_incompat(Incompat::FILETYPE);
        let clusters = features.has_ro_compat(RoCompat::BIGALLOC);
        let checksums = (features.metadata_csum(), features.group_csum());
        (geometry(sb), sb.raw().uuid, (kinds, clusters), checksums)
    };
    relied_on(one) != relied_on(two)
}

/// Returns whether two superblocks differ at most in what a resize changes, and a log waits that
/// may have one in it.
fn is_resized(one: &Superblock, two: &Superblock) -> bool {
    let waits = one.features().has_incompat(Incompat::RECOVER);
    waits && at_size_of(one, two).is_some_and(|two| is_same_volume(one, &two))
}

/// The second superblock with the first one's size.
fn at_size_of(one: &Superblock, two: &Superblock) -> Option<Superblock> {
    let mut raw = two.raw().clone();
    raw.set_blocks_count(one.blocks_count());
    raw.inodes_count = one.raw().inodes_count;
    raw.reserved_gdt_blocks = one.raw().reserved_gdt_blocks;
    // A table that a resize makes short or long enough takes the feature or leaves it.
    raw.first_meta_bg = one.raw().first_meta_bg;
    // It moves inodes behind the cut.
    raw.orphan_file_inum = one.raw().orphan_file_inum;
    raw.prj_quota_inum = one.raw().prj_quota_inum;
    let mut features = raw.features();
    let spread = one.features().has_incompat(Incompat::META_BG);
    features.incompat.set(Incompat::META_BG, spread);
    raw.set_features(features);
    raw.seal();
    Superblock::parse(raw.as_bytes()).ok()
}

/// Returns whether two superblocks have the same geometry and features, and agree in everything
/// that a reader of the volume relies on. Fields that a mount changes in the original alone are not
/// compared.
fn is_same_volume(one: &Superblock, two: &Superblock) -> bool {
    let features = |sb: &Superblock| {
        let mut features = sb.features();
        features.compat.remove(Compat::EXT_ATTR);
        features.incompat.remove(Incompat::RECOVER);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        features
    };
    let meaning = |sb: &Superblock| {
        let raw = sb.raw();
        (
            (raw.uuid, raw.checksum_seed.get()),
            (sb.hash_seed(), raw.def_hash_version, raw.flags.get()),
            (raw.journal_inum.get(), raw.orphan_file_inum.get()),
            [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum].map(|ino| ino.get()),
        )
    };
    features(one) == features(two) && geometry(one) == geometry(two) && meaning(one) == meaning(two)
}

/// The fields from which all locations follow.
fn geometry(sb: &Superblock) -> impl PartialEq + use<> {
    let raw = sb.raw();
    (
        (sb.blocks_count(), sb.inodes_count(), sb.block_size()),
        (
            sb.blocks_per_group(),
            sb.inodes_per_group(),
            sb.cluster_bits(),
        ),
        (sb.inode_size(), sb.first_inode(), sb.desc_size()),
        (sb.reserved_gdt_blocks(), raw.first_meta_bg.get()),
        sb.first_meta_bg().is_some(),
        (raw.log_groups_per_flex, raw.backup_bgs.map(|bg| bg.get())),
    )
}
