//! The list of what this process has made outside of itself, and the lock of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Things that are to be undone.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Temporary directories. Mounts and images of loop devices lie below them.
    pub(crate) dirs: BTreeSet<PathBuf>,
    /// A file of the kernel's that was written, and what it said before.
    pub(crate) switch: Option<(&'static str, String)>,
}

static MADE: Mutex<Made> = Mutex::new(Made {
    dirs: BTreeSet::new(),
    switch: None,
});

/// Locks the list. Nothing is cleaned up meanwhile.
pub(crate) fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}
