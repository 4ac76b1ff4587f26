//! Removing directory entries.

use std::sync::Arc;

use super::ancestry;
use super::links::{drop_link, drop_subdir};
use super::lookup_name::look;
use super::name_checks::{check_length, is_dot, may_remove};
use super::small_inode::{HeldSmallInode, SmallInode};
use crate::inode::ExclusiveGuards;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, PendingCommit, all_or_abort, credits};
use crate::{dir, inode};

/// Removes the name `name` of anything but a directory.
///
/// # Errors
/// [`Error::NotFound`], [`Error::IsDir`], [`Error::NotPermitted`] for an immutable or append-only
/// directory or inode; damage.
pub(crate) fn unlink(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<()> {
    remove(fs, dir, name, false)
}

/// Removes the empty directory `name`.
///
/// # Errors
/// As [`unlink`], but [`Error::NotDir`]; [`Error::NotEmpty`]; [`Error::Invalid`] for ".".
pub(crate) fn rmdir(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<()> {
    remove(fs, dir, name, true)
}

fn remove(fs: &Arc<Fs>, dir: &Inode, name: &[u8], directory: bool) -> Result<()> {
    check_length(name)?;
    if is_dot(name) {
        return Err(match name {
            _ if !directory => Error::IsDir,
            b"." => Error::Invalid,
            _ => Error::NotEmpty,
        });
    }
    loop {
        let victim = look(fs, dir, name)?.ok_or(Error::NotFound)?;
        let locked = inode::lock_all(&[dir, &victim]);
        if !ancestry::still(fs, locked.of(dir).shared(), name, Some(&victim))? {
            continue;
        }
        let pending = remove_locked(fs, &locked, (dir, name), &victim, directory)?;
        drop(locked);
        drop(victim); // its last reference, perhaps: with no lock and no handle held
        fs.reap_if_behind();
        return pending.commit_and_wait(fs);
    }
}

fn remove_locked(
    fs: &Fs,
    locked: &ExclusiveGuards<'_>,
    (dir, name): (&Inode, &[u8]),
    victim: &Arc<Inode>,
    directory: bool,
) -> Result<PendingCommit> {
    may_remove(dir, victim)?;
    match (victim.kind == FileKind::Directory, directory) {
        (true, false) => return Err(Error::IsDir),
        (false, true) => return Err(Error::NotDir),
        _ => {}
    }
    ancestry::check_not_own(fs, dir, victim)?;
    if directory && !dir::is_empty(fs, locked.of(victim).shared())? {
        return Err(Error::NotEmpty);
    }
    let entry = dir::find_entry(fs, locked.of(dir), name, victim.ino)?;
    let (record, dir_record) = (victim.hold_record(fs)?, dir.hold_record(fs)?);
    let small = SmallInode::of(fs, victim, locked.of(victim));
    let inode = small.as_ref().map_or(0, SmallInode::credits);
    let inode = inode.max(credits::ORPHAN);
    let names = credits::DIR_REMOVE + 2 * credits::INODE_UPDATE;
    let mut h = fs.start(credits::sum([names, inode]))?;
    let small = small.and_then(|small| small.hold(&mut h));
    let deleted = all_or_abort(&mut h, |h| {
        dir::remove(fs, h, locked.of(dir), (name, &entry))?;
        let now = inode::now();
        let deleted = small.filter(HeldSmallInode::begin);
        match &deleted {
            Some(small) => small.clear(h, &record)?,
            None => drop_link(fs, h, locked, (victim, &record), now)?,
        }
        dir.update_with_entry(fs, h, &dir_record, |core| {
            inode::modified(core, now);
            if directory {
                drop_subdir(core);
            }
        })?;
        Ok(deleted)
    })?;
    if let Some(small) = deleted {
        small.free(&mut h);
    }
    Ok(PendingCommit::end(fs, h, &[dir]))
}
