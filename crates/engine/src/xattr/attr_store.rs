//! The storage of attributes in the inode and its block.
//!
//! [`get_stored`], [`exists`], [`set_stored`], [`set_data`], [`longest_data`] and [`release`]
//! take the inode's `xattr_lock`; the others take its guard.

use extant_disk::inline_data::REST;
use extant_disk::xattr::{Entries, Fit, XattrName, XattrSet, area_entries, block_entries};
use extant_jbd2::Handle;
use extant_units::Pblk;

use super::attr_block::read_block;
use super::locked_attrs::{ExclusiveAttrs, LockedAttrs, SharedAttrs};
use super::{shared_blocks, value_inode};
use crate::inode;
use crate::inode::InodeCore;
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, all_or_abort};

/// Runs `f` on the table inside of the inode.
fn with_area<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    f: impl FnOnce(Entries<'_>) -> Result<R, extant_disk::xattr::XattrError>,
) -> Result<R> {
    let inode = attrs.inode();
    let result = {
        let core = inode.core.read();
        area_entries(&core.xattrs).and_then(f)
    };
    result.map_err(|e| {
        let error = Error::corrupt(Location::Inode(inode.ino), e);
        fs.fault.report(fs, &error);
        error
    })
}

/// Runs `f` on the table in the inode's block; `None` if it has none.
fn with_block<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    f: impl FnOnce(Entries<'_>) -> Result<R, extant_disk::xattr::XattrError>,
) -> Result<Option<R>> {
    let inode = attrs.inode();
    let pblk = inode.core.read().file_acl;
    if pblk.get() == 0 {
        return Ok(None);
    }
    let block = read_block(fs, inode.ino, pblk)?;
    let bytes = block.data();
    shared_blocks::remember(fs, pblk, &bytes);
    let result = block_entries(&bytes).and_then(f);
    result.map(Some).map_err(|e| {
        let error = Error::corrupt(Location::XattrBlock(inode.ino, pblk), e);
        fs.fault.report(fs, &error);
        error
    })
}

/// Looks for an attribute and hands its value to `f`.
pub(super) fn find<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    name: &XattrName<'_>,
    f: impl Fn(&[u8]) -> R,
) -> Result<Option<R>> {
    let look = |entries: Entries<'_>| {
        let found = entries.find(name)?;
        Ok(found.map(|entry| match entry.elsewhere {
            None => Ok(f(entry.value)),
            Some(elsewhere) => Err(elsewhere),
        }))
    };
    let inside = with_area(fs, attrs, look)?;
    let found = match inside {
        Some(found) => Some(found),
        None => with_block(fs, attrs, look)?.flatten(),
    };
    match found {
        Some(Err(at)) => {
            let value = value_inode::read(fs, attrs.inode(), name, &at)?;
            Ok(Some(f(&value)))
        }
        Some(Ok(found)) => Ok(Some(found)),
        None => Ok(None),
    }
}

/// Calls `f` with every name, those in the inode first.
pub(super) fn for_each<G>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    mut f: impl FnMut(&XattrName<'_>),
) -> Result<()> {
    let mut walk = |entries: Entries<'_>| {
        for entry in entries {
            f(&entry?.name);
        }
        Ok(())
    };
    with_area(fs, attrs, &mut walk)?;
    with_block(fs, attrs, &mut walk)?;
    Ok(())
}

/// Sets (or with `None` removes) an attribute in its stored form, taking `xattr_lock`: for callers
/// with a handle of their own that have made all checks. `cred` decides whether root's reserve may
/// be used.
///
/// # Errors
/// [`Error::NoSpace`] for a value that fits nowhere or if no block is left; damage; a stopped
/// journal.
pub(crate) fn set_stored(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    name: &XattrName<'_>,
    value: Option<&[u8]>,
    cred: &Cred,
) -> Result<()> {
    all_or_abort(h, |h| {
        set(fs, h, &ExclusiveAttrs::lock(inode), name, value, cred)
    })
}

/// Sets (or with `None` removes) the attribute of data inside of the inode, which is never in a
/// block, and changes the inode with `change`, as one step
/// ([`crate::volume::credits::INODE_UPDATE`]). Takes `xattr_lock`. Returns false, with nothing
/// changed, if the inode has no room for it.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn set_data(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    value: Option<&[u8]>,
    change: impl FnOnce(&mut InodeCore),
) -> Result<bool> {
    let attrs = ExclusiveAttrs::lock(inode);
    let mut area = with_area(fs, &attrs, XattrSet::read)?;
    match value {
        Some(value) => area.set(&REST, value),
        None => {
            area.remove(&REST);
        }
    }
    let mut bytes = vec![0; inode.core.read().xattrs.len()];
    if area.write_area(&mut bytes) == Fit::TooLarge {
        return Ok(false);
    }
    inode.update(fs, h, |core| {
        debug_assert_eq!(core.xattrs.len(), bytes.len(), "the attributes are locked");
        core.xattrs.copy_from_slice(&bytes);
        change(core);
    })?;
    // Bytes may have changed where no size did.
    inode.note_change(h);
    Ok(true)
}

/// The length of the longest value that the attribute of data inside of the inode may have; `None`
/// if there is no room for it. Takes `xattr_lock`.
///
/// # Errors
/// Damage.
pub(crate) fn longest_data(fs: &Fs, inode: &Inode) -> Result<Option<usize>> {
    let area = with_area(fs, &SharedAttrs::lock(inode), XattrSet::read)?;
    Ok(area.longest_in_area(&REST, inode.core.read().xattrs.len()))
}

/// Sets (or with `None` removes) an attribute. Removing one that does not exist updates the change
/// time only.
///
/// # Errors
/// As [`set_stored`].
pub(super) fn set(
    fs: &Fs,
    h: &mut Handle,
    attrs: &ExclusiveAttrs<'_>,
    name: &XattrName<'_>,
    value: Option<&[u8]>,
    cred: &Cred,
) -> Result<()> {
    let inode = attrs.inode();
    let area_len = inode.core.read().xattrs.len();
    let mut area = with_area(fs, attrs, XattrSet::read)?;
    let old_block = with_block(fs, attrs, XattrSet::read)?.unwrap_or_default();
    let mut block = old_block.clone();
    let old_area = area.clone();
    match value {
        None => {
            area.remove(name);
            block.remove(name);
        }
        Some(value) => {
            area.set(name, value);
            if area.fits_area(area_len) == Fit::Fits {
                block.remove(name);
            } else {
                area.remove(name);
                block.set(name, value);
                if block.fits_block(fs.layout.block_size.bytes()) == Fit::TooLarge {
                    return Err(Error::NoSpace);
                }
            }
        }
    }
    debug_assert!(
        area.get(name).is_none() || block.get(name).is_none(),
        "an attribute is in the inode or in the block"
    );
    if area == old_area && block == old_block {
        // The same value again: Linux updates the change time all the same.
        return inode.update(fs, h, |core| inode::changed(core, inode::now()));
    }
    let mut bytes = vec![0; area_len];
    if area != old_area && area.write_area(&mut bytes) == Fit::TooLarge {
        return Err(Error::NoSpace);
    }
    if value.is_some() {
        fs.super_block.note_attributes(fs, h)?;
    }
    let record = inode.hold_record(fs)?;
    let file_acl = inode.core.read().file_acl;
    let new_acl = if block == old_block {
        file_acl
    } else {
        shared_blocks::replace(fs, h, attrs, file_acl, &block, cred)?
    };
    let per_block = fs.layout.block_size.bytes_u64() / 512;
    inode.update_held(fs, h, &record, |core| {
        debug_assert_eq!(core.xattrs.len(), area_len, "the attributes are locked");
        if area != old_area && core.xattrs.len() == bytes.len() {
            core.xattrs.copy_from_slice(&bytes);
        }
        match (core.file_acl.get() != 0, new_acl.get() != 0) {
            // Saturates, as the count of a damaged inode may be anything.
            (false, true) => core.sectors = core.sectors.saturating_add(per_block),
            (true, false) => core.sectors = core.sectors.saturating_sub(per_block),
            _ => {}
        }
        core.file_acl = new_acl;
        inode::changed(core, inode::now());
    })
}

/// The stored value of an attribute, if there is one.
///
/// # Errors
/// Damage; a failed read.
pub(super) fn get_stored(fs: &Fs, inode: &Inode, name: &XattrName<'_>) -> Result<Option<Vec<u8>>> {
    find(fs, &SharedAttrs::lock(inode), name, <[u8]>::to_vec)
}

/// Returns whether an attribute is there.
///
/// # Errors
/// Damage; a failed read.
pub(crate) fn exists(fs: &Fs, inode: &Inode, name: &XattrName<'_>) -> Result<bool> {
    Ok(find(fs, &SharedAttrs::lock(inode), name, |_| ())?.is_some())
}

/// Releases the inode's attribute block, for its eviction.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn release(fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
    let attrs = ExclusiveAttrs::lock(inode);
    let pblk = inode.core.read().file_acl;
    if pblk.get() == 0 {
        return Ok(());
    }
    let per_block = fs.layout.block_size.bytes_u64() / 512;
    let record = inode.hold_record(fs)?;
    all_or_abort(h, |h| {
        shared_blocks::drop_reference(fs, h, &attrs, pblk)?;
        inode.update_held(fs, h, &record, |core| {
            core.file_acl = Pblk::ZERO;
            // As in `set`.
            core.sectors = core.sectors.saturating_sub(per_block);
        })
    })
}
