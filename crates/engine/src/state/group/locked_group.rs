//! A locked group: its free map, its hints, its descriptor's block.

use extant_sync::atomic::{AtomicU32, Ordering::Relaxed};

use extant_jbd2::{BlockCache, Handle};
use extant_lock_order::Locked;
use extant_sync::MutexGuard;
use extant_units::Group;

use super::bitmaps::Bitmaps;
use super::free_map::FreeMap;
use super::group_state::{GroupState, Hints, LostSpace};
use crate::state::volume::Layout;
use crate::types::error::{Error, Result};

/// A locked group.
pub(crate) struct LockedGroup<'a> {
    /// The group's number.
    pub(crate) group: Group,
    /// Its state.
    pub(crate) state: Locked<MutexGuard<'a, GroupState>>,
    /// Its hints.
    pub(crate) hints: &'a Hints,
    /// Groups of the volume whose free map is in memory.
    pub(crate) maps_loaded: &'a AtomicU32,
    /// Free space of groups that were taken out of use.
    pub(crate) lost: &'a LostSpace,
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
            debug_assert_eq!(
                map.usable(),
                self.state.desc.free_blocks,
                "nothing is held yet"
            );
            self.hints.longest.store(map.usable(), Relaxed);
            self.hints.loaded.store(true, Relaxed);
            self.maps_loaded.fetch_add(1, Relaxed);
            self.state.map = Some(map);
        }
        self.state.map.as_mut().ok_or(Error::Invalid)
    }

    /// Takes the group out of use, as a bitmap is damaged. What it has free is lost.
    pub(crate) fn give_up(&mut self) {
        if !std::mem::replace(&mut self.state.broken, true) {
            let desc = &self.state.desc;
            let lost = self.lost;
            lost.clusters.fetch_add(desc.free_blocks.into(), Relaxed);
            lost.inodes.fetch_add(desc.free_inodes.into(), Relaxed);
        }
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
            let bytes = bytes.get_mut(offset..offset + layout.desc_size);
            debug_assert!(bytes.is_some(), "a descriptor lies in one block");
            if let Some(bytes) = bytes {
                self.state
                    .desc
                    .store(bytes, self.group, &layout.group_checksum);
            }
        })?;
        Ok(())
    }
}
