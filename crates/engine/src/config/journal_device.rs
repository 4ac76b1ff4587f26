//! The device of an external journal, as a mount was given it.

use std::fmt;
use std::sync::Arc;

use extant_blockdev::BlockDevice;

/// A device that holds an external journal.
#[derive(Clone)]
pub(crate) struct JournalDevice(pub(crate) Arc<dyn BlockDevice>);

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalDevice").finish_non_exhaustive()
    }
}
