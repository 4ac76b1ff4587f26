//! What a copy is asked to do.

use crate::args::{Given, Sparse};

/// What is copied, and how.
#[derive(Clone, Debug)]
pub(crate) struct CopyRules {
    pub(crate) recursive: bool,
    /// Keep owners, permissions and times.
    pub(crate) preserve: bool,
    /// Keep extended attributes and hard links too.
    pub(crate) archive: bool,
    pub(crate) no_clobber: bool,
    pub(crate) sparse: Sparse,
    /// The owner and the permissions that the caller names.
    pub(crate) given: Given,
    /// Bits that new files do not get.
    pub(crate) umask: u16,
}

impl CopyRules {
    /// Whole trees with everything that belongs to them.
    pub(crate) fn whole() -> CopyRules {
        CopyRules {
            recursive: true,
            preserve: true,
            archive: true,
            no_clobber: false,
            sparse: Sparse::Auto,
            given: Given::default(),
            umask: 0,
        }
    }
}
