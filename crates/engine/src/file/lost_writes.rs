//! Failures of file operations: damage is latched, lost data is reported by the next sync.

use extant_iomap::WritebackOps;
use extant_pagecache::WritebackFault;

use crate::file::mapping::iomap_ops::FileOps;
use crate::types::error::Error;
use crate::volume::Fs;

/// Latches damage that an operation met. A failed read or write of file data is no fault of the
/// file system.
pub(super) fn report(fs: &Fs, error: &Error) {
    if let Error::Corrupt { .. } = error {
        fs.fault.report(fs, error);
    }
}

/// Notes that data of a file could not be written.
pub(super) fn note_failure(fs: &Fs, error: &Error) {
    fs.files.errors.record(FileOps::fault_of(error));
    if fs.options.data_err_abort() && matches!(error, Error::Io(_)) {
        fs.fault.report(fs, error);
    }
}

/// Notes for every regular file in memory that data of it may be lost, because a flush of the
/// device has failed. Takes the lock of one shard of the inode cache at a time.
pub(crate) fn note_lost_writes(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(data) = inode.data.get() {
            data.address_space.errors().record(WritebackFault::Io);
        }
    }
    fs.files.errors.record(WritebackFault::Io);
}
