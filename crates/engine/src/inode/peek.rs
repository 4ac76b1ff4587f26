//! Looking at an inode's stored fields without bringing the inode into memory.
//!
//! # Concurrency
//! An inode that is not in memory is what its record in the inode table says: an inode is evicted
//! only when all of it is stored. One that is in memory may have more, such as a size that is not
//! on disk yet, so a record of that one may show a later change without an earlier one. Hence
//! [`InodeCache::peek`] does three things in this order:
//!
//! 1. Under the shard's lock: the inode is not in memory; note how many have entered the shard.
//! 2. Without the lock: read the record.
//! 3. Under the lock again: none has entered the shard since.
//!
//! So the inode was not in memory at any moment from 1 to 3, and the record says what the inode was
//! at each of them. What the last thread that had the inode stored is visible, as that thread took
//! the shard's lock to evict it.

use extant_units::Ino;

use super::{InodeCore, record};
use crate::state::inode::inode_ref::reference;
use crate::state::inode::{CacheSlot, InodeCache, InodeRef};
use crate::types::FileKind;
use crate::volume::Fs;

/// Result of a look at an inode.
pub(crate) enum Seen<R> {
    /// It is in memory.
    Inode(InodeRef),
    /// It is not; what its record was shown as.
    Record(R),
}

impl InodeCache {
    /// Inode `ino`, or what `show` makes of its record, without attributes in it, if that is in
    /// memory without the inode. `None` if neither is, the inode has no link, or anything is wrong
    /// with it: [`Fs::iget`] has the answer.
    pub(crate) fn peek<R>(
        &self,
        fs: &Fs,
        ino: Ino,
        show: impl FnOnce(FileKind, &InodeCore) -> R,
    ) -> Option<Seen<R>> {
        self.peek_by(ino, || record::peek(fs, ino, show))
    }

    /// The same, with `read` as step 2.
    pub(super) fn peek_by<R>(&self, ino: Ino, read: impl FnOnce() -> Option<R>) -> Option<Seen<R>> {
        let shard = self.shard(ino);
        let arrivals = {
            let state = shard.state.lock();
            match state.slot(ino) {
                None => state.arrivals(),
                Some(CacheSlot::Ready(inode)) if !inode.is_unlinked() && !inode.holds_value() => {
                    return reference(inode).map(Seen::Inode);
                }
                Some(_) => return None,
            }
        };
        let shown = read()?;
        (shard.state.lock().arrivals() == arrivals).then_some(Seen::Record(shown))
    }
}
