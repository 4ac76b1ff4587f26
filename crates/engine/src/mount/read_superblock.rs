//! Reading the superblock at mount, and the errors of a bad one.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::CorruptKind;
use extant_disk::features::Incompat;
use extant_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, SuperblockError, first_copies,
};
use extant_units::DevOff;
use zerocopy::IntoBytes;

use super::feature_gate;
use crate::config::MountOptions;
use crate::state::volume::mounted_superblock::{is_in_use, mend_mark};
use crate::types::error::{Error, Result};

/// Reads and checks the superblock that the options name, gates its features, and resolves the
/// options that it decides. A volume that can only be read makes the options read-only, or refuses
/// those that ask to write by name.
///
/// # Errors
/// Not ext4, damaged, truncated, unsupported: each has its own.
pub(super) fn read(dev: &Arc<dyn BlockDevice>, options: &mut MountOptions) -> Result<Superblock> {
    let offset = options.superblock_offset().unwrap_or(SUPERBLOCK_OFFSET);
    let size = match options.noload() {
        true => TornSize::Confirmed,
        false => TornSize::Any,
    };
    let sb = read_at(dev, offset, size)?;
    if offset != SUPERBLOCK_OFFSET && !options.read_only() {
        // A backup is older than the volume: enough to read it, not to change it.
        return Err(Error::BadOption(
            "'sb': a backup superblock can only be mounted with 'ro' (let e2fsck -b repair the \
             volume)"
                .into(),
        ));
    }
    let mut verdict = feature_gate::judge(&sb.features())?;
    if !sb
        .blocks_count()
        .get()
        .is_multiple_of(1 << sb.cluster_bits())
    {
        // Blocks of the last cluster do not exist, and files could get them.
        let part = "bigalloc with a part of a cluster at the end";
        verdict.read_only.push(part.into());
    }
    sb.check_device_len(dev.len())?;
    if !verdict.read_only.is_empty() && !options.read_only() {
        if let Some(why) = verdict.unwritable.filter(|_| options.asks_to_write()) {
            return Err(Error::UnsupportedFeature(why));
        }
        tracing::warn!(
            features = verdict.read_only.join(", "),
            "mounted read-only: features that can only be read"
        );
        options.set_read_only();
    }
    if sb.is_of_hurd() && !options.read_only() {
        // Each change of an inode would count up the number of a block.
        tracing::warn!("mounted read-only: a volume of GNU Hurd can only be read");
        options.set_read_only();
    }
    options.resolve(&sb);
    Ok(sb)
}

/// Confirms, once the log was replayed, a superblock that was torn before: a resize that is in the
/// log brought a whole one, or a copy has the same size. It is the one that the options name.
///
/// # Errors
/// The superblock is torn, and nothing confirms its size.
pub(super) fn confirm(dev: &Arc<dyn BlockDevice>, options: &MountOptions) -> Result<()> {
    let offset = options.superblock_offset().unwrap_or(SUPERBLOCK_OFFSET);
    read_at(dev, offset, TornSize::Confirmed).map(drop)
}

/// Which size a torn superblock may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TornSize {
    /// That of a copy, if there is one.
    Confirmed,
    /// Another than a copy's too, if a log waits: a resize may have been cut while it was replayed.
    /// All sizes are in one sector, so they are those before the resize or after it.
    Any,
}

fn read_at(dev: &Arc<dyn BlockDevice>, offset: u64, size: TornSize) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let end = offset.saturating_add(SUPERBLOCK_SIZE as u64);
    if end > dev.len() {
        return Err(Error::NotExt4(format!("it has only {} bytes", dev.len())));
    }
    dev.read_at(DevOff::new(offset), &mut bytes)?;
    match Superblock::parse(&bytes) {
        Err(SuperblockError::BadChecksum { .. }) if offset == SUPERBLOCK_OFFSET => {
            let mended = mend_torn(dev, &bytes, size).map_or_else(|| Superblock::parse(&bytes), Ok);
            mended.map_err(|error| with_hint(dev, offset, error))
        }
        result => result.map_err(|error| with_hint(dev, offset, error)),
    }
}

/// Mends a superblock whose checksum is wrong because a power failure tore its two sectors, each of
/// which is the old or the new one (see
/// [`crate::state::volume::mounted_superblock::write_directly`]). If
/// only the mark was being changed, the checksum proves it. Otherwise the volume must be marked as
/// in use, and the fields that never change must equal a backup, where it has one. `None` for
/// damage of another kind.
fn mend_torn(
    dev: &Arc<dyn BlockDevice>,
    bytes: &[u8; SUPERBLOCK_SIZE],
    size: TornSize,
) -> Option<Superblock> {
    let mut raw = RawSuperblock::copy_from(bytes)?;
    if let Some(mended) = mend_mark(&raw) {
        tracing::warn!("the superblock was torn while the volume was marked; mended");
        return Superblock::parse(mended.as_bytes()).ok();
    }
    if !is_in_use(&raw) {
        return None;
    }
    raw.seal();
    let mended = Superblock::parse(raw.as_bytes()).ok()?;
    let any_size = size == TornSize::Any && mended.features().has_incompat(Incompat::RECOVER);
    let fixed = |sb: &Superblock| {
        let raw = sb.raw();
        let sizes = (sb.blocks_count(), sb.inodes_count());
        let lasting = Incompat::all() - Incompat::RECOVER;
        (
            (
                raw.uuid,
                raw.checksum_seed,
                raw.hash_seed,
                (!any_size).then_some(sizes),
            ),
            (
                sb.block_size(),
                sb.inode_size(),
                sb.desc_size(),
                sb.blocks_per_group(),
            ),
            (
                sb.features().incompat & lasting,
                sb.journal_inode(),
                sb.orphan_file_inode(),
            ),
        )
    };
    let backup = good_backup(dev).map(|(_, sb)| sb);
    if backup.is_some_and(|backup| fixed(&backup) != fixed(&mended)) {
        return None;
    }
    tracing::warn!(
        "the superblock was being written when the volume was left; its checksum is made anew"
    );
    Some(mended)
}

/// The error of a bad primary superblock. It names the first good backup if one is where `mke2fs`
/// puts them.
fn with_hint(dev: &Arc<dyn BlockDevice>, offset: u64, error: SuperblockError) -> Error {
    let plain = Error::from(error);
    if offset != SUPERBLOCK_OFFSET {
        return plain;
    }
    let Some((at, _)) = good_backup(dev) else {
        return plain;
    };
    let with_copy = CorruptKind::Superblock(error, Some(at));
    match plain {
        Error::NotExt4(_) => Error::NotExt4(with_copy.to_string()),
        Error::Corrupt { location, .. } => Error::corrupt(location, with_copy),
        other => other,
    }
}

/// The first good backup where `mke2fs` puts them, and its byte offset.
fn good_backup(dev: &Arc<dyn BlockDevice>) -> Option<(u64, Superblock)> {
    first_copies().find_map(|at| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if at.saturating_add(SUPERBLOCK_SIZE as u64) > dev.len() {
            return None;
        }
        dev.read_at(DevOff::new(at), &mut bytes).ok()?;
        Some((at, Superblock::parse(&bytes).ok()?))
    })
}
