//! The lock of trimming, which an allocation without space waits for.

use parking_lot::{Mutex, MutexGuard};

/// Locked while a run of free blocks is withheld for the device.
#[derive(Default)]
pub(crate) struct Trimming(Mutex<()>);

impl Trimming {
    /// Holds a run, until the guard is dropped.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }

    /// Waits until no run is held. Returns whether one was. The caller holds no handle and no group
    /// lock: the thread that holds a run takes these.
    pub(crate) fn wait(&self) -> bool {
        let held = self.0.is_locked();
        if held {
            drop(self.0.lock());
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_free_is_not_waited_for() {
        let trimming = Trimming::default();
        assert!(!trimming.wait());
        drop(trimming.lock());
        assert!(!trimming.wait());
    }
}
