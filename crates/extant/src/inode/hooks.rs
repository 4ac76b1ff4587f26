//! Calls into the file data path, in one place until that path is there.

use std::sync::Arc;

use super::Inode;
use crate::cred::Cred;
use crate::error::{Error, Result};
use crate::fs::Fs;

/// Changes a regular file's size.
pub(crate) fn truncate(_fs: &Arc<Fs>, _inode: &Arc<Inode>, _size: u64, _cred: &Cred) -> Result<()> {
    Err(Error::NotSupported("truncation is not built yet"))
}

/// Drops the cached pages and reservations of a file that is going to be deleted.
pub(super) fn evict(fs: &Fs, inode: &Inode) {
    crate::map::drop_delayed(fs, inode, extant_units::Lblk::ZERO, 1 << 32);
}
