//! Looking a name up.

use std::sync::Arc;

use extant_units::Ino;

use super::name_checks::check_length;
use crate::dir;
use crate::inode::{Inode, InodeRef};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Finds `name` in `dir`; "." and ".." too.
///
/// # Errors
/// [`Error::NotFound`], [`Error::NameTooLong`], [`Error::NotDir`]; damage.
pub(crate) fn lookup(fs: &Arc<Fs>, dir: &Inode, name: &[u8]) -> Result<InodeRef> {
    check_length(name)?;
    fs.stats.lookups.bump();
    let _shared = dir.lock.read();
    let ino = dir::lookup(fs, dir, name)?.ok_or(Error::NotFound)?;
    child(fs, dir, ino)
}

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
