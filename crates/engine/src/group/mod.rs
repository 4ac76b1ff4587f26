//! Block groups: descriptors, bitmaps, free maps.
//!
//! The table is read once at mount and kept decoded: 131,072 groups (16 TiB) take some 15 MiB.
//! Every change takes one group's lock, marks the bitmap and the descriptor under the caller's
//! handle, and updates the group's hints, which searches read without a lock.
//!
//! # Invariants
//! Under a group's lock:
//! - `desc` is what the descriptor table holds in the running transaction; its counts equal the
//!   bitmaps'.
//! - A loaded [`FreeMap`] has every bit of the block bitmap set, and those of held blocks.
//! - `hints.usable` is the map's usable count, or the descriptor's free count while no map is
//!   loaded. `hints.longest` is at least the length of the longest usable run.
//!
//! # Locks
//! One lock per group, never two at once. A bitmap may be read from the device under it.

mod bitmaps;
mod free_map;
mod load_groups;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use extant_disk::group_desc::GroupDesc;
use extant_jbd2::{BlockCache, Handle};
use extant_units::{Group, Ino, Pblk};
use parking_lot::{Mutex, MutexGuard};

pub(crate) use self::bitmaps::Bitmaps;
pub(crate) use self::free_map::FreeMap;
pub(crate) use self::load_groups::Totals;
use crate::types::error::{Error, Location, Result};
use crate::volume::layout::Layout;

/// All block groups.
pub(crate) struct GroupTable {
    groups: Box<[GroupCell]>,
    /// Groups whose free map is in memory.
    loaded: AtomicU32,
    /// Upper bound of the number of maps in memory.
    map_budget: u32,
    /// Where the last sweep for maps to drop ended.
    sweep: AtomicU32,
}

/// One group.
struct GroupCell {
    inode_table: Pblk,
    hints: Hints,
    state: Mutex<GroupState>,
}

/// What searches read without the lock. Exact while the lock is free, except for `longest`.
#[derive(Default, Debug)]
pub(crate) struct Hints {
    /// Blocks that may be handed out now.
    pub(crate) usable: AtomicU32,
    /// At least the length of the longest usable run.
    pub(crate) longest: AtomicU32,
    /// Whether the free map is in memory.
    pub(crate) loaded: AtomicBool,
    /// Free inodes.
    pub(crate) free_inodes: AtomicU32,
    /// Directories.
    pub(crate) used_dirs: AtomicU32,
}

/// One group's changing state.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// The descriptor.
    pub(crate) desc: GroupDesc,
    /// The free map: loaded when the first block is allocated or freed.
    pub(crate) map: Option<FreeMap>,
    /// The device was told of all free runs of at least this many blocks.
    pub(crate) trimmed: Option<u32>,
    /// A bitmap of the group is damaged: nothing is allocated here any more.
    pub(crate) broken: bool,
}

/// The location of an inode on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeLocation {
    /// The block of the inode table.
    pub(crate) block: Pblk,
    /// The inode's first byte in that block.
    pub(crate) offset: usize,
}

/// A locked group.
pub(crate) struct LockedGroup<'a> {
    /// The group's number.
    pub(crate) group: Group,
    /// Its state.
    pub(crate) state: MutexGuard<'a, GroupState>,
    /// Its hints.
    pub(crate) hints: &'a Hints,
    table: &'a GroupTable,
}

impl GroupTable {
    fn cell(&self, group: Group) -> Result<&GroupCell> {
        self.groups
            .get(group.index())
            .ok_or_else(|| Error::corrupt(Location::GroupDesc(group), "no such group"))
    }

    /// Locks `group`.
    ///
    /// # Errors
    /// There is no such group.
    pub(crate) fn lock(&self, group: Group) -> Result<LockedGroup<'_>> {
        let cell = self.cell(group)?;
        Ok(LockedGroup {
            group,
            state: cell.state.lock(),
            hints: &cell.hints,
            table: self,
        })
    }

    /// The hints of `group`; `None` past the last.
    #[inline]
    pub(crate) fn hints(&self, group: Group) -> Option<&Hints> {
        self.groups.get(group.index()).map(|cell| &cell.hints)
    }

    /// The location of inode `ino`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub(crate) fn inode_location(&self, layout: &Layout, ino: Ino) -> Result<InodeLocation> {
        let (group, index) = layout
            .group_of_inode(ino)
            .ok_or_else(|| Error::corrupt(Location::Inode(ino), "no such inode"))?;
        Ok(locate(layout, self.cell(group)?.inode_table, index))
    }

    /// Drops maps of groups that hold nothing back, until the budget is kept or a bounded number
    /// was examined. The caller holds no group lock.
    pub(crate) fn shrink_maps(&self) {
        let count = u32::try_from(self.groups.len()).unwrap_or(u32::MAX).max(1);
        for _ in 0..64 {
            if self.loaded.load(Relaxed) <= self.map_budget {
                return;
            }
            let at = self.sweep.fetch_add(1, Relaxed) % count;
            let Some(cell) = self.groups.get(at as usize) else {
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
                self.loaded.fetch_sub(1, Relaxed);
            }
        }
    }
}

/// The location of the inode at `index` of a table that starts at `table`.
pub(crate) fn locate(layout: &Layout, table: Pblk, index: u32) -> InodeLocation {
    let per_block = layout.inodes_per_block.max(1);
    InodeLocation {
        block: table.saturating_add(u64::from(index / per_block)),
        offset: (index % per_block) as usize * usize::from(layout.inode_size),
    }
}

impl LockedGroup<'_> {
    /// The free map, loaded if necessary.
    ///
    /// # Errors
    /// The bitmap cannot be read, or is damaged: the group is not used any more.
    pub(crate) fn map(&mut self, disk: &Bitmaps<'_>) -> Result<&mut FreeMap> {
        if self.state.map.is_none() {
            let map = match disk.load_map(self.group, &self.state.desc) {
                Ok(map) => map,
                Err(error) => {
                    self.give_up();
                    return Err(error);
                }
            };
            self.hints.longest.store(map.usable(), Relaxed);
            self.hints.loaded.store(true, Relaxed);
            self.table.loaded.fetch_add(1, Relaxed);
            self.state.map = Some(map);
        }
        self.state.map.as_mut().ok_or(Error::Invalid)
    }

    /// Takes the group out of use, as a bitmap is damaged.
    pub(crate) fn give_up(&mut self) {
        self.state.broken = true;
        self.hints.usable.store(0, Relaxed);
        self.hints.longest.store(0, Relaxed);
        self.hints.free_inodes.store(0, Relaxed);
    }

    /// Publishes the counts to lock-free readers. `longest` is a new upper bound, if one is known.
    pub(crate) fn publish(&self, longest: Option<u32>) {
        if self.state.broken {
            return;
        }
        let desc = &self.state.desc;
        let usable = self
            .state
            .map
            .as_ref()
            .map_or(desc.free_blocks, FreeMap::usable);
        self.hints.usable.store(usable, Relaxed);
        self.hints.free_inodes.store(desc.free_inodes, Relaxed);
        self.hints.used_dirs.store(desc.used_dirs, Relaxed);
        if let Some(longest) = longest {
            self.hints.longest.store(longest, Relaxed);
        }
    }

    /// Writes the descriptor into its block under `h`. One credit.
    ///
    /// # Errors
    /// The block cannot be read, or the journal has stopped.
    pub(crate) fn store_desc(
        &self,
        layout: &Layout,
        cache: &BlockCache,
        h: &mut Handle,
    ) -> Result<()> {
        let (block, offset) = layout.desc_location(self.group);
        let block = cache.read_unchecked(block)?;
        h.modify(&block, |bytes| {
            if let Some(bytes) = bytes.get_mut(offset..offset + layout.desc_size) {
                self.state
                    .desc
                    .store(bytes, self.group, &layout.group_checksum);
            }
        })?;
        Ok(())
    }
}
