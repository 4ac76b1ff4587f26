//! The superblock's changing fields.
//!
//! While mounted the superblock is a metadata block like any other: [`SuperBlock::update`] changes it under a
//! handle. Before the journal is open and after it was closed, [`write_directly`] changes the bytes on the
//! device. The free counts in it are only right after an unmount, as with Linux; the groups' counts always are,
//! and the totals are summed up from them at mount.
//!
//! No lock of its own: changes are serialised by the block's, inside of [`Handle::modify`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::BlockDevice;
use extant_disk::features::Incompat;
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State};
use extant_jbd2::Handle;
use extant_units::{DevOff, Pblk};
use zerocopy::FromBytes;

use crate::api::Timestamp;
use crate::error::{Error, Place, Result};
use crate::fs::Fs;
use crate::layout::Layout;

/// Where the superblock lives while mounted, and how it was found.
#[derive(Debug)]
pub(crate) struct SuperBlock {
    block: Pblk,
    offset: usize,
    /// The volume was clean when it was mounted.
    was_valid: bool,
    unmounting: AtomicBool,
}

impl SuperBlock {
    /// The primary superblock of a volume of this layout, which was mounted in `state`.
    pub(crate) fn new(layout: &Layout, state: State) -> Self {
        let (block, offset) = layout.superblock_location();
        Self {
            block,
            offset,
            was_valid: state.contains(State::VALID),
            unmounting: AtomicBool::new(false),
        }
    }

    /// Whether the volume was clean when it was mounted: only then may an unmount call it clean.
    pub(crate) fn was_valid(&self) -> bool {
        self.was_valid
    }

    /// True for the first caller: the one that unmounts.
    pub(crate) fn begin_unmount(&self) -> bool {
        !self.unmounting.swap(true, Ordering::AcqRel)
    }

    /// Changes the superblock under `h` and seals it. One credit. `f` must not take locks.
    ///
    /// # Errors
    /// The block cannot be read, or the journal has stopped.
    pub(crate) fn update<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut RawSuperblock) -> R,
    ) -> Result<R> {
        let block = fs.cache.read_unchecked(self.block)?;
        let changed = h.modify(&block, |bytes| {
            let raw = bytes
                .get_mut(self.offset..)
                .and_then(|bytes| RawSuperblock::mut_from_prefix(bytes).ok());
            raw.map(|(raw, _)| {
                let result = f(raw);
                fs.fault.note_in(raw);
                seal(raw);
                result
            })
        })?;
        changed.ok_or_else(|| Error::corrupt(Place::Superblock, "the block is too short"))
    }

    /// A copy of the superblock as it is in the running transaction.
    ///
    /// # Errors
    /// The block cannot be read.
    pub(crate) fn read(&self, fs: &Fs) -> Result<Box<RawSuperblock>> {
        let data = fs.cache.read_unchecked(self.block)?.data();
        data.get(self.offset..self.offset + SUPERBLOCK_SIZE)
            .and_then(RawSuperblock::copy_from)
            .ok_or_else(|| Error::corrupt(Place::Superblock, "the block is too short"))
    }
}

/// Changes the primary superblock on the device, durably, past all caches: for mount, unmount and faults.
///
/// A drive may tear it between its two sectors. The mark of a volume in use ([`is_in_use`]) stands in the first; it is
/// set before the second sector is written and cleared after, so that a torn superblock always carries it, and the
/// next mount can tell a tear from damage.
///
/// # Errors
/// The device failed.
pub(crate) fn write_directly(
    dev: &Arc<dyn BlockDevice>,
    f: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let at = DevOff::new(SUPERBLOCK_OFFSET);
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(at, &mut bytes)?;
    let mut in_use = false;
    if let Ok(raw) = RawSuperblock::mut_from_bytes(&mut bytes) {
        f(raw);
        seal(raw);
        in_use = is_in_use(raw);
    }
    let (first, second) = bytes.split_at(SUPERBLOCK_SIZE / 2);
    let behind = DevOff::new(SUPERBLOCK_OFFSET + first.len() as u64);
    if in_use {
        dev.write_durable(at, first)?;
        dev.write_durable(behind, second)?;
    } else {
        dev.write_durable(behind, second)?;
        dev.write_durable(at, first)?;
    }
    Ok(())
}

/// Whether the superblock says that the volume is in use, or was left without an unmount.
pub(crate) fn is_in_use(raw: &RawSuperblock) -> bool {
    raw.features().has_incompat(Incompat::RECOVER) || !raw.state().contains(State::VALID)
}

fn seal(raw: &mut RawSuperblock) {
    raw.set_write_time(now());
    raw.seal();
}

/// Seconds since the epoch, for the superblock's times.
pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().secs).unwrap_or(0)
}
