//! The journal: its superblock, and its replay into memory.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::damage::{CorruptKind, JournalDamage};
use extant_disk::features::Incompat;
use extant_disk::location::Location;
use extant_jbd2::{JournalError, LogMap, inspect, recover_within};

use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::maps::runs_of;
use crate::remedy::Repair;
use crate::volume::Volume;

/// Blocks of the log; `None` without a journal, or after a finding.
fn log(volume: &Volume, findings: &Findings) -> Result<Option<LogMap>> {
    let Some(ino) = volume.sb.journal_inode() else {
        return Ok(volume.external_log.clone());
    };
    let runs = runs_of(volume, ino, findings)?;
    Ok(runs.map(|(runs, _)| LogMap::new(runs.iter().map(|run| (run.pblk, run.len)).collect())))
}

/// Blocks of the log of the file system on `dev`; `None` without a journal, or if its inode or its
/// map is damaged.
///
/// # Errors
/// As [`crate::check`].
pub fn find_log(dev: Arc<dyn BlockDevice>) -> Result<Option<LogMap>> {
    let silent = Findings::new(0);
    let volume = Volume::read(CowDevice::new(dev), &silent)?;
    log(&volume, &silent)
}

/// Replays the journal into the volume's private copy. Returns the number of transactions. Blocks
/// whose copies in the log are damaged stay as they are on the device.
pub(crate) fn replay(volume: &Volume, memory: u64, findings: &Findings) -> Result<u64> {
    if volume.sb.has_journal_elsewhere() && volume.external_log.is_none() {
        return Err(Error::NoJournal);
    }
    let missing = match volume.sb.journal_inode() {
        Some(_) => JournalDamage::ReplayWithoutMap,
        None => JournalDamage::ReplayWithoutJournal,
    };
    let log = log(volume, findings)?;
    let log = log.ok_or_else(|| Error::corrupt(Location::Journal, missing))?;
    let report = recover_within(
        volume.device(),
        volume.sb.block_size(),
        &log,
        volume.sb.blocks_count(),
        memory,
    )?;
    if let Some(copies) = report.skipped_copies() {
        findings.add(Location::Journal, JournalDamage::Copies { copies });
    }
    Ok(report.transactions)
}

/// Checks the superblock of a journal that is, or in memory has become, empty.
pub(crate) fn check(volume: &Volume, findings: &Findings) -> Result<()> {
    let Some(log) = log(volume, findings)? else {
        return Ok(());
    };
    let superblock = match inspect(volume.device(), volume.sb.block_size(), &log) {
        Ok(superblock) => superblock,
        Err(error) => {
            findings.add(Location::Journal, damage_of(error)?);
            return Ok(());
        }
    };
    if superblock.errno() != 0 {
        let errno = superblock.errno();
        // A mount moves it to the superblock's state and goes on. The consequences of the fault are
        // findings of the passes.
        let kind = JournalDamage::Errno { errno };
        findings.note_repairable(Location::Journal, kind, Repair::JournalError);
    }
    if superblock.users() > 1 {
        let users = superblock.users();
        findings.add(Location::Journal, JournalDamage::Users { users });
    }
    if superblock.start() != 0 && !volume.sb.features().has_incompat(Incompat::RECOVER) {
        let start = superblock.start();
        // Linux forgets such a log at the next mount.
        findings.note(Location::Journal, JournalDamage::NotEmpty { start });
    }
    Ok(())
}

/// The damage that makes a journal's superblock unusable; the error itself if it is another one.
fn damage_of(error: JournalError) -> Result<CorruptKind> {
    match error {
        JournalError::Corrupt(damage) => Ok(damage.into()),
        JournalError::CorruptSuperblock(error) | JournalError::UnsupportedSuperblock(error) => {
            Ok(error.into())
        }
        error => Err(error.into()),
    }
}
