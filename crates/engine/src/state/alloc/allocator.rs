//! The state of the allocators of blocks and inodes.

use extant_sync::atomic::AtomicU32;
use extant_sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use extant_blockdev::BlockDevice;
use extant_failpoint::ActiveFailpoint;
use extant_jbd2::BlockCache;
use extant_sync::{Mutex, MutexGuard};
use extant_units::Tid;

use crate::state::alloc::{Run, SpaceCounts, StreamTable};
use crate::state::group::{Bitmaps, GroupTable};
use crate::state::volume::{Layout, Stats, SystemZones};

/// The allocators' state, as far as only the file system uses it.
pub(crate) struct Allocator {
    pub(crate) core: Arc<AllocatorCore>,
    /// The space counters, which reservations share.
    pub(crate) counts: Arc<SpaceCounts>,
}

/// The part of the allocators that the journal's commit callbacks share.
pub(crate) struct AllocatorCore {
    /// Geometry.
    pub(crate) layout: Layout,
    /// Metadata blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// The device that is told of freed blocks (`discard`), if the mount asks for it.
    pub(crate) discard: Option<Arc<dyn BlockDevice>>,
    /// Groups.
    pub(crate) groups: Arc<GroupTable>,
    /// Blocks of the format itself.
    pub(crate) zones: Arc<SystemZones>,
    /// Free and reserved space.
    pub(crate) counts: Arc<SpaceCounts>,
    /// Counters.
    pub(crate) stats: Arc<Stats>,
    pub(crate) failpoint: ActiveFailpoint,
    pub(crate) pending: Pending,
    pub(crate) trimming: Trimming,
    pub(crate) streams: StreamTable,
    /// Mixed into the generations of new inodes. Moves with each new directory.
    pub(crate) generation: AtomicU32,
}

impl AllocatorCore {
    /// The bitmaps of all groups.
    pub(crate) fn disk(&self) -> Bitmaps<'_> {
        Bitmaps {
            layout: &self.layout,
            cache: &self.cache,
            zones: &self.zones,
            stats: &self.stats,
            failpoint: self.failpoint,
        }
    }
}

/// The parts of the file system that an [`Allocator`] shares.
pub(crate) struct Parts {
    /// See [`AllocatorCore`].
    pub(crate) layout: Layout,
    /// See [`AllocatorCore`].
    pub(crate) cache: Arc<BlockCache>,
    /// See [`AllocatorCore`].
    pub(crate) discard: Option<Arc<dyn BlockDevice>>,
    /// See [`AllocatorCore`].
    pub(crate) groups: Arc<GroupTable>,
    /// See [`AllocatorCore`].
    pub(crate) zones: Arc<SystemZones>,
    /// See [`AllocatorCore`].
    pub(crate) counts: Arc<SpaceCounts>,
    /// See [`AllocatorCore`].
    pub(crate) stats: Arc<Stats>,
    /// The failpoint that a test switches on.
    pub(crate) failpoint: ActiveFailpoint,
}

impl Allocator {
    /// The allocators over `parts`.
    pub(crate) fn new(parts: Parts) -> Self {
        let counts = Arc::clone(&parts.counts);
        let core = AllocatorCore {
            layout: parts.layout,
            cache: parts.cache,
            discard: parts.discard,
            groups: parts.groups,
            zones: parts.zones,
            counts: parts.counts,
            stats: parts.stats,
            failpoint: parts.failpoint,
            pending: Pending::default(),
            trimming: Trimming::default(),
            streams: StreamTable::default(),
            generation: AtomicU32::new(generation_seed()),
        };
        Self {
            core: Arc::new(core),
            counts,
        }
    }
}

/// The first generation number of this mount. It differs from mount to mount.
fn generation_seed() -> u32 {
    let now = extant_sync::time::system_now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.subsec_nanos() ^ u32::try_from(now.as_secs() & 0xFFFF_FFFF).unwrap_or(0)
}

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

/// Lists of freed runs by transaction.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) lists: Mutex<HashMap<Tid, Vec<Run>>>,
    pub(crate) blocks: AtomicU64,
}

impl Pending {
    /// Returns whether a commit would return no blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.load(Relaxed) == 0
    }
}

/// Number of blocks that wait for a commit.
#[cfg(test)]
impl Pending {
    pub(crate) fn blocks(&self) -> extant_units::Blocks {
        extant_units::Blocks::new(self.blocks.load(Relaxed))
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
