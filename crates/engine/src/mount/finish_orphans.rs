//! Finishing the orphans of a volume before it is mounted read-only.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, FlushLatch};
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::superblock::{State, Superblock};

use super::build_fs::{build, start};
use super::find_journal::FoundJournal;
use super::read_superblock;
use super::unmount::end;
use crate::config::{MountOptions, Tuning};
use crate::types::error::Result;

pub(super) fn names_orphans(sb: &Superblock) -> bool {
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
        started.and(end(&fs))
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
