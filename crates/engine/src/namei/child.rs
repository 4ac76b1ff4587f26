//! The inode that a directory entry leads to.

use std::sync::Arc;

use extant_units::Ino;

use crate::inode::{Inode, InodeRef};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The inode that an entry of `dir`, whose lock is held, leads to.
pub(super) fn child(fs: &Arc<Fs>, dir: &Inode, ino: Ino) -> Result<InodeRef> {
    fs.iget(ino).map_err(|error| match error {
        Error::Stale => {
            let what = format_args!("leads to the deleted inode {ino}");
            let error = Error::corrupt(Location::Inode(dir.ino), what);
            fs.fault.report(fs, &error);
            error
        }
        other => other,
    })
}
