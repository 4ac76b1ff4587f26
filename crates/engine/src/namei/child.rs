//! The inode that a directory entry leads to.

use std::sync::Arc;

use extant_disk::damage::LinkDamage;
use extant_units::Ino;

use crate::inode::LockedInode;
use crate::state::inode::InodeRef;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The inode that an entry of `dir` leads to, ".." included. While `dir` is locked the entry does
/// not go, so an inode that is deleted is damage.
pub(super) fn child(fs: &Arc<Fs>, dir: LockedInode<'_>, ino: Ino) -> Result<InodeRef> {
    fs.iget(ino).map_err(|error| match error {
        Error::Stale => {
            let error = Error::corrupt(Location::Inode(dir.ino), LinkDamage::DeletedInode { ino });
            fs.fault.report(fs, &error);
            error
        }
        other => other,
    })
}
