//! Orphans found on disk at mount: finishes what a crash interrupted.
//!
//! An orphan without links is evicted, one with links is truncated to its size. Invalid numbers (a
//! free inode, a reserved one, one that occurs twice) end the list, or free their slot, with a
//! warning. Every loop is bounded.

use std::collections::HashSet;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_units::Ino;

use crate::state::inode::{Inode, InodeRef, OrphanRecord};
use crate::state::orphans::OrphanFile;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Truncates a file to a size in bytes. Files stand above orphans, so the caller passes the
/// function.
type Truncate = fn(&Arc<Fs>, &Arc<Inode>, u64) -> Result<()>;

/// Processes every orphan; `truncate` cuts those that still have a link. Part of a writable mount,
/// after [`super::open`], before the file system is used. Returns how many there were.
///
/// # Errors
/// A stopped journal or a failed device. Damage of single orphans is reported and passed over.
pub(crate) fn process_all(fs: &Arc<Fs>, truncate: Truncate) -> Result<u64> {
    let listed = process_list(fs, truncate)?;
    let filed = process_file(fs, truncate)?;
    let count = listed + filed;
    if count > 0 {
        tracing::info!(count, "orphans were finished");
    }
    fs.stats.orphans_processed.add(count);
    Ok(count)
}

/// Reads every orphan into memory, and leaves it as it is: a change of one of them that makes it no
/// orphan takes its record as well.
///
/// # Errors
/// As [`process_all`].
pub(crate) fn adopt_all(fs: &Arc<Fs>) -> Result<Vec<InodeRef>> {
    let mut found = adopt_list(fs)?;
    let file = fs.orphans.file.read().clone();
    if let Some(file) = file {
        for (block, slot, ino) in file.entries(fs)? {
            found.extend(adopt_slot(fs, &file, (block, slot), ino)?);
        }
    }
    Ok(found)
}

/// Lets go of inodes from [`adopt_all`] and of others without links. Those that are recorded on
/// disk stay there, with their records; the others are evicted.
pub(crate) fn leave_all(fs: &Arc<Fs>, found: Vec<InodeRef>) {
    for inode in &found {
        if inode.is_unlinked() && super::is_orphan(inode) {
            // Its eviction has begun then, and never happens.
            inode.begin_deletion();
        }
    }
    drop(found);
    fs.reap_all();
}

/// The first inode of the list.
fn last_orphan(fs: &Fs) -> Result<Option<Ino>> {
    let raw = fs.super_block.read(fs)?;
    Ok(Ino::new(raw.last_orphan.get()))
}

/// Reads the list into memory first, then works from its head.
fn process_list(fs: &Arc<Fs>, truncate: Truncate) -> Result<u64> {
    let found = adopt_list(fs)?;
    let count = found.len() as u64;
    for inode in found {
        finish(fs, inode, truncate)?;
    }
    Ok(count)
}

/// Reads the list into memory.
fn adopt_list(fs: &Arc<Fs>) -> Result<Vec<InodeRef>> {
    let mut next = last_orphan(fs)?;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut newer = None;
    while let Some(ino) = next {
        // A number that occurs again would make the list endless.
        let usable = seen.insert(ino).then(|| fs.iget_orphan(ino)).transpose();
        let inode = match usable {
            Ok(Some(inode)) => inode,
            Ok(None) => {
                cut_list(fs, found.last(), "it comes back to itself")?;
                break;
            }
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                cut_list(fs, found.last(), &error.to_string())?;
                break;
            }
        };
        let older = inode.core.read().dtime;
        fs.orphans.list.lock().adopt_oldest(&inode, newer, older);
        *inode.lock_orphan() = OrphanRecord::Listed;
        newer = Some(ino);
        next = Ino::new(older);
        found.push(inode);
    }
    Ok(found)
}

/// Ends the list behind `last`.
fn cut_list(fs: &Arc<Fs>, last: Option<&InodeRef>, why: &str) -> Result<()> {
    tracing::warn!(why, "the list of orphans ends early");
    let mut h = fs.start(super::CREDITS)?;
    match last {
        None => fs
            .super_block
            .update(fs, &mut h, |raw| raw.last_orphan.set(0)),
        Some(inode) => {
            inode.update(fs, &mut h, |core| core.dtime = 0)?;
            fs.orphans.list.lock().end_at(inode.ino);
            Ok(())
        }
    }
}

fn process_file(fs: &Arc<Fs>, truncate: Truncate) -> Result<u64> {
    let file = fs.orphans.file.read().clone();
    let Some(file) = file else { return Ok(0) };
    let mut count = 0;
    for (block, slot, ino) in file.entries(fs)? {
        if let Some(inode) = adopt_slot(fs, &file, (block, slot), ino)? {
            count += 1;
            finish(fs, inode, truncate)?;
        }
    }
    Ok(count)
}

/// The inode `ino` of a slot of the orphan file; `None` if that was invalid, and is free now.
fn adopt_slot(
    fs: &Arc<Fs>,
    file: &OrphanFile,
    (block, slot): (usize, usize),
    ino: Ino,
) -> Result<Option<InodeRef>> {
    let inode = match fs.iget_orphan(ino) {
        Ok(inode) => inode,
        Err(error) if is_fatal(&error) => return Err(error),
        Err(error) => {
            free_slot(fs, file, block, slot, &error.to_string())?;
            return Ok(None);
        }
    };
    let already = {
        let mut record = inode.lock_orphan();
        let already = *record != OrphanRecord::None;
        if !already {
            *record = OrphanRecord::Slot { block, slot };
        }
        already
    };
    if already {
        free_slot(fs, file, block, slot, "it is recorded twice")?;
        return Ok(None);
    }
    Ok(Some(inode))
}

fn free_slot(fs: &Arc<Fs>, file: &OrphanFile, block: usize, slot: usize, why: &str) -> Result<()> {
    tracing::warn!(block, slot, why, "entry of the orphan file dropped");
    let mut h = fs.start(super::CREDITS)?;
    file.remove(fs, &mut h, block, slot)
}

/// Completes one orphan.
fn finish(fs: &Arc<Fs>, inode: InodeRef, truncate: Truncate) -> Result<()> {
    if !inode.is_unlinked() {
        match cut(fs, &inode, truncate) {
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(ino = inode.ino.get(), %error, "cannot truncate orphan");
                fs.fault.report(fs, &error);
                return Ok(());
            }
            Ok(()) => {}
        }
        let mut h = fs.start(super::CREDITS)?;
        super::remove(fs, &mut h, &inode)?;
    }
    drop(inode);
    fs.reap();
    Ok(())
}

/// Frees the blocks behind the end of a file. Other kinds are never truncated, nor are files with
/// fs-verity, whose tree lies there: no crash leaves one of them an orphan that has a link.
fn cut(fs: &Arc<Fs>, inode: &InodeRef, truncate: Truncate) -> Result<()> {
    if inode.kind != FileKind::Regular || inode.flags().contains(InodeFlags::VERITY) {
        return Ok(());
    }
    let size = inode.core.read().disk_size;
    truncate(fs, inode, size)
}

/// Returns whether no further orphan can be processed after this error.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::Shutdown(_) | Error::ReadOnly)
}
