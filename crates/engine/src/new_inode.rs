//! New inodes.
//!
//! A new inode inherits from its creator (owner), from its directory (group with set-group-id,
//! flags, default ACL) and from the mount (room for fields past 128 bytes). It is complete and
//! stored when [`new`] returns, but no entry leads to it yet: the caller adds the entry under the
//! same handle, or sets the links to zero and drops it.

use std::sync::Arc;

use extant_disk::features::{Incompat, RoCompat};
use extant_disk::quota::QuotaKind;
use extant_disk::xattr::XattrName;
use extant_jbd2::Handle;

use crate::inode::{InodeCore, InodeFlags, devnum, kind_flags};
use crate::state::alloc::InodeRequest;
use crate::state::inode::{Inode, InodeRef};
use crate::state::quota::{OwnerIds, Owners};
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, credits, stop};
use crate::xattr::{self, acl};
use crate::{alloc, crypt, inline_data, inode, map, orphan, quota};

/// The fields of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewInode {
    /// Kind.
    pub(crate) kind: FileKind,
    /// Requested permission bits; the creator's umask or the directory's default ACL are applied.
    pub(crate) perm: u16,
    /// Device number of a device node, in `stat`'s encoding.
    pub(crate) rdev: u32,
    /// Initial links: 1, 2 for a directory, 0 for a file without a name (which the caller makes an
    /// orphan).
    pub(crate) links: u16,
}

/// The bit set-group-ID.
const SGID: u16 = 0o2000;
/// The block of a new inode has room for both lists if each takes such a part of it at most.
const LISTS_IN_BLOCK: usize = 4;

/// Makes an inode that will be named in `parent`. Needs [`crate::volume::credits::inode_create`]
/// and [`crate::volume::credits::ORPHAN`] credits.
///
/// # Errors
/// [`Error::NoSpace`] if no inode is left, or no room for inherited ACLs; [`Error::NoKey`] in an
/// encrypted directory; damage; a stopped journal. All that remains then is an
/// unlinked inode, which is evicted when its reference goes.
pub(crate) fn new(
    fs: &Arc<Fs>,
    h: &mut Handle,
    parent: &Inode,
    spec: &NewInode,
    cred: &Cred,
) -> Result<InodeRef> {
    if parent.is_unlinked() {
        return Err(Error::NotFound);
    }
    let inherited = acl::inherit(fs, parent, spec.kind, spec.perm, cred.umask)?;
    let encryption = crypt::inherit(fs, parent, spec.kind)?;
    let is_dir = spec.kind == FileKind::Directory;
    let parent_flags = parent.flags();
    let request = InodeRequest {
        parent: parent.ino,
        directory: is_dir,
        top_level: parent.ino == extant_units::Ino::ROOT
            || parent_flags.contains(InodeFlags::TOPDIR),
    };
    let reserved = inode::reserve_inode(fs, owners(fs, parent, cred), cred)?;
    let (ino, generation) = alloc::allocate_inode(fs, h, &request)?;

    let mut core = InodeCore::blank(&inode::format(&fs.layout), fs.layout.want_extra_isize);
    core.generation = generation;
    core.links = spec.links;
    let perm = owned_by(&mut core, fs, parent, (spec.kind, inherited.perm), cred);
    debug_assert_eq!(perm & !0o7777, 0, "permissions, and no kind");
    core.mode = spec.kind.mode_bits() | perm;
    core.flags = kind_flags::inherited(parent_flags, spec.kind);
    core.flags.set(InodeFlags::ENCRYPT, encryption.is_some());
    let at = inode::now().clamped(core.has_wide_times());
    (core.atime, core.mtime, core.ctime) = (at, at, at);
    core.crtime = core.crtime.map(|_| at);
    match spec.kind {
        FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
            if fs.layout.features.has_incompat(Incompat::EXTENTS) {
                core.flags |= InodeFlags::EXTENTS;
                core.i_block = map::empty_root();
            }
        }
        FileKind::BlockDevice | FileKind::CharDevice => core.i_block = devnum::encode(spec.rdev),
        FileKind::Fifo | FileKind::Socket => {}
    }

    // Entered before its record is stored: else a thread that asks for the number could make a
    // second inode of the record, and the record of an inode in use that a damaged bitmap says is
    // free would be overwritten. Such a number stays taken.
    let inode = fs
        .inodes
        .insert_new(fs, ino, spec.kind, (core, reserved.quota()))?;
    if let Err(error) = inode.store_new(fs, h) {
        inode.begin_deletion();
        fs.inodes.forget(&inode);
        alloc::free_inode(fs, h, ino, is_dir)?;
        return Err(error);
    }
    reserved.keep();
    if let Err(error) = crypt::begin(fs, h, &inode, encryption, cred)
        .and_then(|()| begin(fs, h, &inode, inherited, cred))
    {
        unname(fs, h, &inode).inspect_err(|error| stop(h, error))?;
        return Err(error);
    }
    Ok(inode)
}

/// Gives a new inode the lists that it inherits, and a file its place for data.
fn begin(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    inherited: acl::Inherited,
    cred: &Cred,
) -> Result<()> {
    let lists = [
        (XattrName::ACL_ACCESS, inherited.access),
        (XattrName::ACL_DEFAULT, inherited.default),
    ];
    for (name, value) in lists {
        let Some(value) = value else { continue };
        if fs.layout.block_size.bytes() >= LISTS_IN_BLOCK * value.len() {
            xattr::set_stored(fs, h, inode, &name, Some(&value), cred)?;
            continue;
        }
        // It may get an inode of its own, which the transaction may have no room for.
        let more = xattr::credits(fs, inode, value.len())? - credits::XATTR;
        if more > 0 && !h.extend(more)? {
            return Err(Error::NoSpace);
        }
        xattr::set_stored(fs, h, inode, &name, Some(&value), cred)?;
    }
    if inode.kind == FileKind::Regular && !inode.flags().contains(InodeFlags::ENCRYPT) {
        inline_data::begin(fs, h, inode, &[])?;
    }
    Ok(())
}

/// Takes the links of a new inode, which gets no name after all: it becomes an orphan.
///
/// # Errors
/// It could not be: the caller stops the journal ([`stop`]).
pub(crate) fn unname(fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    inode.update(fs, h, |core| core.links = 0)?;
    orphan::add(fs, h, inode)
}

/// The ids of an inode that `cred` makes in `parent`.
fn owners(fs: &Fs, parent: &Inode, cred: &Cred) -> OwnerIds {
    let core = parent.core.read();
    let gid = match core.mode & SGID != 0 || fs.options.grpid() {
        true => core.gid,
        false => cred.gid,
    };
    let inherits = fs.layout.features.has_ro_compat(RoCompat::PROJECT)
        && core.flags.contains(InodeFlags::PROJINHERIT);
    OwnerIds::new(cred.uid, gid, if inherits { core.projid } else { 0 })
}

/// Makes sure that an inode which `cred` makes in `parent` can be counted in quotas. Called with
/// the lock of `parent` held and before the handle of [`new`]; starts handles.
///
/// # Errors
/// [`Error::NoSpace`]; damage of a file of quotas; a stopped journal.
pub(crate) fn prepare(fs: &Fs, parent: &Inode, cred: &Cred) -> Result<Option<Owners>> {
    quota::prepare(fs, owners(fs, parent, cred))
}

/// Gives a new inode its owner. Returns its permissions.
fn owned_by(
    core: &mut InodeCore,
    fs: &Fs,
    parent: &Inode,
    (kind, perm): (FileKind, u16),
    cred: &Cred,
) -> u16 {
    let ids = owners(fs, parent, cred);
    core.uid = ids.get(QuotaKind::User);
    core.gid = ids.get(QuotaKind::Group);
    core.projid = ids.get(QuotaKind::Project);
    permissions(parent, (kind, perm), core.gid, cred)
}

/// Permissions of a new inode of the group `gid`. A set-group-id directory passes its bit on to
/// directories. A creator outside of the group that a directory passes on gets no set-group-id
/// executable.
fn permissions(parent: &Inode, (kind, perm): (FileKind, u16), gid: u32, cred: &Cred) -> u16 {
    const SGID_EXEC: u16 = 0o2010;
    if parent.core.read().mode & SGID == 0 {
        return perm;
    }
    if kind == FileKind::Directory {
        return perm | SGID;
    }
    match perm & SGID_EXEC == SGID_EXEC && cred.is_outsider(gid) {
        true => perm & !SGID,
        false => perm,
    }
}
