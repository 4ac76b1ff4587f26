//! The lock of a file's map, known to the check of the lock order.

use extant_lock_order::{Locked, Rank, lock};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the extent tree (`i_data_sem`): shared to walk, exclusive to change.
#[derive(Default)]
pub(crate) struct MapLock(RwLock<()>);

impl MapLock {
    /// Locks the map shared: it cannot change.
    #[track_caller]
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, ()>> {
        lock(Rank::Map, || self.0.read())
    }

    /// Locks the map exclusively.
    #[track_caller]
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, ()>> {
        lock(Rank::Map, || self.0.write())
    }
}
