//! The lock of a file's map, with a note of where it stands in the lock order.

use extant_lock_order::{Locked, Rank, lock};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the extent tree (`i_data_sem`): read to walk, write to change.
#[derive(Default)]
pub(crate) struct MapLock(RwLock<()>);

impl MapLock {
    /// Keeps the map as it is.
    #[track_caller]
    pub(crate) fn read(&self) -> Locked<RwLockReadGuard<'_, ()>> {
        lock(Rank::Map, || self.0.read())
    }

    /// Keeps everybody else from looking.
    #[track_caller]
    pub(crate) fn write(&self) -> Locked<RwLockWriteGuard<'_, ()>> {
        lock(Rank::Map, || self.0.write())
    }
}
