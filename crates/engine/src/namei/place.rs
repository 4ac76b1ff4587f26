//! A name in a directory, as renames use it.

use std::sync::Arc;

use super::{may_remove, tree};
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::{Inode, InodeRef};

/// A name in a directory.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a InodeRef,
    pub(super) name: &'a [u8],
}

impl Place<'_> {
    /// The inode that the name leads to at this moment.
    pub(super) fn look(&self, fs: &Arc<Fs>) -> Result<Option<InodeRef>> {
        tree::look(fs, self.dir, self.name)
    }
}

/// The checks of both kinds of rename on an entry that leads to `inode` and moves to `to`. Locks
/// are held.
pub(super) fn check_move(fs: &Fs, from: Place<'_>, inode: &Inode, to: &Inode) -> Result<()> {
    may_remove(from.dir, inode)?;
    tree::check_not_own(fs, from.dir, inode)?;
    tree::check_project(to, inode)
}
