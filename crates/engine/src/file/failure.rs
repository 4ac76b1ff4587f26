//! What becomes of failures: damage is latched, lost data is told to whoever syncs.

use extant_iomap::WritebackOps;
use extant_pagecache::WritebackFault;

use super::iomap_ops::FileOps;
use crate::types::error::Error;
use crate::volume::Fs;

/// Latches damage that an operation met. Failed I/O of file data is no fault of the file system's.
pub(super) fn report(fs: &Fs, error: &Error) {
    if let Error::Corrupt { .. } = error {
        fs.fault.report(fs, error);
    }
}

/// Notes that data of some file could not be written.
pub(super) fn note_failure(fs: &Fs, error: &Error) {
    fs.files.errors.record(FileOps::fault_of(error));
    if fs.options.data_err_abort() && matches!(error, Error::Io(_)) {
        fs.fault.report(fs, error);
    }
}

/// Notes for every regular file in memory that data of it may be lost: a flush of the device has
/// failed. A shard's lock of the inode cache is taken.
pub(crate) fn note_lost_writes(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(data) = inode.data.get() {
            data.address_space.errors().record(WritebackFault::Io);
        }
    }
    fs.files.errors.record(WritebackFault::Io);
}
