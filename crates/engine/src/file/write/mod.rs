//! Writing to files: limits, privileges, the space behind the old end, and errors that a second try
//! may cure.
//!
//! | module | which writes |
//! |---|---|
//! | `folio_write` | those that change cached bytes and nothing else |
//! | `locked_write` | all others |
//!
//! # Locks
//! A write that changes nothing but cached bytes within one folio or a few takes their locks and no
//! other, and the EOF lock if it moves the end; every other one holds the inode's `lock` and its
//! range (`range_lock`). `docs/PATH_OF_A_WRITE.md` says why that is enough.

mod folio_write;
mod locked_write;

use std::io::IoSlice;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_iomap::Payload;

pub(in crate::file) use self::folio_write::try_write_folios;
use self::locked_write::{Route, WriteRequest};
use crate::file::file_state_init::require_regular;
use crate::file::range_lock::WriteAt;
use crate::file::sync;
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::Result;
use crate::volume::Fs;

/// Writes `bytes` into the cache; `open` is the writer's own state, if it has one. Returns the
/// position of the first byte, which is the end of the file for an append, and the number of bytes
/// written: fewer if an error or a limit stopped the rest. An empty write changes nothing. Takes
/// privileges away and notes the time, as a modification does. Durable on return only with the
/// mount option `sync` or the file's flag.
///
/// # Errors
/// `NoSpace`; `FileTooBig`; `NotPermitted` for immutable files; device and map failures. Nothing
/// was written then.
pub(crate) fn write(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &[u8],
    cred: &Cred,
) -> Result<(u64, usize)> {
    let request = WriteRequest::buffered(at, bytes, cred);
    write_request(fs, inode, open, &request)
}

/// [`write()`] of several buffers, one after the other, as one write.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_vectored(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bufs: &[IoSlice<'_>],
    cred: &Cred,
) -> Result<(u64, usize)> {
    let request = WriteRequest::buffered(at, bufs, cred);
    write_request(fs, inode, open, &request)
}

/// [`write()`] past the cache (`O_DIRECT`): on return the bytes are on the device, with their
/// position and the size.
///
/// # Errors
/// As [`write()`]; what kept older data of the range from being written.
pub(crate) fn write_direct(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &[u8],
    cred: &Cred,
) -> Result<(u64, usize)> {
    let request = WriteRequest::direct(at, bytes, cred);
    write_request(fs, inode, open, &request)
}

#[inline]
fn write_request<P: Payload + ?Sized>(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    request: &WriteRequest<'_, P>,
) -> Result<(u64, usize)> {
    fs.check_writable()?;
    require_regular(inode)?;
    if request.bytes.is_empty() {
        let pos = request.at.position();
        return Ok((pos.unwrap_or_else(|| inode.size()), 0));
    }
    let fast = match request.route {
        Route::Direct => None,
        Route::Buffered | Route::WriteThrough => {
            try_write_folios(fs, inode, open, request.at, request.bytes)
        }
    };
    let (pos, done) = match fast {
        Some(pos) => (pos, request.bytes.len()),
        None => locked_write::write(fs, inode, request)?,
    };
    if fs.options.sync() || inode.flags().contains(InodeFlags::SYNC) {
        sync::fsync(fs, inode, open, false)?;
    }
    Ok((pos, done))
}
