//! The lock of an inode as a whole: `lock` in `docs/LOCKING.md`.
//!
//! # Invariants
//! Only [`crate::inode::inode_locks`] takes it, so a function that relies on it gets a token from there.

use extant_range_lock::FileLock;
use parking_lot::RwLock;

/// An inode's `lock`.
#[derive(Default)]
pub(crate) struct InodeLock(pub(crate) RwLock<()>);

impl FileLock for InodeLock {
    #[inline]
    fn is_exclusive(&self) -> bool {
        FileLock::is_exclusive(&self.0)
    }
}
