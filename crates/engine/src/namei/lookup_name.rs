//! Looking a name up.

use std::sync::Arc;

use super::known_names::{self, Known};
use super::name_checks::check_length;
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Finds `name` in `dir`; "." and ".." too.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::NotDir`]; damage.
pub(crate) fn lookup(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<InodeRef> {
    check_length(name)?;
    fs.stats.lookups.bump();
    look(fs, dir, name)?.ok_or(Error::NotFound)
}

/// The inode that `name` leads to at a moment of this call. Takes the directory's lock shared, if
/// it is needed.
pub(super) fn look(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<Option<InodeRef>> {
    match known_names::find(fs, dir, name) {
        Known::Inode(inode) => Ok(Some(inode)),
        Known::Absent => Ok(None),
        Known::Unsure => {
            let shared = dir.lock_shared();
            known_names::locked(fs, shared.inode(), name)
        }
    }
}
