//! Orphans: inodes that a crash would leave unlinked, or half truncated.
//!
//! An inode is recorded as an orphan in the transaction that takes its last link or starts to
//! truncate it, and the record is removed in the transaction that completes the work. Mount
//! finishes those that a crash left ([`process_all`]). There are two kinds of record: slots in the
//! blocks of the orphan file (feature `orphan_file`: many at once, little contention), and a list
//! through the inodes' deletion times that starts in the superblock (always there; used when the
//! file is full).
//!
//! Without a log nothing is recorded: a crash then needs e2fsck anyway, as in Linux.
//!
//! # Invariants An inode is recorded at most once ([`OrphanRecord`]). The flag `orphan_present` is
//! set on disk whenever the file may have entries.
//!
//! # Locks
//! The inode's `orphan`, then the list's lock or one orphan block's. Always under a handle.
//!
//! # Credits
//! [`crate::volume::credits::ORPHAN`] for each of [`add`] and [`remove`].

mod orphan_file;
mod orphan_list;
mod recover;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use extant_disk::features::RoCompat;
use extant_failpoint::Failpoint;
use extant_jbd2::Handle;

pub(crate) use self::recover::{adopt_all, leave_all, process_all};
use crate::state::inode::Inode;
use crate::state::inode::OrphanRecord;
use crate::state::orphans::OrphanFile;
use crate::types::error::Result;
use crate::volume::credits;
use crate::volume::{Fs, all_or_abort};

/// Opens the orphan file, if there is one, and marks it as in use. Part of a writable mount, after
/// the replay of the journal.
///
/// # Errors
/// Damage in the orphan file; a failed read; a stopped journal.
pub(crate) fn open(fs: &Arc<Fs>) -> Result<()> {
    let Some(ino) = fs.layout.orphan_file_inode else {
        return Ok(());
    };
    let inode = fs.iget_internal(ino)?;
    let file = OrphanFile::open(fs, &inode)?;
    *fs.orphans.file.write() = Some(Arc::new(file));
    if fs.journal.has_log() {
        set_present(fs, true)?;
    }
    Ok(())
}

/// Clears the mark if no orphans are left. Part of unmount, after the last eviction.
///
/// # Errors
/// A stopped journal.
pub(crate) fn close(fs: &Fs) -> Result<()> {
    let file = fs.orphans.file.read().clone();
    match file {
        Some(file) if file.is_empty() => set_present(fs, false),
        _ => Ok(()),
    }
}

/// Sets or clears `orphan_present`.
fn set_present(fs: &Fs, present: bool) -> Result<()> {
    let mut h = fs.start(1)?;
    fs.super_block.update(fs, &mut h, |raw| {
        let mut bits = RoCompat::from_bits_retain(raw.feature_ro_compat.get());
        bits.set(RoCompat::ORPHAN_PRESENT, present);
        raw.feature_ro_compat.set(bits.bits());
    })
}

/// Records `inode` as an orphan. Does nothing if it is one.
///
/// # Errors
/// A failed read; a stopped journal.
pub(crate) fn add(fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    told_if_unlinked(h, inode, |h| record(fs, h, inode))
}

/// Runs `change` of the record of `inode` as an orphan. If it has no name, a replay of fast commits
/// deletes it with its last entry, or never makes it, and needs no such record.
fn told_if_unlinked(
    h: &mut Handle,
    inode: &Inode,
    change: impl FnOnce(&mut Handle) -> Result<()>,
) -> Result<()> {
    match inode.is_unlinked() {
        true => h.telling(change),
        false => change(h),
    }
}

fn record(fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    if !fs.journal.has_log() || fs.tuning.failpoint.is(Failpoint::OrphanNotRecorded) {
        return Ok(());
    }
    let mut record = inode.lock_orphan();
    if *record != OrphanRecord::None {
        return Ok(());
    }
    fs.stats.orphans_added.bump();
    let file = fs.orphans.file.read().clone();
    if let Some(file) = file
        && let Some((block, slot)) = file.add(fs, h, inode.ino)?
    {
        *record = OrphanRecord::Slot { block, slot };
        return Ok(());
    }
    fs.stats.orphans_listed.bump();
    all_or_abort(h, |h| fs.orphans.list.lock().add(fs, h, inode))?;
    *record = OrphanRecord::Listed;
    Ok(())
}

/// Removes `inode`'s record. Does nothing if it is no orphan.
///
/// # Errors
/// A failed read; a stopped journal.
pub(crate) fn remove(fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
    told_if_unlinked(h, inode, |h| strike(fs, h, inode))
}

fn strike(fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
    let mut record = inode.lock_orphan();
    match *record {
        OrphanRecord::None => return Ok(()),
        OrphanRecord::Listed => all_or_abort(h, |h| fs.orphans.list.lock().remove(fs, h, inode))?,
        OrphanRecord::Slot { block, slot } => {
            let file = fs.orphans.file.read().clone();
            debug_assert!(file.is_some(), "a slot is one of the orphan file");
            if let Some(file) = file {
                file.remove(fs, h, block, slot)?;
            }
        }
    }
    *record = OrphanRecord::None;
    Ok(())
}

/// Returns whether `inode` is recorded as an orphan.
pub(crate) fn is_orphan(inode: &Inode) -> bool {
    *inode.lock_orphan() != OrphanRecord::None
}

/// Credits of a handle that adds or removes one orphan and updates the inode.
pub(crate) const CREDITS: u32 = credits::ORPHAN;
