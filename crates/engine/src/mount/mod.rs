//! Mount and unmount: from a device to a file system and back.
//!
//! # Responsibility
//! Mount:
//! 1. Reads and checks the superblock, gates its features, and fills open options with its defaults
//!    (`read_superblock.rs`). Takes a volume with multiple mount protection (`mmp.rs`).
//! 2. Finds and replays the journal (`find_journal.rs`), for a read-only mount too, as Linux does. Reads
//!    the superblock again.
//! 3. Reads and checks the group descriptors, sums up the totals, builds the system zones.
//! 4. Opens the journal. Marks the volume as in use, durably and before the first transaction.
//! 5. Finishes orphans, for a read-only mount too (`read_only.rs`), and starts the threads.
//!
//! Unmount writes the data, evicts unlinked inodes, commits, writes everything home, and last the
//! superblock: clean, with its counts. If metadata could not be written, or a flush of the device
//! has ever failed, the superblock keeps saying that the volume needs a replay.
//!
//! # Concurrency
//! Mount runs alone. Unmount runs once, for the first caller. Callers have ended their operations;
//! an operation that has not ends with an error, or its change may be lost.

mod feature_gate;
mod find_journal;
mod read_only;
mod read_superblock;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use extant_blockdev::{BlockDevice, FlushLatch, LatchedDevice};
use extant_disk::features::Incompat;
use extant_disk::superblock::{RawSuperblock, State, Superblock};
use extant_failpoint::Failpoint;
use extant_jbd2::{BlockCache, Config, Journal};
use extant_units::{Blocks, Ino};
use parking_lot::Mutex;

use self::find_journal::FoundJournal;
pub(crate) use self::read_only::{has_orphans, look, put_in_order};
use crate::alloc::{Allocator, Parts, SpaceCounts};
use crate::config::MountOptions;
use crate::config::Tuning;
use crate::file::{self, Files, LoggedDevice};
use crate::group::{GroupTable, Totals};
use crate::inode::InodeCache;
use crate::map::StatusCache;
use crate::orphan::{self, Orphans};
use crate::types::Cred;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;
use crate::volume::fault::{self, Fault};
use crate::volume::layout::Layout;
use crate::volume::mmp::{self, Mmp};
use crate::volume::mounted_superblock::{
    MountedSuperblock, keep_error_record, now, write_directly,
};
use crate::volume::stats::Stats;
use crate::xattr::SharedBlocks;

/// Mounts the file system on `dev`: gates its features, replays its journal, finishes its orphans.
///
/// # Errors
/// Not ext4, truncated, damaged, unsupported features, a journal to replay on a read-only device.
pub(crate) fn mount(
    dev: Arc<dyn BlockDevice>,
    mut options: MountOptions,
    mut tuning: Tuning,
) -> Result<Arc<Fs>> {
    if dev.is_read_only() {
        options.set_read_only();
    }
    if options.noload() && !options.read_only() {
        return Err(Error::BadOption("'noload': only together with 'ro'".into()));
    }
    let (dev, latch) = latched(dev, &tuning);
    let sb = read_superblock::read(&dev, &mut options)?;
    let unwritten = dev.is_read_only() || options.noload();
    let protection = if unwritten {
        None
    } else {
        Mmp::take(&dev, &sb)?
    };
    let (mut sb, found) = replay(&dev, sb, &mut options, tuning)?;
    if options.read_only() && !unwritten {
        sb = read_only::finish_orphans((&dev, &latch), sb, found.as_ref(), (&options, tuning))?;
    }
    if let Some(path) = options.buffered_path() {
        tuning.buffered_path = path;
    }
    let fs = build((dev, latch), &sb, found.as_ref(), options, tuning)?;
    let protected = protection.map_or(Ok(()), |mmp| protect(&fs, mmp));
    if let Err(error) = protected.and_then(|()| start(&fs)) {
        // The mount is undone in order; the first error is the one to report.
        if let Err(second) = unmount(&fs) {
            tracing::warn!(error = %second, "ending the failed mount");
        }
        return Err(error);
    }
    Ok(fs)
}

/// Makes the loss of the volume to another host shut it down.
fn protect(fs: &Arc<Fs>, mmp: Mmp) -> Result<()> {
    let weak = Arc::downgrade(fs);
    let protected = mmp.protect(Box::new(move |why| {
        if let Some(fs) = weak.upgrade() {
            tracing::error!(why, "the volume is lost to another host");
            fs.fault.shut_down(&fs, why);
        }
    }));
    // A new file system has none yet.
    let _ = fs.mmp.set(mmp);
    protected.inspect_err(|error| {
        // The volume is another host's: the end of this mount must not mark it clean.
        fs.fault.shut_down(fs, &error.to_string());
    })
}

/// The device as this mount uses it: a failed flush is remembered until the unmount.
fn latched(dev: Arc<dyn BlockDevice>, tuning: &Tuning) -> (Arc<dyn BlockDevice>, Arc<FlushLatch>) {
    if tuning.failpoint.is(Failpoint::FlushFailureForgotten) {
        return (dev, Arc::default());
    }
    let dev = LatchedDevice::new(dev);
    let latch = Arc::clone(dev.latch());
    (Arc::new(dev), latch)
}

/// Finds the journal and replays it if necessary. Returns the superblock afterwards.
fn replay(
    dev: &Arc<dyn BlockDevice>,
    sb: Superblock,
    options: &mut MountOptions,
    tuning: Tuning,
) -> Result<(Superblock, Option<FoundJournal>)> {
    if options.noload() {
        return Ok((sb, None));
    }
    let layout = Layout::new(&sb);
    let Some(found) = FoundJournal::find(dev, &sb, &layout)? else {
        return Ok((sb, None));
    };
    let recovery = found.replay(dev, &layout, tuning.replay_bytes)?;
    if let Some(what) = recovery.skipped_text() {
        let what = format!("{what}; all else was replayed: e2fsck must check the volume");
        write_directly(dev, |raw| {
            keep_error_record(sb.raw(), raw);
            let block = recovery.first_skipped.map(|copy| copy.block);
            fault::note_damaged_log(raw, block.unwrap_or_default());
        })?;
        return Err(Error::corrupt(Location::Journal, what));
    }
    let flagged = sb.features().has_incompat(Incompat::RECOVER);
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

fn set_recover(raw: &mut RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(features);
}

/// Reads the rest of the metadata and puts the parts together. The superblock is marked as in use.
fn build(
    (dev, latch): (Arc<dyn BlockDevice>, Arc<FlushLatch>),
    sb: &Superblock,
    found: Option<&FoundJournal>,
    options: MountOptions,
    tuning: Tuning,
) -> Result<Arc<Fs>> {
    let layout = Layout::new(sb);
    let budget = usize::try_from(tuning.block_cache_bytes).unwrap_or(usize::MAX);
    let cache = BlockCache::new(Arc::clone(&dev), layout.block_size, budget);
    let mut journal_zones = found.map(FoundJournal::zones).unwrap_or_default();
    journal_zones.extend(mmp::zone(sb));
    let (groups, zones, totals) =
        GroupTable::load(&cache, &layout, journal_zones, options.read_only())?;
    let (groups, zones) = (Arc::new(groups), Arc::new(zones));
    let config = Config {
        commit_interval: options.commit(),
        barrier: options.barrier(),
        checksums: layout.metadata_csum(),
        commit_each_handle: tuning.commit_each_handle,
        failpoint: tuning.failpoint,
        ..Config::default()
    };
    if !options.read_only() {
        mark_in_use(&dev, found.is_some(), totals, !options.recovering())?;
    }
    let journal = match found {
        Some(found) if !options.read_only() => {
            let journal = Journal::open(
                Arc::clone(&cache),
                Arc::clone(&dev),
                found.log_map(),
                config,
            )?;
            if journal.recorded_errno() != 0 {
                journal.clear_errno()?;
            }
            journal
        }
        _ => Journal::without_log(Arc::clone(&cache), config),
    };
    let stats = Arc::new(Stats::default());
    let alloc = Allocator::new(Parts {
        layout: layout.clone(),
        cache: Arc::clone(&cache),
        discard: options.discard().then(|| Arc::clone(&dev)),
        groups: Arc::clone(&groups),
        zones: Arc::clone(&zones),
        counts: Arc::new(counts(&layout, totals)),
        stats: Arc::clone(&stats),
        failpoint: tuning.failpoint,
    });
    let logged = LoggedDevice::new(Arc::clone(&dev), Arc::clone(&journal), layout.block_size);
    Ok(Arc::new(Fs {
        super_block: MountedSuperblock::new(&layout, sb.raw().state()),
        files: Files::new(&tuning, logged),
        fault: Fault::new(options.errors()),
        mmp: OnceLock::new(),
        inodes: InodeCache::default(),
        status: Arc::new(StatusCache::default()),
        xattr_blocks: SharedBlocks::default(),
        orphans: Orphans::default(),
        rename_lock: Mutex::new(()),
        interrupted: false.into(),
        dev,
        latch,
        layout,
        cache,
        journal,
        groups,
        alloc,
        zones,
        options,
        tuning,
        stats,
    }))
}

fn counts(layout: &Layout, totals: Totals) -> SpaceCounts {
    let extents = layout.features.has_incompat(Incompat::EXTENTS);
    let pooled = if extents { layout.end.get() } else { 0 };
    SpaceCounts::new(
        Blocks::new(pooled),
        Blocks::new(totals.free_blocks),
        layout.root_reserved,
        totals.free_inodes,
        totals.dirs,
    )
}

/// Marks the volume on the device as in use, before the first transaction: it needs its journal, or
/// without one a check, if this mount does not end in order. The totals are the groups'. A mount
/// that only recovers does not count.
fn mark_in_use(
    dev: &Arc<dyn BlockDevice>,
    has_journal: bool,
    totals: Totals,
    counts: bool,
) -> Result<()> {
    write_directly(dev, |raw| {
        if !raw.state().contains(State::VALID) || raw.state().contains(State::ERROR) {
            tracing::warn!(
                "the volume was not checked after an error or an unclean end: running e2fsck is recommended"
            );
        }
        if has_journal {
            set_recover(raw, true);
        } else {
            raw.set_state(raw.state() - State::VALID);
        }
        if counts {
            raw.set_mount_time(now());
            raw.mnt_count.set(raw.mnt_count.get().saturating_add(1));
        }
        set_totals(raw, totals);
    })
}

fn set_totals(raw: &mut RawSuperblock, totals: Totals) {
    raw.set_free_blocks_count(Blocks::new(totals.free_blocks));
    // The sum of the groups is at most the number of inodes, which fits.
    raw.free_inodes_count
        .set(u32::try_from(totals.free_inodes).unwrap_or(u32::MAX));
}

/// The last steps: reads the root, finishes orphans, starts the threads.
fn start(fs: &Arc<Fs>) -> Result<()> {
    if fs.iget(Ino::ROOT)?.kind != FileKind::Directory {
        return Err(Error::corrupt(
            Location::Inode(Ino::ROOT),
            "the root is not a directory",
        ));
    }
    if fs.options.read_only() {
        return Ok(());
    }
    orphan::open(fs)?;
    orphan::process_all(fs, |fs, inode, size| {
        file::truncate(fs, inode, size, &Cred::root())
    })?;
    fs.start_reaper()
}

/// Writes everything home and marks the file system clean. Idempotent; later operations fail.
///
/// # Errors
/// The first failure of writing data or metadata. Unless only data failed, the image is left to be
/// replayed.
pub(crate) fn unmount(fs: &Arc<Fs>) -> Result<()> {
    if !fs.super_block.begin_unmount() {
        return Ok(());
    }
    let writable = !fs.options.read_only();
    file::wait_for_range_locks(fs);
    let data = if writable { write_all(fs) } else { Ok(()) };
    fs.files.pages.stop();
    let mut metadata = fs.retire_inodes();
    if writable {
        metadata = metadata.and_then(|()| orphan::close(fs));
        if fs.check_writable().is_err() {
            // Dirty data cannot be written any more.
            fs.inodes
                .all()
                .iter()
                .for_each(|inode| file::evict(fs, inode));
        }
        let reserved = fs.alloc.counts.reserved_blocks();
        if !reserved.is_zero() && data.is_ok() {
            tracing::error!(%reserved, "blocks are still reserved at unmount");
        }
    }
    // The journal ends whatever happened before: its threads must stop.
    metadata = metadata.and(fs.journal.close().map_err(Error::from));
    if writable && metadata.is_ok() {
        metadata = mark_clean(fs);
    }
    if writable && metadata.is_err() && fs.fault.is_alive() {
        fs.note_stopped_journal();
        fs.fault.record(fs);
    }
    fs.clear_inodes();
    fs.fault.close();
    if let Some(mmp) = fs.mmp.get() {
        mmp.release();
    }
    data.and(metadata)
}

/// Writes all data. Fails if a fault has stopped the file system.
fn write_all(fs: &Arc<Fs>) -> Result<()> {
    if let Some(why) = fs.fault.why() {
        return Err(Error::Shutdown(why));
    }
    file::flush_all(fs)
}

/// The last write: marks the volume clean if it was clean when it was mounted.
fn mark_clean(fs: &Fs) -> Result<()> {
    let counts = &fs.alloc.counts;
    let totals = Totals {
        free_blocks: counts.free_blocks().get(),
        free_inodes: counts.free_inodes(),
        dirs: counts.dirs(),
    };
    let valid = fs.super_block.was_valid();
    write_directly(&fs.dev, |raw| {
        set_recover(raw, false);
        let mut state = raw.state();
        state.set(State::VALID, valid);
        raw.set_state(state);
        set_totals(raw, totals);
        fs.fault.note_in(raw);
    })
}

/// What is saved before a shutdown by request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShutdownMode {
    /// Everything.
    Flush,
    /// Nothing, as in a power failure.
    Now,
}

/// Shuts the file system down by request: every later operation fails, nothing more is written, the
/// image needs its journal. The caller holds no lock and no handle.
///
/// # Errors
/// What was to be saved could not be; the file system is shut down all the same.
pub(crate) fn shutdown(fs: &Arc<Fs>, mode: ShutdownMode) -> Result<()> {
    let saved = if mode == ShutdownMode::Now || fs.check_writable().is_err() {
        Ok(())
    } else {
        let data = file::flush_all(fs);
        data.and(fs.journal.force_commit().map(drop).map_err(Error::from))
    };
    fs.fault.shut_down(fs, "shut down by request");
    saved
}
