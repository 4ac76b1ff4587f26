//! Extended attributes.
//!
//! An inode keeps its attributes in the space behind its fixed fields and, if that is too small, in
//! one block that inodes with equal attributes share. A new value goes into the inode if it fits
//! there, else into the block; an attribute is never in both. With the feature `ea_inode` a value
//! that fits neither goes into an inode of its own, which attributes with equal values share. Every
//! change is one handle: attributes, counts of blocks and values, and the change time together.
//!
//! This module handles full names (`user.note`) and the rules of the namespaces; [`attr_store`]
//! changes the tables, and [`attr_tables`] decides in which a value goes; [`shared_blocks`] counts
//! the users of blocks, [`value_store`] those of values; [`acl`] translates ACLs from and to the
//! form that users see.
//!
//! # Locks
//! The inode's `xattr_lock` (shared to read, exclusively to change), which [`locked_attrs`] alone
//! takes; inside it the stripes of [`shared_blocks`]. Handles are started before.
//!
//! # Credits
//! [`credits::XATTR`] for one change, less than one more inode update; with `ea_inode` as many as
//! [`attr_store::credits`] counts.

pub(crate) mod acl;
mod attr_block;
mod attr_store;
mod attr_tables;
mod locked_attrs;
pub(crate) mod privileges;
mod shared_blocks;
#[cfg(test)]
mod tests;
mod value_inode;
mod value_store;

use extant_disk::xattr::{NameIndex, XATTR_NAME_MAX, XATTR_VALUE_MAX, XattrName};
use extant_jbd2::Handle;

use self::acl::AclKind;
pub(crate) use self::attr_store::{
    count_values_of, credits, exists, get_stored, has_values_elsewhere, longest_data, release,
    set_data, set_stored,
};
use self::locked_attrs::{ExclusiveAttrs, SharedAttrs};
use crate::alloc;
use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::types::{FileKind, XattrMode};
use crate::volume::{Fs, all_or_abort, credits};

/// Splits a full name and checks that attributes of its namespace are served.
fn parse<'a>(fs: &Fs, name: &'a [u8]) -> Result<XattrName<'a>> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        return Err(Error::OutOfRange);
    }
    if [&b"user."[..], b"trusted.", b"security."].contains(&name) {
        return Err(Error::Invalid);
    }
    let name = XattrName::parse(name).ok_or(Error::NotSupported("attributes of this namespace"))?;
    let served = match name.index {
        NameIndex::USER => fs.options.user_xattr(),
        NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT => fs.options.acl(),
        NameIndex::TRUSTED | NameIndex::SECURITY => true,
        // `system.data` belongs to inline data, rich ACLs to no released kernel.
        _ => false,
    };
    if served {
        Ok(name)
    } else {
        Err(Error::NotSupported("attributes of this namespace"))
    }
}

/// `user.` attributes exist on files and directories only.
fn fits_kind(inode: &Inode, name: &XattrName<'_>) -> bool {
    name.index != NameIndex::USER || matches!(inode.kind, FileKind::Regular | FileKind::Directory)
}

/// The value of an attribute.
///
/// # Errors
/// [`Error::NoAttribute`]; [`Error::NotSupported`] for namespaces that are not served;
/// [`Error::OutOfRange`] for a name that is too long.
pub(crate) fn get(fs: &Fs, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let name = parse(fs, name)?;
    if let Some(kind) = AclKind::of(&name) {
        return acl::get(fs, inode, kind)?.ok_or(Error::NoAttribute);
    }
    if !fits_kind(inode, &name) {
        return Err(Error::NoAttribute);
    }
    attr_store::get_stored(fs, inode, &name)?.ok_or(Error::NoAttribute)
}

/// The full names of all attributes that are served.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn list(fs: &Fs, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    attr_store::for_each(fs, &SharedAttrs::lock(inode), |name| {
        if let Some(full) = name.full()
            && parse(fs, &full).is_ok()
            && fits_kind(inode, name)
        {
            names.push(full);
        }
    })?;
    Ok(names)
}

/// Sets an attribute.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoAttribute`] by `mode`; [`Error::OutOfRange`] for a name over
/// 255 bytes, [`Error::TooBig`] for a value over 64 KiB, [`Error::NoSpace`] for one that fits
/// neither inode nor block (nor, with `ea_inode`, an inode of its own); [`Error::NotPermitted`] for
/// immutable and append-only inodes and for `user.` attributes of special files;
/// [`Error::Invalid`] for a bad ACL.
pub(crate) fn set(
    fs: &Fs,
    inode: &Inode,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
    cred: &Cred,
) -> Result<()> {
    may_change(fs, inode)?;
    let name = parse(fs, name)?;
    if value.len() > XATTR_VALUE_MAX {
        return Err(Error::TooBig);
    }
    change(fs, inode, (&name, value.len()), |h, attrs| {
        let there = attr_store::is_there(fs, attrs, &name)?;
        match mode {
            XattrMode::Create if there => Err(Error::Exists),
            XattrMode::Replace if !there => Err(Error::NoAttribute),
            _ => match AclKind::of(&name) {
                Some(kind) => acl::set(fs, h, attrs, kind, value, cred),
                None => attr_store::set(fs, h, attrs, &name, Some(value), cred),
            },
        }
    })
}

/// Removes an attribute.
///
/// # Errors
/// [`Error::NoAttribute`]; else as [`set`].
pub(crate) fn remove(fs: &Fs, inode: &Inode, name: &[u8], cred: &Cred) -> Result<()> {
    may_change(fs, inode)?;
    let name = parse(fs, name)?;
    change(fs, inode, (&name, 0), |h, attrs| {
        let there = attr_store::is_there(fs, attrs, &name)?;
        match AclKind::of(&name) {
            // Removing an ACL that is not there succeeds, as in Linux.
            Some(kind) => acl::set(fs, h, attrs, kind, &[], cred),
            None if !there => Err(Error::NoAttribute),
            None => attr_store::set(fs, h, attrs, &name, None, cred),
        }
    })
}

/// Returns whether attributes may be changed at all. Checked first, whatever their names.
fn may_change(fs: &Fs, inode: &Inode) -> Result<()> {
    fs.check_writable()?;
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if inode.flags().intersects(fixed) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Runs `f`, which changes the attribute `name` to a value of `len` bytes, under a handle on the
/// locked attributes, and again if a commit frees space.
fn change(
    fs: &Fs,
    inode: &Inode,
    (name, len): (&XattrName<'_>, usize),
    mut f: impl FnMut(&mut Handle, &ExclusiveAttrs<'_>) -> Result<()>,
) -> Result<()> {
    if !fits_kind(inode, name) {
        return Err(Error::NotPermitted);
    }
    let _excluded = inode.lock_exclusively();
    if inode.is_gone() {
        return Err(Error::Stale);
    }
    alloc::retry(fs, || {
        let needed = attr_store::credits(fs, inode, len)?;
        let mut h = fs.start_with_revokes(needed + credits::INODE_UPDATE, 1)?;
        inode.not_plain();
        all_or_abort(&mut h, |h| f(h, &ExclusiveAttrs::lock(inode)))
    })
}
