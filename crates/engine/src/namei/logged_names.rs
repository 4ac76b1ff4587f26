//! Names that another system entered or removed: those of fast commits, which a replay does again.
//!
//! Nothing is asked that a caller would be asked: flags that protect a directory or a file may have
//! been set afterwards.

use std::sync::Arc;

use super::links::{add_subdir, drop_link, drop_subdir};
use super::name_checks::{check_name, check_room_for_subdir, is_dot};
use crate::inode::{ExclusiveInode, InodeFlags};
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort, credits};
use crate::{dir, inode, orphan};

/// The names that an inode had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstName {
    /// None: the inode is new.
    Yes,
    /// Some, or the inode was made without one.
    No,
}

/// Fails for a name or a directory that the engine cannot change.
fn check(dir: &Inode, name: &[u8], target: &Inode) -> Result<()> {
    check_name(name)?;
    if is_dot(name) || dir.ino == target.ino {
        return Err(Error::Invalid);
    }
    if dir.kind != FileKind::Directory {
        return Err(Error::NotDir);
    }
    let unknown = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT;
    if dir.flags().intersects(unknown) {
        return Err(Error::NotSupported(
            "fast commits in a directory inside of its inode, or with encrypted names",
        ));
    }
    Ok(())
}

/// Returns whether `name` leads to `target` already.
fn leads_to(fs: &Fs, dir: ExclusiveInode<'_>, name: &[u8], target: &Inode) -> Result<bool> {
    Ok(dir::lookup(fs, dir.shared(), name)? == Some(target.ino))
}

/// Gives `inode` the name `name` in `dir`, and counts the link. Does nothing if it has that name.
///
/// # Errors
/// [`Error::Exists`] if the name leads to another inode; [`Error::Invalid`] for a name that no
/// entry may have; [`Error::NotDir`], [`Error::IsDir`], [`Error::TooManyLinks`],
/// [`Error::NoSpace`]; damage.
pub(crate) fn enter_logged(
    fs: &Fs,
    dir: &Inode,
    name: &[u8],
    inode: &Inode,
    first: FirstName,
) -> Result<()> {
    check(dir, name, inode)?;
    let is_dir = inode.kind == FileKind::Directory;
    let guards = inode::lock_all(&[dir, inode]);
    let locked = guards.of(dir);
    let Some(vacancy) = dir::find_vacancy(fs, locked, name)? else {
        return match leads_to(fs, locked, name, inode)? {
            true => Ok(()),
            false => Err(Error::Exists),
        };
    };
    if is_dir && first == FirstName::No {
        return Err(Error::IsDir);
    }
    if is_dir {
        check_room_for_subdir(fs, locked.shared())?;
    } else if inode.core.read().links == u16::MAX {
        // A file has one more than it may have while it is renamed.
        return Err(Error::TooManyLinks);
    }
    let (record, dir_record) = (inode.hold_record(fs)?, dir.hold_record(fs)?);
    let inodes = 2 * credits::INODE_UPDATE + credits::ORPHAN;
    let mut h = fs.start(credits::sum([credits::dir_insert(fs), inodes]))?;
    all_or_abort(&mut h, |h| {
        dir::insert(fs, h, &vacancy, (inode.ino, inode.kind), true)?;
        inode.update_held(fs, h, &record, |core| {
            core.links = match (first, is_dir) {
                (FirstName::Yes, true) => 2,
                (FirstName::Yes, false) => 1,
                (FirstName::No, _) => core.links + 1,
            };
        })?;
        orphan::remove(fs, h, inode)?;
        dir.update_held(fs, h, &dir_record, |core| {
            inode::modified(core, inode::now());
            if is_dir {
                add_subdir(core);
            }
        })
    })
}

/// Removes `name` from `dir` if it leads to `victim`, and counts the link; the last one makes
/// `victim` an inode without links, which is evicted with its last reference.
///
/// # Errors
/// As [`enter_logged`]; [`Error::NotEmpty`].
pub(crate) fn remove_logged(fs: &Fs, dir: &Inode, name: &[u8], victim: &Arc<Inode>) -> Result<()> {
    check(dir, name, victim)?;
    let is_dir = victim.kind == FileKind::Directory;
    let locked = inode::lock_all(&[dir, victim]);
    if !leads_to(fs, locked.of(dir), name, victim)? {
        return Ok(());
    }
    if is_dir && !dir::is_empty(fs, locked.of(victim).shared())? {
        return Err(Error::NotEmpty);
    }
    let entry = dir::find_entry(fs, locked.of(dir), name, victim.ino)?;
    let (record, dir_record) = (victim.hold_record(fs)?, dir.hold_record(fs)?);
    let names = credits::DIR_REMOVE + 2 * credits::INODE_UPDATE;
    let mut h = fs.start(credits::sum([names, credits::ORPHAN]))?;
    all_or_abort(&mut h, |h| {
        let now = inode::now();
        dir::remove(fs, h, locked.of(dir), (name, &entry))?;
        drop_link(fs, h, &locked, (victim, &record), now)?;
        dir.update_held(fs, h, &dir_record, |core| {
            inode::modified(core, now);
            if is_dir {
                drop_subdir(core);
            }
        })
    })
}
