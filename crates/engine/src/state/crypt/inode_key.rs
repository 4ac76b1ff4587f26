//! The key of one encrypted inode, derived from a master key.

use std::fmt;
use std::sync::Arc;

use extant_crypt::{ContentsCipher, Context, KeyId, NameCipher};
use extant_sync::RwLock;
use extant_sync::atomic::{AtomicBool, Ordering};

/// The use of an inode's key.
pub(crate) enum Cipher {
    /// The data of a regular file.
    Contents(ContentsCipher),
    /// The names in a directory, or the target of a symbolic link.
    Names(NameCipher),
}

/// The key of an encrypted inode, and what it was derived by. Wiped when its last user drops it.
pub(crate) struct InodeKey {
    /// Policy and nonce, as the inode's attribute has them.
    pub(crate) context: Context,
    /// The key, ready for use.
    pub(crate) cipher: Cipher,
}

/// Place of an inode's key. Filled at first use and under the lock of the [`super::KeyRing`]. It is
/// emptied when the master key is removed: a directory's under its `lock`, exclusively, a link's at
/// any time; a regular file keeps its key for as long as it is in memory, as it may have data that
/// is not on the device.
///
/// # Locks
/// A leaf of its own.
#[derive(Default)]
pub(crate) struct InodeKeyCell {
    key: RwLock<Option<Arc<InodeKey>>>,
    /// The inode was found in an encrypted directory, and does not have its policy.
    misplaced: AtomicBool,
}

impl fmt::Debug for InodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InodeKey")
            .field("key", &self.context.policy.key)
            .finish_non_exhaustive()
    }
}

impl InodeKeyCell {
    /// The key, if it was derived.
    #[inline]
    pub(crate) fn get(&self) -> Option<Arc<InodeKey>> {
        self.key.read().clone()
    }

    /// Fills the place, unless another thread has; returns what is there.
    pub(crate) fn fill(&self, key: InodeKey) -> Arc<InodeKey> {
        let mut place = self.key.write();
        Arc::clone(place.get_or_insert_with(|| Arc::new(key)))
    }

    /// Empties the place.
    pub(crate) fn clear(&self) {
        *self.key.write() = None;
    }

    /// Returns whether the key was derived from the master key `id`.
    pub(crate) fn is_of(&self, id: &KeyId) -> bool {
        let place = self.key.read();
        place
            .as_ref()
            .is_some_and(|key| key.context.policy.key == *id)
    }

    /// Notes that the inode was found where it must not be.
    pub(crate) fn note_misplaced(&self) {
        self.misplaced.store(true, Ordering::Relaxed);
    }

    /// Returns whether it was.
    pub(crate) fn is_misplaced(&self) -> bool {
        self.misplaced.load(Ordering::Relaxed)
    }
}
