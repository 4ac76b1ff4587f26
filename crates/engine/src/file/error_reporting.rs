//! Errors of file operations: damage is latched for the file system, lost data is recorded for
//! fsync.

use extant_pagecache::WritebackFault;

use crate::types::error::Error;
use crate::volume::Fs;

/// Latches `error` as a fault of the file system if it is damage that an operation met. Does
/// nothing otherwise: a failed read or write of file data is no fault of the file system.
pub(super) fn latch_if_corrupt(fs: &Fs, error: &Error) {
    if let Error::Corrupt { .. } = error {
        fs.fault.report(fs, error);
    }
}

/// Records for the sync of all files that data of one could not be written.
pub(super) fn record_writeback_error(fs: &Fs, error: &Error) {
    fs.files.errors.record(fault_of(error));
    if fs.options.data_err_abort() && matches!(error, Error::Io(_)) {
        fs.fault.report(fs, error);
    }
}

/// Fault that openers are told for `error`.
pub(super) fn fault_of(error: &Error) -> WritebackFault {
    match error {
        Error::NoSpace | Error::OverQuota => WritebackFault::NoSpace,
        _ => WritebackFault::Io,
    }
}
