//! Failures of file operations: damage is latched, lost data is reported by the next sync.

use extant_pagecache::WritebackFault;

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
    fs.files.errors.record(fault_of(error));
    if fs.options.data_err_abort() && matches!(error, Error::Io(_)) {
        fs.fault.report(fs, error);
    }
}

/// Fault that openers are told for `error`.
pub(super) fn fault_of(error: &Error) -> WritebackFault {
    match error {
        Error::NoSpace => WritebackFault::NoSpace,
        _ => WritebackFault::Io,
    }
}
