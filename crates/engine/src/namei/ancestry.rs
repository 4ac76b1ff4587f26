//! The shape of the tree, for operations on several inodes.

use std::sync::Arc;

use extant_disk::damage::LinkDamage;
use extant_units::Ino;

use super::known_names::{self, child};
use super::lookup_name::ParentAndName;
use super::name_checks::may_remove;
use crate::crypt;
use crate::dir;
use crate::inode::{ExclusiveGuards, InodeFlags, LockedInode};
use crate::state::inode::{Inode, InodeRef};
use crate::state::volume::RenameGuard;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Returns whether `name` leads to `expected`, or to no inode if that is `None`.
pub(super) fn still(
    fs: &Fs,
    dir: LockedInode<'_>,
    name: &[u8],
    expected: Option<&Inode>,
) -> Result<bool> {
    Ok(known_names::number(fs, dir, name)? == expected.map(|inode| inode.ino))
}

/// Fails if `inode` is `dir` itself, which would be its own entry.
pub(super) fn check_not_own(fs: &Fs, dir: &Inode, inode: &Inode) -> Result<()> {
    if dir.ino != inode.ino {
        return Ok(());
    }
    let error = Error::corrupt(Location::Inode(dir.ino), LinkDamage::OwnEntry);
    fs.fault.report(fs, &error);
    Err(error)
}

/// Returns whether `ancestor` is `dir` or lies above it. No directory changes its parent meanwhile,
/// which
/// `parents` proves; the caller holds no inode's `lock`.
///
/// # Errors
/// Damage: the parents of `dir` do not end at the root. [`Error::NotFound`] if `dir` was removed.
pub(super) fn is_at_or_above(
    fs: &Arc<Fs>,
    parents: &RenameGuard<'_>,
    ancestor: Ino,
    dir: &InodeRef,
) -> Result<bool> {
    assert!(parents.is_of(&fs.rename_lock), "the lock of another mount");
    let mut at = dir.clone();
    // In a cycle the walk comes back to one of the milestones, whose distances grow.
    let mut milestone = dir.ino;
    for step in 1_u64.. {
        if at.ino == ancestor {
            return Ok(true);
        }
        if at.ino == Ino::ROOT {
            return Ok(false);
        }
        let above = {
            let shared = at.lock_shared();
            let up = dir::parent(fs, shared.inode())?;
            child(fs, shared.inode(), up)?
        };
        if above.kind != FileKind::Directory {
            return Err(damaged(fs, at.ino, LinkDamage::ParentKind));
        }
        at = above;
        if at.ino == milestone {
            break;
        }
        if step.is_power_of_two() {
            milestone = at.ino;
        }
    }
    Err(damaged(fs, dir.ino, LinkDamage::ParentsPastRoot))
}

fn damaged(fs: &Fs, ino: Ino, damage: LinkDamage) -> Error {
    let error = Error::corrupt(Location::Inode(ino), damage);
    fs.fault.report(fs, &error);
    error
}

/// Fails if `inode` must not enter `dir` because its children inherit another project.
pub(super) fn check_project(dir: &Inode, inode: &Inode) -> Result<()> {
    let core = dir.core.read();
    let (inherits, project) = (core.flags.contains(InodeFlags::PROJINHERIT), core.projid);
    drop(core);
    if inherits && project != inode.core.read().projid {
        return Err(Error::CrossDevice);
    }
    Ok(())
}

/// The checks of both kinds of rename on an entry that leads to `inode` and moves to `to`. Both
/// directories are among the `locked` inodes.
pub(super) fn check_move(
    fs: &Fs,
    locked: &ExclusiveGuards<'_>,
    from: ParentAndName<'_>,
    inode: &Inode,
    to: &Inode,
) -> Result<()> {
    may_remove(&locked.of(from.dir), inode)?;
    check_not_own(fs, from.dir, inode)?;
    check_project(&locked.of(to), inode)?;
    match from.dir.ino == to.ino {
        true => Ok(()),
        false => crypt::may_enter(fs, to, inode),
    }
}
