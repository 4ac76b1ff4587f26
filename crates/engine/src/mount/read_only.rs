//! Read-only mounts: what they write first, and reading a volume without any write.
//!
//! # Responsibility
//! A mount that refuses changes may write. Like Linux's, the mount option `ro` on a writable device
//! replays the journal and finishes the orphans; [`put_in_order`] does both. [`look`] writes
//! nothing, whatever the device: the result of a replay is made in memory.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, FlushLatch, memory_share};
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::superblock::{State, Superblock};

use super::find_journal::FoundJournal;
use super::{build, mount, read_superblock, replay, start, unmount};
use crate::config::MountOptions;
use crate::config::Tuning;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::volume::mmp;

/// A volume that is mounted without writing to its device.
pub(crate) struct Looked {
    pub(crate) fs: Arc<Fs>,
    /// Whether its journal was replayed in memory.
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

/// Whether the superblock on `dev` records orphans. False if it cannot be read.
pub(crate) fn has_orphans(dev: &Arc<dyn BlockDevice>, options: &MountOptions) -> bool {
    !options.noload()
        && read_superblock::read(dev, &mut options.clone()).is_ok_and(|sb| names_orphans(&sb))
}

fn names_orphans(sb: &Superblock) -> bool {
    sb.raw().last_orphan.get() != 0 || sb.features().has_ro_compat(RoCompat::ORPHAN_PRESENT)
}

/// Finishes the orphans of a volume that is about to be mounted read-only, whose journal has been
/// replayed. Returns the superblock afterwards. As in Linux, does nothing if a feature or a
/// recorded error forbids changes. Failures are logged: the volume can be read with its orphans.
///
/// # Errors
/// The superblock cannot be read any more.
pub(super) fn finish_orphans(
    (dev, latch): (&Arc<dyn BlockDevice>, &Arc<FlushLatch>),
    sb: Superblock,
    found: Option<&FoundJournal>,
    (options, tuning): (&MountOptions, Tuning),
) -> Result<Superblock> {
    let erroneous = sb.raw().state().contains(State::ERROR);
    if found.is_none() || erroneous || !names_orphans(&sb) {
        return Ok(sb);
    }
    let mut how = options.clone();
    how.set_recovering();
    read_superblock::read(dev, &mut how)?;
    if how.read_only() {
        return Ok(sb);
    }
    let latched = (Arc::clone(dev), Arc::clone(latch));
    let finished = build(latched, &sb, found, how, tuning).and_then(|fs| {
        let started = start(&fs);
        started.and(unmount(&fs))
    });
    let sb = read_superblock::read(dev, &mut options.clone())?;
    match finished {
        // A log that is not written home must not be ignored.
        Err(error) if sb.features().has_incompat(Incompat::RECOVER) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "orphans are left as they are");
            Ok(sb)
        }
        Ok(()) => Ok(sb),
    }
}
