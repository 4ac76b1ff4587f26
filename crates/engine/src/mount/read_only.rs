//! Read-only mounts: what they write first, and reading a volume without any write.
//!
//! # Responsibility
//! A mount that refuses changes may write. Like Linux's, the mount option `ro` on a writable device
//! replays the journal and finishes the orphans; [`put_in_order`] does both. [`look`] writes
//! nothing, whatever the device: the result of a replay is made in memory.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, memory_share};
use extant_disk::features::Incompat;

use super::finish_orphans::names_orphans;
use super::mount_volume::mount;
use super::read_superblock;
use super::replay_log::replay;
use super::unmount::unmount;
use crate::config::{MountOptions, Tuning};
use crate::state::volume::mmp;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// A volume that is mounted without writing to its device.
pub(crate) struct Looked {
    pub(crate) fs: Arc<Fs>,
    /// Its journal was replayed in memory.
    pub(crate) replayed: bool,
}

/// Mounts the volume on `dev` without ever writing to `dev`. A journal that is not empty is
/// replayed in memory, unless `noload` says otherwise.
///
/// # Errors
/// As [`mount`]; the replay takes more memory than it may.
pub(crate) fn look(
    dev: Arc<dyn BlockDevice>,
    mut options: MountOptions,
    tuning: Tuning,
) -> Result<Looked> {
    options.set_read_only();
    let unwritten: Arc<dyn BlockDevice> = if dev.is_read_only() {
        Arc::clone(&dev)
    } else {
        let sealed = CowDevice::new(Arc::clone(&dev));
        sealed.freeze();
        Arc::new(sealed)
    };
    let sb = read_superblock::read(&unwritten, &mut options)?;
    if let Some(host) = mmp::user(&unwritten, &sb) {
        tracing::warn!("in use by {host}, or not unmounted there: what is seen may be out of date");
    }
    match mount(unwritten, options.clone(), tuning) {
        Err(Error::NeedsReplay) => {}
        other => {
            let replayed = false;
            return other.map(|fs| Looked { fs, replayed });
        }
    }
    let limit = tuning.replay_bytes.unwrap_or_else(memory_share);
    let private = Arc::new(CowDevice::with_limit(dev, limit));
    let copy: Arc<dyn BlockDevice> = private.clone();
    if let Some(journal) = options.journal_device() {
        let journal = CowDevice::with_limit(Arc::clone(journal), limit);
        options.set_journal_device(Arc::new(journal));
    }
    let sb = read_superblock::read(&copy, &mut options)?;
    replay(&copy, sb, &mut options, tuning)?;
    private.freeze();
    let fs = mount(copy, options, tuning)?;
    let replayed = true;
    Ok(Looked { fs, replayed })
}

/// Does what the mount option `ro` does on `dev`, which can be written, and releases it.
///
/// # Errors
/// As [`mount`].
pub(crate) fn put_in_order(
    dev: Arc<dyn BlockDevice>,
    mut options: MountOptions,
    tuning: Tuning,
) -> Result<()> {
    options.set_read_only();
    unmount(&mount(dev, options, tuning)?)
}

/// Returns whether a read-only mount of the volume on `dev` writes first: a journal to replay, or
/// orphans. Reads the superblock and nothing else; false if it cannot be read.
pub(crate) fn needs_writing(dev: &Arc<dyn BlockDevice>, options: &MountOptions) -> bool {
    !options.noload()
        && read_superblock::read(dev, &mut options.clone())
            .is_ok_and(|sb| names_orphans(&sb) || sb.features().has_incompat(Incompat::RECOVER))
}

/// Returns whether the superblock on `dev` records orphans. False if it cannot be read.
pub(crate) fn has_orphans(dev: &Arc<dyn BlockDevice>, options: &MountOptions) -> bool {
    !options.noload()
        && read_superblock::read(dev, &mut options.clone()).is_ok_and(|sb| names_orphans(&sb))
}
