//! Working off the queue of unlinked inodes: where space is short, and before a sync.
//!
//! Evicting an inode takes parts of the file system that stand above inodes. So the mount hands the
//! function in ([`crate::volume::Upcalls`]).

use std::sync::Arc;

use crate::volume::Fs;

impl Fs {
    /// Evicts the inodes in the queue. The caller holds no lock and no handle.
    #[track_caller]
    pub(crate) fn reap(self: &Arc<Self>) {
        extant_lock_order::assert_none_held();
        while let Some((inode, _busy)) = self.inodes.reaper.pop() {
            (self.upcalls.evict)(self, &inode);
        }
    }

    /// As [`Fs::reap`], but only if the reaper has fallen behind: for operations that add to its
    /// queue. The caller holds no lock and no handle.
    pub(crate) fn reap_if_behind(self: &Arc<Self>) {
        if self.inodes.reaper.is_behind() {
            self.reap();
        }
    }

    /// Evicts the inodes in the queue, and waits for evictions of other threads: before "no space"
    /// is final, and before sync. The caller holds no lock and no handle.
    pub(crate) fn reap_all(self: &Arc<Self>) {
        self.reap();
        self.inodes.reaper.wait_until_idle();
    }
}
