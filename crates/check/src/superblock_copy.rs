//! A volume whose first superblock cannot be used, by a copy of it.
//!
//! A copy is as old as the last resize or change of features, and marks neither a clean volume nor
//! a log that waits. The log itself says the latter, so a volume that was not unmounted is replayed
//! as by its own superblock.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::features::Incompat;
use extant_disk::superblock::{
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock, first_copies,
};
use extant_jbd2::inspect;
use extant_units::{DevOff, Group};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::journal::find_log;

/// The byte of the first copy of the superblock that can be used, where mke2fs puts those of full
/// groups, for each size of blocks.
pub fn find_superblock_copy(dev: &dyn BlockDevice) -> Option<u64> {
    let mut starts = first_copies().filter(|at| *at < dev.len());
    starts.find(|at| read(dev, *at).is_ok())
}

/// The volume on `dev` with the copy of its superblock at byte `offset` in place of the first. The
/// device is not written.
///
/// # Errors
/// No copy that can be used begins there; or the device failed.
pub fn with_superblock_copy(
    dev: Arc<dyn BlockDevice>,
    offset: u64,
) -> Result<Arc<dyn BlockDevice>> {
    let bytes = superblock_from_copy(&dev, offset)?;
    let copy = CowDevice::new(dev);
    copy.write_at(DevOff::new(SUPERBLOCK_OFFSET), &bytes)?;
    Ok(Arc::new(copy))
}

/// The first superblock as the copy at byte `offset` has it: of a volume that is not clean, and
/// waits for a replay if its log holds transactions.
///
/// # Errors
/// As [`with_superblock_copy`].
pub fn superblock_from_copy(
    dev: &Arc<dyn BlockDevice>,
    offset: u64,
) -> Result<[u8; SUPERBLOCK_SIZE]> {
    let sb = read(dev, offset)?;
    let mut raw = sb.raw().clone();
    raw.block_group_nr = 0.into();
    raw.set_state(raw.state() - State::VALID);
    raw.seal();
    let with = CowDevice::new(Arc::clone(dev));
    with.write_at(DevOff::new(SUPERBLOCK_OFFSET), raw.as_bytes())?;
    let with: Arc<dyn BlockDevice> = Arc::new(with);
    let log = find_log(Arc::clone(&with)).ok().flatten();
    if let Some(log) = log
        && inspect(&with, sb.block_size(), &log).is_ok_and(|log| log.start() != 0)
    {
        set_recover(&mut raw);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(raw.as_bytes());
    Ok(bytes)
}

fn set_recover(raw: &mut RawSuperblock) {
    let mut features = raw.features();
    features.incompat.insert(Incompat::RECOVER);
    raw.set_features(features);
    raw.seal();
}

/// The copy at byte `offset`, which has to lie where its volume keeps one. So the superblock of an
/// image inside of a file is none.
fn read(dev: &dyn BlockDevice, offset: u64) -> Result<Superblock> {
    let sb = parse(dev, offset)?;
    let mut others = [1, 3, 5, 7].map(Group::new).into_iter();
    let is_at = |group: &Group| start(&sb, *group) == Some(offset);
    // Linux before 6.0 left the number of group 0 in all copies when it grew a volume.
    let confirmed = sb.raw().block_group_nr.get() != 0
        || others.any(|group| !is_at(&group) && has_twin(dev, &sb, group));
    match group_at(&sb, offset).filter(is_at) {
        Some(_) if confirmed => Ok(sb),
        _ => Err(Error::NoCopy),
    }
}

/// The group in which byte `offset` lies, if it has a copy of the superblock.
fn group_at(sb: &Superblock, offset: u64) -> Option<Group> {
    let block = offset >> sb.block_size().log2();
    let behind = block.checked_sub(sb.first_data_block().get())?;
    let group = u32::try_from(behind.checked_div(sb.blocks_per_group().into())?).ok()?;
    let copied = group > 0 && group < sb.group_count() && sb.has_backup(Group::new(group));
    copied.then_some(Group::new(group))
}

/// The byte at which `group` begins.
fn start(sb: &Superblock, group: Group) -> Option<u64> {
    let blocks = u64::from(group.get()) * u64::from(sb.blocks_per_group());
    let block = sb.first_data_block().get().checked_add(blocks)?;
    block.checked_mul(sb.block_size().bytes_u64())
}

/// Returns whether `group` begins with a superblock of the same volume.
fn has_twin(dev: &dyn BlockDevice, sb: &Superblock, group: Group) -> bool {
    let copied = group.get() < sb.group_count() && sb.has_backup(group);
    let at = start(sb, group).filter(|_| copied);
    let twin = at.and_then(|at| parse(dev, at).ok());
    twin.is_some_and(|twin| twin.raw().uuid == sb.raw().uuid)
}

fn parse(dev: &dyn BlockDevice, offset: u64) -> Result<Superblock> {
    let end = offset.checked_add(SUPERBLOCK_SIZE as u64);
    if end.is_none_or(|end| end > dev.len()) {
        return Err(Error::TooShort);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(DevOff::new(offset), &mut bytes)?;
    let sb = Superblock::parse(&bytes)?;
    sb.check_device_len(dev.len())?;
    Ok(sb)
}
