//! Conditions that a name and a directory must fulfil before an entry changes.

use extant_disk::dirent::MAX_NAME_LEN;
use extant_disk::features::RoCompat;

use super::links::MAX_LINKS;
use crate::dir;
use crate::inode::{InodeFlags, LockedInode};
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Fails for names that no directory can hold.
pub(super) fn check_length(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::NotFound),
        1..=MAX_NAME_LEN => Ok(()),
        _ => Err(Error::NameTooLong),
    }
}

/// Fails for names that no entry may have, except for "." and ".." (see [`is_dot`]).
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    check_length(name)?;
    if name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Returns whether `name` is "." or "..".
pub(super) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Fails unless an entry may be added to `dir`.
pub(super) fn may_create(dir: LockedInode<'_>) -> Result<()> {
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
pub(super) fn may_remove(dir: &Inode, victim: &Inode) -> Result<()> {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if dir.flags().intersects(fixed) || victim.flags().intersects(fixed) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Fails if `dir` cannot count one more subdirectory.
pub(super) fn check_room_for_subdir(fs: &Fs, dir: LockedInode<'_>) -> Result<()> {
    let uncounted =
        fs.layout.features.has_ro_compat(RoCompat::DIR_NLINK) && dir::is_indexed(fs, dir);
    if dir.core.read().links >= MAX_LINKS && !uncounted {
        return Err(Error::TooManyLinks);
    }
    Ok(())
}
