//! Operations on names: lookup, create, mkdir, mknod, symlink, link, unlink, rmdir, rename,
//! tmpfile.
//!
//! Each operation checks what Linux's VFS and ext4 check (in their order, with their errno), then
//! makes one change under one handle: directory entries, link counts, times, the orphan list. After
//! a crash it is done or not begun. The front end checks permissions (rwx, sticky); this module
//! checks immutable and append-only inodes, link counts, names and structure.
//!
//! An inode that loses its last link enters the orphan list under the same handle. It is evicted
//! when its last reference goes, outside of every handle and lock.
//!
//! # Locks
//! A new name takes the directory's `lock` exclusively. An operation that changes several inodes
//! takes all their `lock`s at once, by [`crate::inode::lock_all`], which needs no order among them.
//! A rename that gives a directory another parent takes [`Fs::rename_lock`] first. Handles start
//! below these. No operation waits for a commit under a lock: in a directory with `dirsync` it
//! commits after it has released all ([`PendingCommit`]).

mod ancestry;
mod create;
mod eviction;
mod exchange_names;
mod link;
mod parent_and_name;
mod rename;
pub(crate) mod symlink_target;
mod unlink;

use std::sync::Arc;

use extant_disk::dirent::MAX_NAME_LEN;
use extant_disk::features::RoCompat;
use extant_jbd2::Handle;
use extant_units::{Ino, Tid};

pub(crate) use self::create::{create, mkdir, mknod, symlink, tmpfile};
pub(crate) use self::link::link;
pub(crate) use self::rename::rename;
pub(crate) use self::unlink::{rmdir, unlink};
use crate::alloc;
use crate::dir;
use crate::inode::{self, Inode, InodeCore, InodeFlags, InodeRef, InodeTime};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The most links an inode may have (`EXT4_LINK_MAX`); directories with an index may have more.
const MAX_LINKS: u16 = 65_000;
/// Attempts after "no space", which commits may help.
const MAX_TRIES: u32 = 4;

/// Finds `name` in `dir`; "." and ".." too.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::NotDir`]; damage.
pub(crate) fn lookup(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<InodeRef> {
    check_length(name)?;
    fs.stats.lookups.bump();
    let _shared = dir.lock.read();
    let ino = dir::lookup(fs, dir, name)?.ok_or(Error::NotFound)?;
    child(fs, dir, ino)
}

/// The inode that an entry of `dir`, whose lock is held, leads to.
fn child(fs: &Arc<Fs>, dir: &Inode, ino: Ino) -> Result<InodeRef> {
    fs.iget(ino).map_err(|error| match error {
        Error::Stale => {
            let what = format_args!("leads to the deleted inode {ino}");
            let error = Error::corrupt(Location::Inode(dir.ino), what);
            fs.fault.report(fs, &error);
            error
        }
        other => other,
    })
}

/// Fails for names that no directory can hold.
fn check_length(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::NotFound),
        1..=MAX_NAME_LEN => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Fails for names that no entry may have, except for "." and ".." (see [`is_dot`]).
fn check_name(name: &[u8]) -> Result<()> {
    check_length(name)?;
    if name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Whether `name` is "." or "..".
fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Fails unless an entry may be added to `dir`.
fn may_create(dir: &Inode) -> Result<()> {
    let core = dir.core.read();
    if core.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if core.links == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// Fails unless the entry of `dir` that leads to `victim` may be removed or changed.
fn may_remove(dir: &Inode, victim: &Inode) -> Result<()> {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if dir.flags().intersects(fixed) || victim.flags().intersects(fixed) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Fails if `dir` cannot count one more subdirectory.
fn check_room_for_subdir(fs: &Fs, dir: &Inode) -> Result<()> {
    let uncounted =
        fs.layout.features.has_ro_compat(RoCompat::DIR_NLINK) && dir::is_indexed(fs, dir);
    if dir.core.read().links >= MAX_LINKS && !uncounted {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}

/// Counts one more subdirectory, whose `..` is a link. An indexed directory with too many to count
/// keeps one link for good.
fn add_subdir(core: &mut InodeCore) {
    core.links = core.links.saturating_add(1);
    let indexed = core.flags.contains(InodeFlags::INDEX);
    if indexed && (core.links > MAX_LINKS || core.links == 2) {
        core.links = 1;
    }
}

/// Counts one subdirectory less, if they are counted.
fn drop_subdir(core: &mut InodeCore) {
    if core.links > 2 {
        core.links -= 1;
    }
}

/// Takes one link off `inode`, all of them if it is a directory, under the handle that removed its
/// name. The last one makes it an orphan. The inode's `lock` is held.
fn drop_link(fs: &Fs, h: &mut Handle, inode: &Arc<Inode>, now: InodeTime) -> Result<()> {
    let left = inode.update(fs, h, |core| {
        inode::changed(core, now);
        core.links = match inode.kind {
            FileKind::Directory => 0,
            _ => core.links.saturating_sub(1),
        };
        core.links
    })?;
    if left == 0 {
        crate::orphan::add(fs, h, inode)?;
    }
    Ok(())
}

/// Repeats `operation` while it finds no space and a commit may free some. `operation` returns with
/// no handle and no lock held.
fn retry<T>(fs: &Arc<Fs>, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempt = 0;
    loop {
        match operation() {
            Err(Error::NoSpace) if attempt < MAX_TRIES => {
                fs.reap_all();
                // The evictions just done may be enough without a commit: one more attempt in any
                // case.
                if !alloc::commit_frees_space(fs, attempt) && attempt > 0 {
                    return Err(Error::NoSpace);
                }
                attempt += 1;
            }
            result => return result,
        }
    }
}

/// The commit that an operation owes after it has released its locks.
#[must_use]
struct PendingCommit(Option<Tid>);

impl PendingCommit {
    /// Ends the handle of a change to these directories.
    fn end(fs: &Fs, mut h: Handle, dirs: &[&Inode]) -> Self {
        let sync = InodeFlags::DIRSYNC | InodeFlags::SYNC;
        if !fs.options.dirsync() && !dirs.iter().any(|dir| dir.flags().intersects(sync)) {
            return Self(None);
        }
        h.set_sync();
        Self(Some(h.tid()))
    }

    /// Nothing was changed.
    const fn nothing() -> Self {
        Self(None)
    }

    /// Waits for the commit, if the directory asks for it.
    fn commit_and_wait(self, fs: &Fs) -> Result<()> {
        match self.0 {
            Some(tid) => fs.commit(tid),
            None => Ok(()),
        }
    }
}
