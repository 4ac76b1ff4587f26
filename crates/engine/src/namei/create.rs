//! New inodes, with a name and without.
//!
//! One handle allocates the inode, fills it and adds its directory entry; no thread finds the inode
//! before the entry is there. If the entry cannot be made, the inode becomes an orphan under the
//! same handle and is evicted with its only reference.

use extant_sync::atomic::Ordering;
use std::sync::Arc;

use extant_jbd2::Handle;

use super::known_names;
use super::links::add_subdir;
use super::name_checks::{check_name, check_room_for_subdir, is_dot, may_create};
use crate::new_inode::{self, NewInode};
use crate::state::inode::{Inode, InodeRef};
use crate::symlink;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, PendingCommit, all_or_abort, credits, stop};
use crate::{alloc, crypt, dir, inode, orphan};

/// The longest target of a symbolic link in bytes, whatever the block size (`PATH_MAX` less the
/// NUL).
const MAX_TARGET: usize = 4095;

/// The request for a new inode.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) kind: FileKind,
    /// Permission and set-id bits; the caller's umask or a default ACL is applied.
    pub(super) perm: u16,
    /// For device nodes.
    pub(super) rdev: u32,
    /// For symbolic links.
    pub(super) target: &'a [u8],
}

impl Wanted<'_> {
    fn new(kind: FileKind, perm: u16) -> Self {
        Self {
            kind,
            perm,
            rdev: 0,
            target: &[],
        }
    }

    /// The inode that a rename with `WHITEOUT` leaves: a character device 0:0 without permissions.
    pub(super) fn whiteout() -> Self {
        Self::new(FileKind::CharDevice, 0)
    }
}

/// Creates a regular file called `name`.
///
/// # Errors
/// [`Error::Exists`], [`Error::NameTooLong`], [`Error::Invalid`] for a NUL or slash in the name,
/// [`Error::NotPermitted`] in an immutable directory, [`Error::NotFound`] in a removed one,
/// [`Error::NoSpace`], [`Error::NoKey`]; damage. The same for all that follow.
pub(crate) fn create(
    fs: &Arc<Fs>,
    dir: &Inode,
    name: &[u8],
    perm: u16,
    cred: &Cred,
) -> Result<InodeRef> {
    make(fs, dir, name, Wanted::new(FileKind::Regular, perm), cred)
}

/// Creates a directory called `name`.
///
/// # Errors
/// As [`create()`], and [`Error::TooManyLinks`].
pub(crate) fn mkdir(
    fs: &Arc<Fs>,
    dir: &Inode,
    name: &[u8],
    perm: u16,
    cred: &Cred,
) -> Result<InodeRef> {
    make(fs, dir, name, Wanted::new(FileKind::Directory, perm), cred)
}

/// Creates a device node, named pipe, socket or regular file called `name`. `rdev`, in the encoding
/// of `stat`, counts for device nodes only.
///
/// # Errors
/// As [`create()`]; [`Error::NotPermitted`] for a directory, [`Error::Invalid`] for a symbolic
/// link.
pub(crate) fn mknod(
    fs: &Arc<Fs>,
    dir: &Inode,
    name: &[u8],
    (kind, rdev): (FileKind, u32),
    perm: u16,
    cred: &Cred,
) -> Result<InodeRef> {
    match kind {
        FileKind::Directory => return Err(Error::NotPermitted),
        FileKind::Symlink => return Err(Error::Invalid),
        _ => {}
    }
    let wanted = Wanted {
        rdev,
        ..Wanted::new(kind, perm)
    };
    make(fs, dir, name, wanted, cred)
}

/// Creates a symbolic link called `name` to `target`, 1 to 4095 bytes and less than a block.
///
/// # Errors
/// As [`create()`]; [`Error::NotFound`] for an empty target, [`Error::NameTooLong`] for one too
/// long.
pub(crate) fn symlink(
    fs: &Arc<Fs>,
    dir: &Inode,
    name: &[u8],
    target: &[u8],
    cred: &Cred,
) -> Result<InodeRef> {
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid);
    }
    if target.len() > MAX_TARGET {
        return Err(Error::NameTooLong);
    }
    let wanted = Wanted {
        target,
        ..Wanted::new(FileKind::Symlink, 0o777)
    };
    make(fs, dir, name, wanted, cred)
}

/// Creates a regular file without a name: an orphan until [`super::link()`] gives it one.
///
/// # Errors
/// As [`create()`], as far as they apply.
pub(crate) fn tmpfile(fs: &Arc<Fs>, dir: &Inode, perm: u16, cred: &Cred) -> Result<InodeRef> {
    if dir.kind != FileKind::Directory {
        return Err(Error::NotDir);
    }
    alloc::retry_unlocked(fs, || {
        let shared = dir.lock_shared();
        may_create(shared.inode())?;
        crypt::require_names(fs, dir)?;
        let _owners = new_inode::prepare(fs, dir, cred)?;
        let mut h = fs.start(credits::inode_create(fs) + credits::ORPHAN)?;
        let wanted = Wanted::new(FileKind::Regular, perm);
        let inode = new_inode(fs, &mut h, dir, &wanted, 0, cred)?;
        orphan::add(fs, &mut h, &inode).inspect_err(|error| stop(&h, error))?;
        inode.linkable.store(true, Ordering::Release);
        Ok(inode)
    })
}

fn make(
    fs: &Arc<Fs>,
    dir: &Inode,
    name: &[u8],
    wanted: Wanted<'_>,
    cred: &Cred,
) -> Result<InodeRef> {
    check_name(name)?;
    if is_dot(name) {
        return Err(Error::Exists);
    }
    let (inode, pending) = alloc::retry_unlocked(fs, || {
        let exclusive = dir.lock_exclusively();
        let locked = exclusive.inode();
        // Before the search, which a key that comes later would make one for another name.
        let names = crypt::require_names(fs, dir);
        let vacancy = known_names::find_vacancy(fs, locked, name)?.ok_or(Error::Exists)?;
        may_create(locked.shared())?;
        names?;
        if wanted.target.len() >= fs.layout.block_size.bytes() {
            return Err(Error::NameTooLong);
        }
        if wanted.kind == FileKind::Directory {
            check_room_for_subdir(fs, locked.shared())?;
        }
        let record = dir.hold_record(fs)?;
        let _owners = new_inode::prepare(fs, dir, cred)?;
        let mut h = fs.start(make_credits(fs, wanted.kind))?;
        let inode = make_under(fs, &mut h, dir, &wanted, cred, |h, inode| {
            let to = (inode.ino, wanted.kind);
            dir::insert(fs, h, &vacancy, to, cred.privileged)?;
            known_names::enter(fs, locked.shared(), name, inode);
            let now = inode::now();
            dir.update_with_entry(fs, h, &record, |core| {
                inode::modified(core, now);
                if wanted.kind == FileKind::Directory {
                    add_subdir(core);
                }
            })
        })?;
        Ok((inode, PendingCommit::end(fs, h, &[dir])))
    })?;
    pending.commit_and_wait(fs)?;
    Ok(inode)
}

/// Credits for a new inode with its content and its name.
pub(super) fn make_credits(fs: &Fs, kind: FileKind) -> u32 {
    let content = match kind {
        // Its first block, or its target's.
        FileKind::Directory | FileKind::Symlink => credits::sum([credits::allocate(fs), 2]),
        _ => 0,
    };
    let (inode, name) = (credits::inode_create(fs), credits::dir_insert(fs));
    credits::sum([inode, name, credits::INODE_UPDATE, credits::ORPHAN, content])
}

/// Makes an inode with its content, and calls `enter` to add its directory entry. If that fails,
/// the inode is given up again.
pub(super) fn make_under(
    fs: &Arc<Fs>,
    h: &mut Handle,
    dir: &Inode,
    wanted: &Wanted<'_>,
    cred: &Cred,
    enter: impl FnOnce(&mut Handle, &Arc<Inode>) -> Result<()>,
) -> Result<InodeRef> {
    // The "." of a directory is a second link.
    let links = if wanted.kind == FileKind::Directory {
        2
    } else {
        1
    };
    let inode = new_inode(fs, h, dir, wanted, links, cred)?;
    let filled = fill(fs, h, dir, &inode, wanted, cred);
    let done = filled.and_then(|()| all_or_abort(h, |h| enter(h, &inode)));
    if let Err(error) = done {
        new_inode::unname(fs, h, &inode).inspect_err(|error| stop(h, error))?;
        return Err(error);
    }
    Ok(inode)
}

fn new_inode(
    fs: &Arc<Fs>,
    h: &mut Handle,
    dir: &Inode,
    wanted: &Wanted<'_>,
    links: u16,
    cred: &Cred,
) -> Result<InodeRef> {
    let new = NewInode {
        kind: wanted.kind,
        perm: wanted.perm,
        rdev: wanted.rdev,
        links,
    };
    new_inode::new(fs, h, dir, &new, cred)
}

/// Gives a new inode what its kind needs beyond the inode.
fn fill(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    inode: &Inode,
    wanted: &Wanted<'_>,
    cred: &Cred,
) -> Result<()> {
    match wanted.kind {
        FileKind::Directory => dir::init_new(fs, h, inode, dir.ino, cred.privileged),
        FileKind::Symlink => symlink::set_target(fs, h, inode, wanted.target, cred.privileged),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    /// The kind is refused before the name is looked at, and before an inode is made.
    #[test]
    fn a_node_is_neither_a_directory_nor_a_link() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let _there = fs.create("there");
        let make = |name: &[u8], kind| {
            let made = mknod(&fs, &fs.root(), name, (kind, 0), 0o644, &Cred::root());
            made.map(drop)
        };
        let before = fs.stats.inode_allocs.get();
        for name in [&b"new"[..], b"there", b"."] {
            let directory = make(name, FileKind::Directory);
            assert!(matches!(directory, Err(Error::NotPermitted)), "{name:?}");
            let link = make(name, FileKind::Symlink);
            assert!(matches!(link, Err(Error::Invalid)), "{name:?}: {link:?}");
        }
        assert_eq!(fs.stats.inode_allocs.get(), before);
        assert!(matches!(make(b"there", FileKind::Fifo), Err(Error::Exists)));
        make(b"new", FileKind::Fifo).unwrap();
        assert_eq!(fs.find("new").kind, FileKind::Fifo);
    }
}
