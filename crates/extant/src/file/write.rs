//! Writing to a file.

use std::sync::Arc;

use super::WriteAt;
use crate::cred::Cred;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;

/// Writes `data` into the cache; returns the bytes written, which are fewer only if an error stopped the rest. Takes
/// privileges away and notes the time, as a modification does.
///
/// # Errors
/// [`crate::Error::NoSpace`], [`crate::Error::FileTooBig`], [`crate::Error::NotPermitted`] for immutable files; device and map failures.
pub(crate) fn write(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    at: WriteAt,
    data: &[u8],
    cred: &Cred,
) -> Result<usize> {
    let _ = (fs, inode, at, data, cred);
    todo!()
}
