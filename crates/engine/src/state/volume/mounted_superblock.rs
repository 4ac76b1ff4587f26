//! The superblock's changing fields.
//!
//! While mounted, the superblock is a metadata block like any other: [`MountedSuperblock::update`]
//! (in `superblock_update`) changes it under a handle. Before the journal is open and after it was
//! closed, [`write_directly`] changes the bytes on the device. As in Linux, the free counts in it
//! are exact only after an unmount. The groups' counts always are; the mount sums the totals up
//! from them.
//!
//! # Locks
//! None of its own: the block's lock, inside `Handle::modify`, serialises changes.

use extant_sync::atomic::AtomicBool;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::SuperblockDamage;
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State};
use extant_units::{DevOff, Pblk};
use zerocopy::IntoBytes;

use crate::state::volume::Layout;
use crate::types::Timestamp;
use crate::types::error::{Error, Location, Result};

/// The location of the superblock while mounted, and its state at mount.
#[derive(Debug)]
pub(crate) struct MountedSuperblock {
    pub(crate) block: Pblk,
    pub(crate) offset: usize,
    /// The volume was clean when it was mounted.
    was_valid: bool,
    /// The feature `large_file` is set.
    pub(crate) large_file: AtomicBool,
    /// The feature `ext_attr` is set.
    pub(crate) ext_attr: AtomicBool,
}

impl MountedSuperblock {
    /// The primary superblock of a volume of this layout, which was mounted in `state`.
    pub(crate) fn new(layout: &Layout, state: State) -> Self {
        let (block, offset) = layout.superblock_location();
        Self {
            block,
            offset,
            was_valid: state.contains(State::VALID),
            large_file: AtomicBool::new(layout.features.has_ro_compat(RoCompat::LARGE_FILE)),
            ext_attr: AtomicBool::new(layout.features.has_compat(Compat::EXT_ATTR)),
        }
    }

    /// Returns whether the volume was clean when it was mounted: only then may an unmount call it
    /// clean.
    pub(crate) fn was_valid(&self) -> bool {
        self.was_valid
    }
}

/// Copies the error record of `old` to `new`, if `new` has less.
pub(crate) fn keep_error_record(old: &RawSuperblock, new: &mut RawSuperblock) {
    if old.state().contains(State::ERROR) {
        new.set_state(new.state() | State::ERROR);
    }
    if old.error_count.get() > new.error_count.get() {
        new.copy_error_record(old);
    }
}

/// Changes the primary superblock on the device, durably, past all caches: for mount, unmount and
/// faults.
///
/// A drive may tear the write between its two sectors: the checksum is in the second, most changing
/// fields are in the first. So that the next mount can tell a tear from damage, the mark of a
/// volume in use ([`is_in_use`]) changes in a write of its own, which changes nothing else, and all
/// other fields change while the mark is set. A volume that is not in use before and after has the
/// mark in between.
///
/// # Errors
/// The device failed.
pub(crate) fn write_directly(
    dev: &Arc<dyn BlockDevice>,
    f: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let at = DevOff::new(SUPERBLOCK_OFFSET);
    let (old, mut new) = changed(dev, f)?;
    seal(&mut new);
    let set = if is_in_use(&new) {
        new.clone()
    } else {
        with_mark(&old)
    };
    if !is_in_use(&old) {
        dev.write_durable(at, with_mark_of(&set, &old).as_bytes())?;
    }
    if !is_in_use(&new) {
        dev.write_durable(at, with_mark_of(&set, &new).as_bytes())?;
    }
    dev.write_durable(at, new.as_bytes())?;
    Ok(())
}

/// Changes the primary superblock as [`write_directly`] does, as far as possible, on a device that
/// may have lost writes: for the record of a fault. The mark of a volume in use stays as it is, or
/// is set: of an unmount whose last write failed, the record could be torn.
///
/// # Errors
/// The device failed. Success guarantees nothing.
pub(crate) fn write_note(
    dev: &Arc<dyn BlockDevice>,
    f: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let at = DevOff::new(SUPERBLOCK_OFFSET);
    let (old, mut new) = changed(dev, f)?;
    let marked = with_mark(&old);
    // A record that may be torn is better than none.
    let mark = match is_in_use(&old) {
        true => Ok(()),
        false => dev.write_note(at, marked.as_bytes()),
    };
    copy_mark(&marked, &mut new);
    seal(&mut new);
    dev.write_note(at, new.as_bytes())?;
    Ok(mark?)
}

/// The superblock `raw` with the mark of a volume in use, if it has none. Nothing else changes but
/// the checksum.
fn with_mark(raw: &RawSuperblock) -> Box<RawSuperblock> {
    let mut marked = Box::new(raw.clone());
    if !is_in_use(raw) {
        let mut features = raw.features();
        if features.has_compat(Compat::HAS_JOURNAL) {
            features.incompat.insert(Incompat::RECOVER);
            marked.set_features(features);
        } else {
            marked.set_state(raw.state() - State::VALID);
        }
        marked.seal();
    }
    marked
}

/// The superblock `raw` with the mark of `marked`. Nothing else changes but the checksum.
fn with_mark_of(marked: &RawSuperblock, raw: &RawSuperblock) -> Box<RawSuperblock> {
    let mut between = Box::new(raw.clone());
    copy_mark(marked, &mut between);
    debug_assert!(
        is_in_use(&between),
        "other fields change while the mark is set"
    );
    between.seal();
    between
}

/// The superblock on the device, and the one that `f` makes of it.
fn changed(
    dev: &Arc<dyn BlockDevice>,
    f: impl FnOnce(&mut RawSuperblock),
) -> Result<(Box<RawSuperblock>, Box<RawSuperblock>)> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    let too_short = || Error::corrupt(Location::Superblock, SuperblockDamage::TooShort);
    let old = RawSuperblock::copy_from(&bytes).ok_or_else(too_short)?;
    let mut new = old.clone();
    f(&mut new);
    Ok((old, new))
}

/// Copies the mark of `from` to `to`.
fn copy_mark(from: &RawSuperblock, to: &mut RawSuperblock) {
    let mut features = to.features();
    let recover = from.features().has_incompat(Incompat::RECOVER);
    features.incompat.set(Incompat::RECOVER, recover);
    to.set_features(features);
    let mut state = to.state();
    state.set(State::VALID, from.state().contains(State::VALID));
    to.set_state(state);
}

/// The superblock before or after the write that changed its mark, if the checksum of `torn`
/// matches one of them.
pub(crate) fn mend_mark(torn: &RawSuperblock) -> Option<Box<RawSuperblock>> {
    let mut by_journal = Box::new(torn.clone());
    let mut features = torn.features();
    features.incompat.toggle(Incompat::RECOVER);
    by_journal.set_features(features);
    let mut by_state = Box::new(torn.clone());
    by_state.set_state(torn.state() ^ State::VALID);
    [by_journal, by_state]
        .into_iter()
        .find(|mended| mended.checksum_ok())
}

/// Returns whether the superblock marks the volume as in use, or as left without an unmount.
pub(crate) fn is_in_use(raw: &RawSuperblock) -> bool {
    raw.features().has_incompat(Incompat::RECOVER) || !raw.state().contains(State::VALID)
}

/// Sets the time of the write and the checksum.
pub(crate) fn seal(raw: &mut RawSuperblock) {
    raw.set_write_time(now());
    raw.seal();
}

/// Seconds since the epoch, for the superblock's times.
pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().secs).unwrap_or(0)
}
