//! The master keys that callers have added to a mount.

use std::collections::BTreeMap;

use extant_crypt::{KeyId, MasterKey};
use extant_sync::RwLock;
use extant_sync::atomic::{AtomicUsize, Ordering};

/// The master keys of a mount, by the names that policies call them.
///
/// # Locks
/// One, shared to derive a key of an inode. Below it the place of that key
/// ([`super::InodeKeyCell`]).
#[derive(Default)]
pub(crate) struct KeyRing {
    /// `None`: the key was removed, and files in use have keys derived of it.
    keys: RwLock<BTreeMap<KeyId, Option<MasterKey>>>,
    /// Keys that are there.
    present: AtomicUsize,
}

/// State of a master key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MasterState {
    /// It was never added, or nothing is left of it.
    Absent,
    /// It is there.
    Present,
    /// It was removed while files in use had keys of it.
    Removed,
}

impl KeyRing {
    /// Returns whether no key is there.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.present.load(Ordering::Acquire) == 0
    }

    /// Adds `key` under `id`. Returns false if it was there.
    pub(crate) fn add(&self, id: KeyId, key: MasterKey) -> bool {
        let mut keys = self.keys.write();
        let place = keys.entry(id).or_default();
        let is_new = place.is_none();
        if is_new {
            *place = Some(key);
            self.present.fetch_add(1, Ordering::AcqRel);
        }
        is_new
    }

    /// Runs `derive` on the key `id`, if it is there. It is not removed meanwhile.
    pub(crate) fn with<R>(&self, id: &KeyId, derive: impl FnOnce(&MasterKey) -> R) -> Option<R> {
        let keys = self.keys.read();
        keys.get(id)?.as_ref().map(derive)
    }

    /// Wipes the key `id`. From the return on none is derived from it. Returns whether it was
    /// there.
    pub(crate) fn wipe(&self, id: &KeyId) -> bool {
        let mut keys = self.keys.write();
        let was_there = keys.get_mut(id).is_some_and(|place| place.take().is_some());
        if was_there {
            self.present.fetch_sub(1, Ordering::AcqRel);
        }
        was_there
    }

    /// Forgets that the key `id` was there, unless it was added again.
    pub(crate) fn forget(&self, id: &KeyId) {
        let mut keys = self.keys.write();
        if keys.get(id).is_some_and(Option::is_none) {
            keys.remove(id);
        }
    }

    /// Wipes all keys, and forgets them.
    pub(crate) fn clear(&self) {
        self.keys.write().clear();
        self.present.store(0, Ordering::Release);
    }

    /// The state of the key `id`.
    pub(crate) fn state(&self, id: &KeyId) -> MasterState {
        match self.keys.read().get(id) {
            None => MasterState::Absent,
            Some(None) => MasterState::Removed,
            Some(Some(_)) => MasterState::Present,
        }
    }
}
