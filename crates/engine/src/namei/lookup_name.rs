//! A name in a directory, and looking it up.

use std::sync::Arc;

use super::known_names::{self, Known};
use super::name_checks::check_length;
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Finds `name` in `dir`; "." and ".." too.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::NotDir`]; [`Error::NotPermitted`] for a
/// directory or link that is not encrypted as its directory is; damage.
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

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct ParentAndName<'a> {
    pub(crate) dir: &'a InodeRef,
    pub(crate) name: &'a [u8],
}

/// A name, and the inode that it leads to while its directory is locked.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) at: ParentAndName<'a>,
    pub(super) inode: &'a Inode,
}

impl<'a> ParentAndName<'a> {
    pub(crate) fn new(dir: &'a InodeRef, name: &'a [u8]) -> Self {
        Self { dir, name }
    }

    /// The inode that the name leads to at this moment.
    pub(super) fn look(&self, fs: &Arc<Fs>) -> Result<Option<InodeRef>> {
        look(fs, self.dir, self.name)
    }
}
