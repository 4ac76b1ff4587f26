//! Opening a volume for a check: superblock, descriptors, and the replay of a journal in memory.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::features::Incompat;

use crate::error::Result;
use crate::external_journal::external_log_copy;
use crate::findings::Findings;
use crate::volume::Volume;
use crate::{journal, superblock};

/// A volume that can be checked.
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    /// Transactions replayed into memory.
    pub(crate) replayed: u64,
}

/// Reads superblock and descriptors, replaying a journal that holds transactions into at most
/// `memory` bytes. `journal` is the device of one that is not on `dev`.
pub(crate) fn open(
    dev: Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    memory: u64,
    findings: &Findings,
) -> Result<Opened> {
    let mut volume = Volume::read(CowDevice::with_limit(dev, memory), findings)?;
    if let Some(journal) = journal {
        volume.external_log = Some(external_log_copy(&volume.sb, journal, memory)?);
    }
    superblock::before_replay(&volume.sb, findings);
    if !volume.sb.features().has_incompat(Incompat::RECOVER) {
        superblock::check(&volume, findings)?;
        return Ok(Opened {
            volume,
            replayed: 0,
        });
    }
    let before = findings.count();
    let replayed = journal::replay(&volume, memory, findings)?;
    let log = volume.external_log.take();
    let mut volume = Volume::read(volume.into_device(), findings)?;
    volume.external_log = log;
    // Faults that the replay did not mend are known already.
    if before == 0 {
        superblock::before_replay(&volume.sb, findings);
    }
    superblock::check(&volume, findings)?;
    Ok(Opened { volume, replayed })
}
