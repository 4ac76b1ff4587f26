//! Changes of the superblock under a handle.
//!
//! # Locks
//! None of its own: the block's lock, inside [`Handle::modify`], serialises changes.

use extant_sync::atomic::Ordering;

use extant_disk::damage::SuperblockDamage;
use extant_disk::features::{Compat, RoCompat};
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
use extant_jbd2::Handle;
use zerocopy::FromBytes;

use crate::config::ErrorsPolicy;
use crate::state::volume::mounted_superblock::seal;
use crate::state::volume::{Fault, MountedSuperblock};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The largest size that readers without `large_file` understand.
const LARGEST_SMALL_FILE: u64 = 0x7fff_ffff;

impl MountedSuperblock {
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
        // Also as a part of a change that is told.
        h.set_untold();
        self.update_orphans(fs, h, f)
    }

    /// As [`MountedSuperblock::update`], for the list of orphans: whether a fast commit needs to
    /// tell the change is up to the inode.
    ///
    /// # Errors
    /// As [`MountedSuperblock::update`].
    pub(crate) fn update_orphans<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut RawSuperblock) -> R,
    ) -> Result<R> {
        let block = fs.cache.read_unchecked(self.block)?;
        let changed = h.modify(&block, |bytes| {
            debug_assert!(self.offset + SUPERBLOCK_SIZE <= bytes.len());
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
        changed.ok_or_else(|| Error::corrupt(Location::Superblock, SuperblockDamage::TooShort))
    }

    /// Notes that there is a file of `size` bytes: the first file past 2 GiB sets a feature of the
    /// superblock. Uses the credit for the superblock that comes with an inode's update.
    ///
    /// # Errors
    /// As [`MountedSuperblock::update`].
    pub(crate) fn note_file_size(&self, fs: &Fs, h: &mut Handle, size: u64) -> Result<()> {
        if size <= LARGEST_SMALL_FILE || self.large_file.load(Ordering::Acquire) {
            return Ok(());
        }
        self.update(fs, h, |raw| {
            let features = raw.feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
            raw.feature_ro_compat.set(features);
        })?;
        self.large_file.store(true, Ordering::Release);
        Ok(())
    }

    /// Notes that there is an attribute: the first one sets a feature of the superblock, without
    /// which no inode owns the block that it has for attributes. Uses the credit for the superblock
    /// that comes with an inode's update.
    ///
    /// # Errors
    /// As [`MountedSuperblock::update`].
    pub(crate) fn note_attributes(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        if self.ext_attr.load(Ordering::Acquire) {
            return Ok(());
        }
        self.update(fs, h, |raw| {
            let features = raw.feature_compat.get() | Compat::EXT_ATTR.bits();
            raw.feature_compat.set(features);
        })?;
        self.ext_attr.store(true, Ordering::Release);
        Ok(())
    }

    /// A copy of the superblock as it is in the running transaction.
    ///
    /// # Errors
    /// The block cannot be read.
    pub(crate) fn read(&self, fs: &Fs) -> Result<Box<RawSuperblock>> {
        let data = fs.cache.read_unchecked(self.block)?.data();
        data.get(self.offset..self.offset + SUPERBLOCK_SIZE)
            .and_then(RawSuperblock::copy_from)
            .ok_or_else(|| Error::corrupt(Location::Superblock, SuperblockDamage::TooShort))
    }
}

/// Changes the label of the volume; see `Volume::set_label`.
///
/// # Errors
/// As there.
pub(crate) fn set_label(fs: &Fs, label: &[u8]) -> Result<()> {
    let mut name = <[u8; 16]>::default();
    match name.get_mut(..label.len()) {
        Some(place) if !label.contains(&0) => place.copy_from_slice(label),
        _ => return Err(Error::Invalid),
    }
    fs.check_writable()?;
    let mut h = fs.start(1)?;
    fs.super_block
        .update(fs, &mut h, |raw| raw.volume_name = name)?;
    drop(h);
    // Home at once: other programs read the label there while the volume is mounted.
    let done = fs.journal.checkpoint_all();
    fs.note_stopped_journal();
    Ok(done?)
}

impl Fault {
    /// Stores the faults that are not recorded yet under a handle, where faults do not stop the
    /// file system (`errors=continue`). The caller holds no lock and no handle.
    ///
    /// # Errors
    /// The superblock cannot be changed.
    pub(crate) fn record_later(&self, fs: &Fs) -> Result<()> {
        extant_lock_order::assert_none_held();
        let due = self.policy == ErrorsPolicy::Continue && self.inner.lock().unrecorded.is_some();
        if !due || fs.check_writable().is_err() {
            return Ok(());
        }
        let mut h = fs.start(1)?;
        fs.super_block.update(fs, &mut h, |_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extant_blockdev::{BlockDevice, MemoryDevice};
    use extant_disk::superblock::SUPERBLOCK_OFFSET;
    use extant_testkit::Image;
    use extant_units::DevOff;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    /// Other programs (blkid) read the label on the device, while the volume is mounted.
    #[test]
    fn a_new_label_is_on_the_device_at_once() {
        let image = Image::of_mib(8).args("-L before").make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let dev = Arc::new(MemoryDevice::from_bytes(&bytes));
        let fs = TestFs::on(dev.clone(), "").unwrap();
        fs.create("file");
        set_label(&fs, b"after").unwrap();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)
            .unwrap();
        let raw = RawSuperblock::copy_from(&bytes).unwrap();
        assert_eq!(raw.volume_name[..6], *b"after\0");
        assert!(raw.checksum_ok());
        fs.unmount();
    }
}
