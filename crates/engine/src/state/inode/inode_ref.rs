//! Counted references to inodes.

use extant_sync::atomic::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::state::inode::Inode;

/// A counted reference to an inode. Dropping the last one of an unlinked inode hands it to the
/// reaper. The drop itself neither waits nor starts a handle.
pub(crate) struct InodeRef(Arc<Inode>);

impl InodeRef {
    /// The first reference to an inode that no other thread knows.
    #[inline]
    pub(crate) fn first(inode: &Arc<Inode>) -> Self {
        inode.life.refs.store(1, Ordering::Relaxed);
        Self(Arc::clone(inode))
    }

    /// The shared inode, for holders of a pointer without a reference (a mapping's way back to its
    /// inode).
    pub(crate) fn shared(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl Deref for InodeRef {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl fmt::Debug for InodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InodeRef({})", self.0.ino)
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        self.0.life.refs.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        let life = &self.0.life;
        let before = life.refs.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a reference is dropped once");
        if before != 1 {
            return;
        }
        // An inode that waits in the queue of unused ones already needs no other thread's lines.
        // If the cache takes it from the queue now because it was referenced, then either this load
        // sees that, or the cache sees the count of zero and puts it back.
        if life.queued.load(Ordering::SeqCst) && !self.0.is_unlinked() {
            return;
        }
        if let Some(home) = self.0.home.upgrade() {
            home.unused(&self.0);
        }
    }
}

/// Counts a reference, under the shard's lock. `None` if the inode's eviction has begun.
#[inline]
pub(crate) fn reference(inode: &Arc<Inode>) -> Option<InodeRef> {
    if inode.life.dead.load(Ordering::Acquire) {
        return None;
    }
    inode.life.refs.fetch_add(1, Ordering::AcqRel);
    inode.life.touched.store(true, Ordering::Relaxed);
    Some(InodeRef(Arc::clone(inode)))
}
