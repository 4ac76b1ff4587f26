//! The file's own lock as the checker sees it.

use extant_range_lock::{FileLock, HeldExclusively, HeldShared};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// As an inode's lock.
#[derive(Default)]
pub(crate) struct InodeLock {
    lock: RwLock<()>,
    exclusive: AtomicBool,
}

pub(crate) struct Shared<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

pub(crate) struct Exclusive<'a> {
    inode: &'a InodeLock,
    _guard: RwLockWriteGuard<'a, ()>,
}

impl InodeLock {
    pub(crate) fn read(&self) -> Shared<'_> {
        Shared {
            _guard: self.lock.read().unwrap(),
        }
    }

    pub(crate) fn write(&self) -> Exclusive<'_> {
        let guard = self.lock.write().unwrap();
        self.exclusive.store(true, Ordering::SeqCst);
        Exclusive {
            inode: self,
            _guard: guard,
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.inode.exclusive.store(false, Ordering::SeqCst);
    }
}

impl FileLock for InodeLock {
    fn is_exclusive(&self) -> bool {
        self.exclusive.load(Ordering::SeqCst)
    }
}

impl FileLock for Shared<'_> {
    fn is_exclusive(&self) -> bool {
        false
    }
}

impl HeldShared for Shared<'_> {}

impl HeldExclusively for Exclusive<'_> {}
