//! POSIX ACLs of inodes.
//!
//! An ACL is stored as an extended attribute in a form of its own; users see another
//! ([`extant_disk::acl`]). An access ACL and the permission bits overlap, so every change of one
//! changes the other: setting an ACL sets the mode, `chmod` sets the ACL's mask, and an ACL that
//! says no more than the mode is not stored.
//!
//! # Locks
//! None of its own; see [`crate::xattr`].

use extant_disk::acl::{Acl, AclError};
use extant_disk::xattr::XattrName;
use extant_jbd2::Handle;

use super::attr_store;
use super::locked_attrs::ExclusiveAttrs;
use crate::inode;
use crate::state::inode::Inode;
use crate::types::error::{Error, Location, Result};
use crate::types::{Cred, FileKind};
use crate::volume::Fs;

/// Which of an inode's two ACLs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AclKind {
    /// The ACL that permission checks use.
    Access,
    /// The ACL that a directory's new entries inherit.
    Default,
}

impl AclKind {
    /// The kind of ACL that an attribute of this name is, if it is one.
    pub(crate) fn of(name: &XattrName<'_>) -> Option<Self> {
        if *name == XattrName::ACL_ACCESS {
            Some(Self::Access)
        } else if *name == XattrName::ACL_DEFAULT {
            Some(Self::Default)
        } else {
            None
        }
    }

    const fn name(self) -> XattrName<'static> {
        match self {
            Self::Access => XattrName::ACL_ACCESS,
            Self::Default => XattrName::ACL_DEFAULT,
        }
    }
}

fn read(fs: &Fs, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
    attr_store::get_stored(fs, inode, &kind.name())?
        .map(|value| decode(fs, inode, &value))
        .transpose()
}

fn decode(fs: &Fs, inode: &Inode, value: &[u8]) -> Result<Acl> {
    Acl::from_stored(value).map_err(|e: AclError| {
        let error = Error::corrupt(Location::Inode(inode.ino), e);
        fs.fault.report(fs, &error);
        error
    })
}

/// The ACL in the form that users see, if there is one.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn get(fs: &Fs, inode: &Inode, kind: AclKind) -> Result<Option<Vec<u8>>> {
    Ok(read(fs, inode, kind)?.map(|acl| acl.to_posix()))
}

/// The access ACL, if there is one and ACLs are served.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn access(fs: &Fs, inode: &Inode) -> Result<Option<Acl>> {
    if !fs.options.acl() {
        return Ok(None);
    }
    read(fs, inode, AclKind::Access)
}

/// Bytes of the inode's access ACL as it is stored, if it has one.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn access_len(fs: &Fs, inode: &Inode) -> Result<Option<usize>> {
    let stored = attr_store::get_stored(fs, inode, &XattrName::ACL_ACCESS)?;
    Ok(stored.map(|stored| stored.len()))
}

/// Sets an ACL from the form that users pass. An empty value or an ACL without entries removes it.
///
/// # Errors
/// [`Error::Invalid`] for a bad ACL, [`Error::AccessDenied`] for a default ACL of anything but a
/// directory, [`Error::NotSupported`] for symbolic links; [`Error::NoSpace`].
pub(super) fn set(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    kind: AclKind,
    value: &[u8],
    cred: &Cred,
) -> Result<()> {
    let inode = attrs.inode();
    if inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported("ACLs of a symbolic link"));
    }
    let acl = if value.is_empty() {
        Acl::default()
    } else {
        Acl::from_posix(value).map_err(invalid)?
    };
    if kind == AclKind::Default && inode.kind != FileKind::Directory && !acl.is_empty() {
        return Err(Error::AccessDenied);
    }
    if !acl.is_empty() {
        acl.validate().map_err(invalid)?;
    }
    if kind == AclKind::Default {
        let stored = (!acl.is_empty()).then(|| acl.to_stored());
        return attr_store::set(fs, h, attrs, &kind.name(), stored.as_deref(), cred);
    }
    let mut new_mode = None;
    let mut stored = None;
    if !acl.is_empty() {
        let core = inode.core.read();
        let (mode, plain) = acl.mode(core.mode);
        let keeps_group_id = !cred.is_outsider(core.gid);
        new_mode = Some(if keeps_group_id { mode } else { mode & !0o2000 });
        stored = (!plain).then(|| acl.to_stored());
    }
    // The attribute first: only it may find no space.
    attr_store::set(fs, h, attrs, &kind.name(), stored.as_deref(), cred)?;
    if let Some(mode) = new_mode {
        inode.update(fs, h, |core| {
            core.mode = mode;
            inode::changed(core, inode::now());
        })?;
    }
    Ok(())
}

fn invalid(error: AclError) -> Error {
    match error {
        AclError::Version { .. } => Error::NotSupported("ACLs of another version"),
        _ => Error::Invalid,
    }
}

/// Applies a `chmod` to `mode` to the access ACL.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn chmod(fs: &Fs, h: &mut Handle, inode: &Inode, mode: u16, cred: &Cred) -> Result<()> {
    let Some(mut acl) = read(fs, inode, AclKind::Access)? else {
        return Ok(());
    };
    acl.chmod(mode);
    let stored = acl.to_stored();
    attr_store::set_stored(fs, h, inode, &XattrName::ACL_ACCESS, Some(&stored), cred)
}

/// Attributes that a new inode inherits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inherited {
    /// Its permission bits.
    pub(crate) perm: u16,
    /// Its access ACL in stored form, if it needs one.
    pub(crate) access: Option<Vec<u8>>,
    /// Its default ACL in stored form: directories in a directory that has one.
    pub(crate) default: Option<Vec<u8>>,
}

/// Computes what a new inode of `kind`, requested with `perm`, inherits from `parent`. A default
/// ACL there decides in the place of the umask.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn inherit(
    fs: &Fs,
    parent: &Inode,
    kind: FileKind,
    perm: u16,
    umask: u16,
) -> Result<Inherited> {
    if kind == FileKind::Symlink {
        return Ok(Inherited {
            perm: 0o777,
            ..Inherited::default()
        });
    }
    let perm = perm & 0o7777;
    let default = if fs.options.acl() {
        read(fs, parent, AclKind::Default)?.filter(|acl| !acl.is_empty())
    } else {
        None
    };
    let Some(default) = default else {
        return Ok(Inherited {
            perm: perm & !(umask & 0o777),
            ..Inherited::default()
        });
    };
    let mut access = default.clone();
    let (mode, says_more) = access.inherit(perm);
    Ok(Inherited {
        perm: mode,
        access: says_more.then(|| access.to_stored()),
        default: (kind == FileKind::Directory).then(|| default.to_stored()),
    })
}

#[cfg(test)]
mod tests;
