//! Replaying the journal: into the private copy, and later onto the device, by the same code.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_check::external_log_copy;
use extant_disk::damage::JournalDamage;
use extant_disk::features::Incompat;
use extant_disk::superblock::Superblock;
use extant_engine::replay_fast_commits;
use extant_jbd2::{LogMap, recover_within};
use extant_units::Blocks;

use crate::error::{Error, Result};
use crate::image::{Overlay, edit_super, super_bytes};

/// Result of a replay.
#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) transactions: u64,
    /// The superblock waited for a recovery of a log that is empty.
    pub(crate) marked_only: bool,
}

/// The means of a replay.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    /// Bytes that each list of changes may take.
    pub(crate) memory: u64,
    /// The device of a journal that is not on the volume's.
    pub(crate) journal: Option<&'a Arc<dyn BlockDevice>>,
}

/// Replays a log that holds transactions into the copy. A mount replays one with fast commits.
///
/// # Errors
/// The log cannot be found or read, or has damaged copies or fast commits.
pub(crate) fn into(dev: &Overlay, means: Means<'_>) -> Result<Replayed> {
    let Means { memory, journal } = means;
    let sb = Superblock::parse(&super_bytes(dev)?)?;
    if !sb.features().has_incompat(Incompat::RECOVER) {
        return Ok(Replayed::default());
    }
    let elsewhere = sb.has_journal_elsewhere();
    let journal = journal.filter(|_| elsewhere);
    if elsewhere && journal.is_none() {
        return Err(extant_check::Error::NoJournal.into());
    }
    let copy = journal.map(|journal| CowDevice::with_limit(Arc::clone(journal), memory));
    let copy = copy.map(|copy| Arc::new(copy) as Arc<dyn BlockDevice>);
    let with_fast_commits = replay_fast_commits(&(Arc::clone(dev) as _), copy.as_ref(), memory);
    let transactions = with_fast_commits.map_err(Error::FastCommits)?;
    if transactions > 0 {
        return Ok(Replayed {
            transactions,
            marked_only: false,
        });
    }
    let log = match journal {
        Some(journal) => external_log_copy(&sb, journal, memory)?,
        None => find(Arc::clone(dev) as _)?.ok_or(Error::DamagedLog(JournalDamage::NotFound))?,
    };
    let transactions = onto(dev, &sb, &log, memory)?;
    Ok(Replayed {
        transactions,
        marked_only: transactions == 0,
    })
}

/// The blocks of the log of the volume on `dev`.
pub(crate) fn find(dev: Arc<dyn BlockDevice>) -> Result<Option<LogMap>> {
    Ok(extant_check::find_log(dev)?)
}

/// Replays the log onto `dev` and marks the volume as replayed. Returns the number of transactions.
pub(crate) fn onto(
    dev: &dyn BlockDevice,
    sb: &Superblock,
    log: &LogMap,
    memory: u64,
) -> Result<u64> {
    let (bs, blocks) = (sb.block_size(), Blocks::new(sb.blocks_count().get()));
    let recovery = recover_within(dev, bs, log, blocks, memory)?;
    if let Some(copies) = recovery.skipped_copies() {
        return Err(Error::DamagedLog(JournalDamage::Copies { copies }));
    }
    edit_super(dev, |raw| set_recover(raw, false))?;
    Ok(recovery.transactions)
}

/// Marks a volume as one whose log holds transactions, or not.
pub(crate) fn set_recover(raw: &mut extant_disk::superblock::RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(features);
}
