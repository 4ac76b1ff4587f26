//! Changing a file's size.

use std::sync::Arc;

use crate::cred::Cred;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;

/// Changes a regular file's size. Takes the inode's `lock`. Times and privileges are the caller's.
///
/// # Errors
/// [`crate::Error::FileTooBig`]; device, map and journal failures.
pub(crate) fn truncate(fs: &Arc<Fs>, inode: &Arc<Inode>, size: u64, cred: &Cred) -> Result<()> {
    let _ = (fs, inode, size, cred);
    todo!()
}
