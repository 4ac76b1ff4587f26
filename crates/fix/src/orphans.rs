//! Finishing orphans: a mount deletes and truncates what the last one began to.
//!
//! The volume is sound by then: the engine allocates and frees by bitmaps that the check has
//! compared with all maps. It is tried on a copy first, which the check judges; then the mount of
//! the device does the same, under its journal if there is one.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::features::Compat;
use extant_disk::superblock::Superblock;
use extant_engine::{Tuning, VolumeOptions};

use crate::error::{Error, Result};
use crate::image::{Overlay, super_bytes};
use crate::options::FixOptions;
use crate::rounds::{Outcome, check};

/// Finishes the orphans on a copy of the copy, without findings, and checks it.
pub(crate) fn rehearse(
    dev: &Overlay,
    memory: u64,
    outcome: &mut Outcome,
    options: &FixOptions<'_>,
) -> Result<()> {
    let below: Arc<dyn BlockDevice> = Arc::clone(dev) as _;
    let copy: Arc<dyn BlockDevice> = Arc::new(CowDevice::with_limit(below, memory));
    let journal = options.check.journal.map(|journal| {
        let copy = CowDevice::with_limit(Arc::clone(journal), memory);
        Arc::new(copy) as Arc<dyn BlockDevice>
    });
    match finish(&copy, journal) {
        // A volume of which the engine cannot mount the features keeps them: the note says so.
        Err(Error::Orphans(extant_engine::Error::UnsupportedFeature(_))) => return Ok(()),
        finished => finished?,
    }
    let waited = outcome.last.orphans;
    outcome.last = check(copy, options)?;
    // A volume that can only be read keeps its orphans.
    outcome.orphans = waited.saturating_sub(outcome.last.orphans);
    match outcome.last.found {
        0 => Ok(()),
        after => Err(Error::Worse { before: 0, after }),
    }
}

/// Mounts the volume, with the device of a journal that is elsewhere. With a journal it does as
/// `mount -o ro`, which recovers the volume and does not count as a mount; without one, only a
/// mount that may write finishes orphans.
pub(crate) fn finish(
    dev: &Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
) -> Result<()> {
    let sb = Superblock::parse(&super_bytes(dev)?)?;
    // No name is looked up.
    let mut tuning = Tuning::default();
    tuning.name_cache_bytes = 0;
    let mut mount = VolumeOptions::new();
    mount.write(true).tuning(tuning);
    if let Some(journal) = journal {
        mount.journal_device(journal);
    }
    if sb.features().has_compat(Compat::HAS_JOURNAL) {
        mount.mount_options("ro");
    }
    let volume = mount.open_on(Arc::clone(dev)).map_err(Error::Orphans)?;
    volume.unmount().map_err(Error::Orphans)
}
