//! Renames.
//!
//! Looks the names up first. Then locks both directories, a directory that gets another parent, and
//! the replaced inode, looks again, and changes all under one handle. A directory that moves to
//! another parent also takes [`Fs::rename_lock`], under which the operation makes sure that it does
//! not become its own descendant.

use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_jbd2::Handle;

use super::create::{Wanted, make_credits, make_under};
use super::links::{add_subdir, drop_link, drop_subdir};
use super::lookup_name::{Named, ParentAndName};
use super::name_checks::{check_name, check_room_for_subdir, is_dot, may_create, may_remove};
use super::{ancestry, exchange_names, known_names};
use crate::dir::{self, FoundEntry, Vacancy};
use crate::inode::{ExclusiveGuards, HeldRecord};
use crate::new_inode;
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind, RenameFlags};
use crate::volume::{Fs, PendingCommit, all_or_abort, credits};
use crate::{alloc, crypt, file, inode};

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
    old: ParentAndName<'_>,
    new: ParentAndName<'_>,
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
    check_name(old.name)?;
    check_name(new.name)?;
    if is_dot(old.name) {
        return Err(Error::Busy);
    }
    if is_dot(new.name) {
        return Err(match flags.contains(RenameFlags::NOREPLACE) {
            true => Error::Exists,
            false => Error::Busy,
        });
    }
    let request = RenameRequest {
        old,
        new,
        flags,
        cred,
    };
    let (pending, replaced) = alloc::retry_unlocked(fs, || {
        loop {
            if let Some(done) = attempt(fs, &request)? {
                return Ok(done);
            }
        }
    })?;
    drop(replaced); // its last reference, perhaps: with no lock and no handle held
    fs.reap_if_behind();
    pending.commit_and_wait(fs)
}

/// Names and attributes of a rename, as its caller asks for it.
struct RenameRequest<'a> {
    old: ParentAndName<'a>,
    new: ParentAndName<'a>,
    flags: RenameFlags,
    cred: &'a Cred,
}

/// One attempt; `None` if the names changed between looking and locking.
fn attempt(
    fs: &Arc<Fs>,
    request: &RenameRequest<'_>,
) -> Result<Option<(PendingCommit, Option<InodeRef>)>> {
    let RenameRequest {
        old, new, flags, ..
    } = *request;
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
    // Before the names are searched for: see `create.rs`.
    let names = crypt::require_names(fs, old.dir).and_then(|()| crypt::require_names(fs, new.dir));
    let still = |name: ParentAndName<'_>, inode: Option<&InodeRef>| {
        let dir = locked.of(name.dir).shared();
        ancestry::still(fs, dir, name.name, inode.map(|inode| -> &Inode { inode }))
    };
    if !still(old, Some(&source))? || !still(new, target.as_ref())? {
        return Ok(None);
    }
    names?;
    let named = |at, inode| Named { at, inode };
    let pending = match &target {
        Some(target) if target.ino == source.ino => PendingCommit::nothing(),
        Some(target) if swap => {
            exchange_names::swap(fs, &locked, named(old, &source), named(new, target))?
        }
        target => replace(fs, &locked, request, &source, target.as_deref())?,
    };
    drop(locked);
    drop(parents);
    Ok(Some((pending, target)))
}

/// The checks of a rename of `source` on the new name and on the inode that it replaces.
fn check_target(
    fs: &Fs,
    locked: &ExclusiveGuards<'_>,
    request: &RenameRequest<'_>,
    source: &Inode,
    target: Option<&Arc<Inode>>,
) -> Result<()> {
    let RenameRequest { old, new, .. } = request;
    let directory = source.kind == FileKind::Directory;
    let across = old.dir.ino != new.dir.ino;
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

/// Replaces `target`, which the new name leads to, or adds the name, and takes the old one away,
/// which leads to `source`.
fn replace(
    fs: &Arc<Fs>,
    locked: &ExclusiveGuards<'_>,
    request: &RenameRequest<'_>,
    source: &Inode,
    target: Option<&Arc<Inode>>,
) -> Result<PendingCommit> {
    let RenameRequest {
        old,
        new,
        flags,
        cred,
    } = *request;
    let directory = source.kind == FileKind::Directory;
    let across = old.dir.ino != new.dir.ino;
    ancestry::check_move(fs, locked, old, source, new.dir)?;
    check_target(fs, locked, request, source, target)?;
    let rename = Rename {
        fs,
        locked,
        old,
        source,
        new,
        target,
        leaves: dir::find_entry(fs, locked.of(old.dir), old.name, source.ino)?,
        replaced: target
            .map(|target| dir::find_entry(fs, locked.of(new.dir), new.name, target.ino))
            .transpose()?,
        target_record: target.map(|target| target.hold_record(fs)).transpose()?,
        dir_records: [old.dir.hold_record(fs)?, new.dir.hold_record(fs)?],
        moves: directory && across,
    };
    // Held until the change is done: it reads none of them then.
    let _parent = rename
        .moves
        .then(|| dir::hold_parent(fs, locked.of(source).shared()))
        .transpose()?;
    let _source = source.hold_record(fs)?;

    let whiteout = flags.contains(RenameFlags::WHITEOUT);
    let _owners = match whiteout {
        true => new_inode::prepare(fs, old.dir, cred)?,
        false => None,
    };
    let mut h = fs.start(needed(fs, flags))?;
    // Both, before one changes: no lookup finds the inode by both names.
    if !fs.tuning.failpoint.is(Failpoint::HalfRenameShown) {
        dir::forget(fs, locked.of(old.dir), old.name);
        dir::forget(fs, locked.of(new.dir), new.name);
    }
    all_or_abort(&mut h, |h| {
        if flags.contains(RenameFlags::WHITEOUT) {
            let wanted = Wanted::whiteout();
            make_under(fs, h, old.dir, &wanted, cred, |h, left| {
                rename.enter(h, Some(left), cred)
            })?;
        } else {
            rename.enter(h, None, cred)?;
        }
        rename.count(h)
    })?;
    Ok(PendingCommit::end(fs, h, &[old.dir, new.dir]))
}

/// A rename that was checked, with the entries that it changes.
struct Rename<'a> {
    fs: &'a Arc<Fs>,
    locked: &'a ExclusiveGuards<'a>,
    old: ParentAndName<'a>,
    source: &'a Inode,
    new: ParentAndName<'a>,
    target: Option<&'a Arc<Inode>>,
    /// The old entry.
    leaves: FoundEntry,
    /// The entry of `target`.
    replaced: Option<FoundEntry>,
    target_record: Option<HeldRecord>,
    /// Those of both directories.
    dir_records: [HeldRecord; 2],
    /// A directory gets another parent.
    moves: bool,
}

impl Rename<'_> {
    /// Changes the entries: the new one, then the old one, which leads to `whiteout` afterwards or
    /// is gone.
    fn enter(&self, h: &mut Handle, whiteout: Option<&Inode>, cred: &Cred) -> Result<()> {
        let Self { fs, old, new, .. } = self;
        let (old_dir, new_dir) = (self.locked.of(old.dir), self.locked.of(new.dir));
        let to = (self.source.ino, self.source.kind);
        let mut moved = None;
        match &self.replaced {
            Some(entry) => dir::retarget(fs, h, new_dir, (new.name, entry), to)?,
            None => {
                let vacancy = Vacancy::known(new_dir, new.name);
                dir::insert(fs, h, &vacancy, to, cred.privileged)?;
                if old.dir.ino == new.dir.ino {
                    // Making room may have moved it.
                    moved = Some(dir::find_entry(fs, old_dir, old.name, self.source.ino)?);
                }
            }
        }
        known_names::enter(fs, new_dir.shared(), new.name, self.source);
        let entry = (old.name, moved.as_ref().unwrap_or(&self.leaves));
        match whiteout {
            Some(left) => {
                dir::retarget(fs, h, old_dir, entry, (left.ino, left.kind))?;
                known_names::enter(fs, old_dir.shared(), old.name, left);
                Ok(())
            }
            None => dir::remove(fs, h, old_dir, entry),
        }
    }

    /// Changes what goes with the entries: "..", links and times.
    fn count(&self, h: &mut Handle) -> Result<()> {
        let Self { fs, old, new, .. } = self;
        let now = inode::now();
        if self.moves {
            dir::set_parent(fs, h, self.locked.of(self.source), new.dir.ino)?;
        }
        self.source
            .update(fs, h, |core| inode::changed(core, now))?;
        if let Some(target) = self.target.zip(self.target_record.as_ref()) {
            drop_link(fs, h, self.locked, target, now)?;
        }
        // The old directory loses a subdirectory if the source leaves it, or replaces one in it.
        // The new one gains one if the source arrives and replaces none.
        let directory = self.source.kind == FileKind::Directory;
        let loses = directory && (self.moves || self.target.is_some());
        let [old_record, new_record] = &self.dir_records;
        old.dir.update_with_entry(fs, h, old_record, |core| {
            inode::modified(core, now);
            if loses {
                drop_subdir(core);
            }
        })?;
        if old.dir.ino == new.dir.ino {
            return Ok(());
        }
        new.dir.update_with_entry(fs, h, new_record, |core| {
            inode::modified(core, now);
            if directory && self.target.is_none() {
                add_subdir(core);
            }
        })
    }
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
