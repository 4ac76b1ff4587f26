//! All block groups, and their locks.

use extant_sync::atomic::{AtomicU32, Ordering::Relaxed};

use extant_disk::damage::{GroupDamage, InodeDamage};
use extant_disk::group_desc::GroupDesc;
use extant_lock_order::{Rank, lock};
use extant_units::{Group, Ino};

use super::free_map::FreeMap;
use super::group_cells::{GroupCell, GroupCells};
use super::group_state::{Hints, InodeLocation, LostSpace, locate};
use super::locked_group::LockedGroup;
use crate::state::volume::Layout;
use crate::types::error::{Error, Location, Result};

/// All block groups.
pub(crate) struct GroupTable {
    pub(crate) cells: GroupCells,
    /// Groups whose free map is in memory.
    pub(crate) loaded: AtomicU32,
    /// Upper bound of the number of maps in memory.
    pub(crate) map_budget: u32,
    /// Free space of groups that were taken out of use.
    pub(crate) lost: LostSpace,
    /// The group at which the last sweep for maps to drop ended.
    pub(crate) sweep: AtomicU32,
}

impl GroupTable {
    fn cell(&self, group: Group) -> Result<&GroupCell> {
        self.cells
            .get(group)
            .ok_or_else(|| Error::corrupt(Location::GroupDesc(group), GroupDamage::Missing))
    }

    /// Locks `group`.
    ///
    /// # Errors
    /// There is no such group.
    #[track_caller]
    pub(crate) fn lock(&self, group: Group) -> Result<LockedGroup<'_>> {
        let cell = self.cell(group)?;
        Ok(LockedGroup {
            group,
            state: lock(Rank::Group, || cell.state.lock()),
            hints: &cell.hints,
            maps_loaded: &self.loaded,
            lost: &self.lost,
        })
    }

    /// Adds a group behind the last one, whose descriptor is `desc`. One thread at a time does so.
    pub(crate) fn add(&self, desc: GroupDesc) {
        self.cells.push(desc);
    }

    /// The hints of `group`; `None` past the last.
    #[inline]
    pub(crate) fn hints(&self, group: Group) -> Option<&Hints> {
        self.cells.get(group).map(|cell| &cell.hints)
    }

    /// The location of inode `ino`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub(crate) fn inode_location(&self, layout: &Layout, ino: Ino) -> Result<InodeLocation> {
        let (group, index) = layout
            .group_of_inode(ino)
            .ok_or_else(|| Error::corrupt(Location::Inode(ino), InodeDamage::Missing))?;
        Ok(locate(layout, self.cell(group)?.inode_table(), index))
    }

    /// Drops maps of groups that hold nothing back, until the budget is kept or a bounded number
    /// was examined. The caller holds no group lock.
    pub(crate) fn shrink_maps(&self) {
        let count = self.cells.len();
        debug_assert!(count > 0, "a volume has a group");
        for _ in 0..64 {
            if self.loaded.load(Relaxed) <= self.map_budget {
                return;
            }
            let at = self.sweep.fetch_add(1, Relaxed) % count;
            let Some(cell) = self.cells.get(Group::new(at)) else {
                return;
            };
            if !cell.hints.loaded.load(Relaxed) {
                continue;
            }
            let Some(mut state) = cell.state.try_lock() else {
                continue;
            };
            if state.map.as_ref().is_some_and(FreeMap::can_be_dropped) {
                state.map = None;
                cell.hints.loaded.store(false, Relaxed);
                let before = self.loaded.fetch_sub(1, Relaxed);
                debug_assert!(before > 0, "more maps are dropped than were loaded");
            }
        }
    }
}
