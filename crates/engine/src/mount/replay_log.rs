//! Replaying the journal, and what the superblock says afterwards.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::JournalDamage;
use extant_disk::features::Incompat;
use extant_disk::superblock::{State, Superblock};

use super::fast_commit;
use super::find_journal::FoundJournal;
use super::read_superblock;
use super::volume_marks::set_recover;
use crate::config::{MountOptions, Tuning};
use crate::state::volume::mounted_superblock::{keep_error_record, write_directly};
use crate::state::volume::{Layout, fault};
use crate::types::error::{Error, Location, Result};

/// Finds the journal and replays it if necessary. Returns the superblock afterwards.
pub(super) fn replay(
    dev: &Arc<dyn BlockDevice>,
    sb: Superblock,
    options: &mut MountOptions,
    tuning: Tuning,
) -> Result<(Superblock, Option<FoundJournal>)> {
    if options.noload() {
        return Ok((sb, None));
    }
    let layout = Layout::new(&sb);
    let flagged = sb.features().has_incompat(Incompat::RECOVER);
    let given = options.journal_device().is_some();
    if sb.has_journal_elsewhere() && !given && options.read_only() && !flagged {
        tracing::warn!("the journal is on another device; the volume needs no replay");
        read_superblock::confirm(dev, options)?;
        return Ok((sb, None));
    }
    let Some(found) = FoundJournal::find(dev, &sb, &layout, options)? else {
        read_superblock::confirm(dev, options)?;
        return Ok((sb, None));
    };
    let (recovery, fast) = found.replay(dev, &layout, tuning.replay_bytes)?;
    if let Some(copies) = recovery.skipped_copies() {
        write_directly(dev, |raw| {
            keep_error_record(sb.raw(), raw);
            let block = recovery.first_skipped.map(|copy| copy.block);
            fault::note_damaged_log(raw, block.unwrap_or_default());
        })?;
        let damage = JournalDamage::ReplayedAround { copies };
        return Err(Error::corrupt(Location::Journal, damage));
    }
    read_superblock::confirm(dev, options)?;
    if recovery.was_clean && recovery.errno == 0 && !flagged {
        return Ok((sb, Some(found)));
    }
    if !recovery.was_clean {
        tracing::info!(
            transactions = recovery.transactions,
            blocks = recovery.replayed,
            "the journal was replayed"
        );
    }
    if dev.is_read_only() {
        return Ok((sb, Some(found)));
    }
    if let Some(commits) = fast {
        fast_commit::replay(dev, &found, &commits, options, tuning)?;
    }
    write_directly(dev, |raw| {
        set_recover(raw, false);
        if recovery.errno != 0 {
            raw.set_state(raw.state() | State::ERROR);
        }
        // The log may have restored a superblock from before the fault that ended the last mount.
        keep_error_record(sb.raw(), raw);
    })?;
    let sb = read_superblock::read(dev, options)?;
    Ok((sb, Some(found)))
}

/// Replays the journal of the volume on `dev`, which is on `journal` if that is given, if it holds
/// fast commits. Returns the number of its transactions and fast commits; zero if it has none, or
/// if that cannot be told.
///
/// # Errors
/// The replay fails.
pub(crate) fn replay_fast_commits(
    dev: &Arc<dyn BlockDevice>,
    journal: Option<&Arc<dyn BlockDevice>>,
    memory: u64,
) -> Result<u64> {
    let mut options = MountOptions::default();
    if let Some(journal) = journal {
        options.set_journal_device(Arc::clone(journal));
    }
    let mut looking = options.clone();
    // Nothing is told of features that make a mount read-only: this is none.
    looking.set_read_only();
    let Ok(sb) = read_superblock::read(dev, &mut looking) else {
        return Ok(0);
    };
    if !sb.features().has_incompat(Incompat::RECOVER) {
        return Ok(0);
    }
    let layout = Layout::new(&sb);
    let Ok(Some(found)) = FoundJournal::find(dev, &sb, &layout, &looking) else {
        return Ok(0);
    };
    let Some(count) = found.count_with_fast_commits(dev, &layout, memory) else {
        return Ok(0);
    };
    let tuning = Tuning {
        replay_bytes: Some(memory),
        ..Tuning::default()
    };
    let sb = read_superblock::read(dev, &mut options)?;
    replay(dev, sb, &mut options, tuning)?;
    Ok(count)
}
