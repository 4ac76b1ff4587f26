//! Renames.
//!
//! Looks the names up first. Then locks both directories, a directory that gets another parent, and
//! the replaced inode, looks again, and changes all under one handle. A directory that moves to
//! another parent also takes [`Fs::rename_lock`], under which the operation makes sure that it does
//! not become its own descendant.

use std::sync::Arc;

use extant_jbd2::Handle;

use super::create::{Wanted, make_credits, make_under};
use super::links::{add_subdir, drop_link, drop_subdir};
use super::name_checks::{check_name, check_room_for_subdir, is_dot, may_create, may_remove};
use super::parent_and_name::{ParentAndName, check_move};
use super::pending_commit::{PendingCommit, retry};
use super::{ancestry, exchange_names, known_names};
use crate::dir;
use crate::file;
use crate::inode::{self, ExclusiveGuards, Inode, InodeRef};
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::types::{FileKind, RenameFlags};
use crate::volume::Fs;
use crate::volume::credits;

/// Renames `old` to `new`.
///
/// An existing `new` is replaced if both are directories and it is empty, or neither is one. With
/// `NOREPLACE` it is an error. With `EXCHANGE` it must exist, and gets the old name. `WHITEOUT`
/// leaves a character device 0:0 under the old name. Two names of one inode stay as they are.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Exists`] (`NOREPLACE`), [`Error::NotDir`], [`Error::IsDir`],
/// [`Error::NotEmpty`], [`Error::Invalid`] for a directory moved into itself and for flags that
/// exclude each other, [`Error::Busy`] for "." and "..", [`Error::NotPermitted`] for immutable or
/// append-only inodes, [`Error::TooManyLinks`], [`Error::CrossDevice`] as in [`super::link()`],
/// [`Error::NameTooLong`], [`Error::NoSpace`]; damage.
pub(crate) fn rename(
    fs: &Arc<Fs>,
    (old_dir, old_name): (&InodeRef, &[u8]),
    (new_dir, new_name): (&InodeRef, &[u8]),
    flags: RenameFlags,
    cred: &Cred,
) -> Result<()> {
    let excludes = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
    if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(excludes) {
        return Err(Error::Invalid);
    }
    if !(flags - RenameFlags::all()).is_empty() {
        return Err(Error::Invalid);
    }
    check_name(old_name)?;
    check_name(new_name)?;
    if is_dot(old_name) {
        return Err(Error::Busy);
    }
    if is_dot(new_name) {
        return Err(match flags.contains(RenameFlags::NOREPLACE) {
            true => Error::Exists,
            false => Error::Busy,
        });
    }
    let old = ParentAndName {
        dir: old_dir,
        name: old_name,
    };
    let new = ParentAndName {
        dir: new_dir,
        name: new_name,
    };
    let (pending, replaced) = retry(fs, || {
        loop {
            if let Some(done) = attempt(fs, old, new, flags, cred)? {
                return Ok(done);
            }
        }
    })?;
    drop(replaced); // its last reference, perhaps: with no lock and no handle held
    fs.reap_if_behind();
    pending.commit_and_wait(fs)
}

/// One attempt; `None` if the names changed between looking and locking.
fn attempt(
    fs: &Arc<Fs>,
    old: ParentAndName<'_>,
    new: ParentAndName<'_>,
    flags: RenameFlags,
    cred: &Cred,
) -> Result<Option<(PendingCommit, Option<InodeRef>)>> {
    let source = old.look(fs)?.ok_or(Error::NotFound)?;
    let target = new.look(fs)?;
    if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
        return Err(Error::Exists);
    }
    let swap = flags.contains(RenameFlags::EXCHANGE);
    if swap && target.is_none() {
        return Err(Error::NotFound);
    }
    if target.is_some() && !swap && fs.options.auto_da_alloc() {
        // After a crash the name leads to the old content or to the new one, not to a file whose
        // data was never written.
        file::write_and_wait(fs, &source);
    }
    let across = old.dir.ino != new.dir.ino;
    let is_dir = |inode: &InodeRef| inode.kind == FileKind::Directory;
    let moves = across && is_dir(&source);
    let above = target.as_ref().filter(|target| across && is_dir(target));

    let parents = (moves || above.is_some()).then(|| fs.rename_lock.lock());
    if let Some(parents) = &parents {
        if moves && ancestry::is_at_or_above(fs, parents, source.ino, new.dir)? {
            return Err(Error::Invalid);
        }
        if let Some(target) = above
            && ancestry::is_at_or_above(fs, parents, target.ino, old.dir)?
        {
            return Err(if swap {
                Error::Invalid
            } else {
                Error::NotEmpty
            });
        }
    }
    let mut involved: Vec<&Inode> = vec![old.dir, new.dir];
    if moves {
        involved.push(&source);
    }
    involved.extend(target.as_ref().map(|target| -> &Inode { target }));
    let locked = inode::lock_all(&involved);
    let still = |name: ParentAndName<'_>, inode: Option<&InodeRef>| {
        let dir = locked.of(name.dir).shared();
        ancestry::still(fs, dir, name.name, inode.map(|inode| -> &Inode { inode }))
    };
    if !still(old, Some(&source))? || !still(new, target.as_ref())? {
        return Ok(None);
    }
    let from: (_, &Inode) = (old, &source);
    let to = (new, target.as_deref());
    let pending = match &target {
        Some(target) if target.ino == source.ino => PendingCommit::nothing(),
        Some(target) if swap => exchange_names::swap(fs, &locked, from, (new, target))?,
        _ => replace(fs, &locked, from, to, flags, cred)?,
    };
    drop(locked);
    drop(parents);
    Ok(Some((pending, target)))
}

/// The checks of a rename on the new name and on the inode that it replaces. `directory` says
/// whether a directory is renamed, and `across` whether it gets another parent.
fn check_target(
    fs: &Fs,
    locked: &ExclusiveGuards<'_>,
    (new, target): (ParentAndName<'_>, Option<&Arc<Inode>>),
    directory: bool,
    across: bool,
) -> Result<()> {
    match target {
        Some(target) => {
            may_remove(new.dir, target)?;
            match (directory, target.kind == FileKind::Directory) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                _ => {}
            }
            ancestry::check_not_own(fs, new.dir, target)?;
            if directory && !dir::is_empty(fs, locked.of(target).shared())? {
                return Err(Error::NotEmpty);
            }
        }
        None => {
            let dir = locked.of(new.dir).shared();
            may_create(dir)?;
            if directory && across {
                check_room_for_subdir(fs, dir)?;
            }
        }
    }
    Ok(())
}

fn replace(
    fs: &Arc<Fs>,
    locked: &ExclusiveGuards<'_>,
    (old, source): (ParentAndName<'_>, &Inode),
    (new, target): (ParentAndName<'_>, Option<&Arc<Inode>>),
    flags: RenameFlags,
    cred: &Cred,
) -> Result<PendingCommit> {
    let directory = source.kind == FileKind::Directory;
    let across = old.dir.ino != new.dir.ino;
    check_move(fs, locked, old, source, new.dir)?;
    check_target(fs, locked, (new, target), directory, across)?;

    let mut h = fs.start(needed(fs, flags))?;
    let (now, to) = (inode::now(), (source.ino, source.kind));
    // Both, before one changes: no lookup finds the inode by both names.
    let (old_dir, new_dir) = (locked.of(old.dir), locked.of(new.dir));
    known_names::forget(fs, old_dir, old.name);
    known_names::forget(fs, new_dir, new.name);
    let enter = |h: &mut Handle, whiteout: Option<&Inode>| {
        match target {
            Some(target) => dir::retarget(fs, h, new_dir, new.name, target.ino, to)?,
            None => dir::insert(fs, h, new_dir, new.name, to, cred.privileged)?,
        }
        known_names::enter(fs, new_dir.shared(), new.name, source);
        match whiteout {
            Some(left) => {
                let to = (left.ino, left.kind);
                dir::retarget(fs, h, old_dir, old.name, source.ino, to)?;
                known_names::enter(fs, old_dir.shared(), old.name, left);
                Ok(())
            }
            None => dir::remove(fs, h, old_dir, old.name, source.ino),
        }
    };
    if flags.contains(RenameFlags::WHITEOUT) {
        let wanted = Wanted::whiteout();
        make_under(fs, &mut h, old.dir, &wanted, cred, |h, left| {
            enter(h, Some(left))
        })?;
    } else {
        enter(&mut h, None)?;
    }

    if directory && across {
        dir::set_parent(fs, &mut h, locked.of(source), new.dir.ino)?;
    }
    source.update(fs, &mut h, |core| inode::changed(core, now))?;
    if let Some(target) = target {
        drop_link(fs, &mut h, locked, target, now)?;
    }
    // The old directory loses a subdirectory if the source leaves it, or replaces one in it. The
    // new one gains one if the source arrives and replaces none.
    let loses = directory && (across || target.is_some());
    old.dir.update(fs, &mut h, |core| {
        inode::modified(core, now);
        if loses {
            drop_subdir(core);
        }
    })?;
    if across {
        new.dir.update(fs, &mut h, |core| {
            inode::modified(core, now);
            if directory && target.is_none() {
                add_subdir(core);
            }
        })?;
    }
    Ok(PendingCommit::end(fs, h, &[old.dir, new.dir]))
}

/// Credits of a rename.
fn needed(fs: &Fs, flags: RenameFlags) -> u32 {
    let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
        make_credits(fs, FileKind::CharDevice)
    } else {
        0
    };
    let names = credits::sum([credits::dir_insert(fs), 2 * credits::DIR_REMOVE + 1]);
    let inodes = 4 * credits::INODE_UPDATE + credits::ORPHAN;
    credits::sum([names, inodes, whiteout])
}
