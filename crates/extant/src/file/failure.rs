//! What becomes of failures: damage is latched, lost data is told to whoever syncs.

use extant_iomap::WritebackOps;

use super::iomap_ops::FileOps;
use crate::error::Error;
use crate::fs::Fs;

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
