//! A name in a directory, as renames use it.

use std::sync::Arc;

use super::name_checks::may_remove;
use super::{ancestry, lookup_name};
use crate::inode::ExclusiveGuards;
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::Result;
use crate::volume::Fs;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct ParentAndName<'a> {
    pub(super) dir: &'a InodeRef,
    pub(super) name: &'a [u8],
}

impl ParentAndName<'_> {
    /// The inode that the name leads to at this moment.
    pub(super) fn look(&self, fs: &Arc<Fs>) -> Result<Option<InodeRef>> {
        lookup_name::look(fs, self.dir, self.name)
    }
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
    ancestry::check_not_own(fs, from.dir, inode)?;
    ancestry::check_project(&locked.of(to), inode)
}
