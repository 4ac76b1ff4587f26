//! A file's map as it is known, locked: what is on disk, and what is only in memory.
//!
//! ```text
//!    begin, writeback, SEEK_DATA, FIEMAP
//!                 |
//!              MapView ------------- one lock
//!              /      \
//!   extent status      I/O tree
//!   holes, extents     DELALLOC, with its reservation
//!   (a cache of        (in memory alone)
//!    the disk)
//! ```
//!
//! Each fact stands once. A delayed block is a hole in the extent status tree and has the bit in
//! the I/O tree; an allocation changes both in one step. The status tree may forget the hole: the
//! bit alone says that the block is delayed.
//!
//! # Invariants
//! - No block is delayed and allocated: the two parts change under one lock (J7, J14).
//! - Each part has a sequence of its own. A mapping of allocated blocks is stale when the map on
//!   disk has changed, one of a hole or of delayed blocks when either part has
//!   ([`MapView::cookie`]).
//!
//! # Locks
//! The status tree's lock, which a view holds, with the I/O tree's own one inside of it.

use extant_units::{Blocks, Lblk};

use crate::state::alloc::Reservation;
use crate::state::map::{
    DelayedSpace, DelayedTrees, ExtentStatus, MapChange, MapState, ReservationFate, Status,
    StatusCache, StatusGuard,
};

/// The known part of one inode's map.
#[derive(Default)]
pub(crate) struct KnownBlocks {
    /// The part on disk.
    status: ExtentStatus,
    /// The part in memory alone. Changed under the lock of `status`.
    delayed: DelayedSpace,
}

/// State that the maps of all inodes of a mount share.
pub(crate) struct SharedMaps {
    /// The bound on the memory of the extent status trees.
    pub(crate) status: StatusCache,
    /// State that the I/O trees of delayed blocks share.
    pub(crate) delayed: DelayedTrees,
}

/// The locked view; see the module.
pub(crate) struct MapView<'a> {
    status: StatusGuard<'a>,
    delayed: &'a DelayedSpace,
    trees: &'a DelayedTrees,
}

impl KnownBlocks {
    /// The cookie that a mapping in `state` has now; see [`MapView::cookie`]. Takes no lock.
    ///
    /// Both sequences only grow, so their sum is the same only if both are.
    #[inline]
    pub(crate) fn cookie(&self, state: MapState) -> u64 {
        match state {
            MapState::Written(_) | MapState::Unwritten(_) => self.disk_sequence(),
            MapState::Hole | MapState::Delayed => self.disk_sequence() + self.delayed.sequence(),
        }
    }

    /// Grows with every change of the map on disk. Takes no lock.
    #[inline]
    pub(crate) fn disk_sequence(&self) -> u64 {
        self.status.sequence()
    }

    /// The delayed blocks.
    #[inline]
    pub(crate) fn delayed(&self) -> &DelayedSpace {
        &self.delayed
    }
}

impl<'a> MapView<'a> {
    /// Locks what is `known` of a map.
    pub(crate) fn lock(shared: &'a SharedMaps, known: &'a KnownBlocks) -> Self {
        Self {
            status: known.status.lock(&shared.status),
            delayed: &known.delayed,
            trees: &shared.delayed,
        }
    }

    /// The cookie of a mapping in `state`: the sequence of what it depends on.
    pub(crate) fn cookie(&self, state: MapState) -> u64 {
        let disk = self.status.sequence();
        match state {
            MapState::Written(_) | MapState::Unwritten(_) => disk,
            MapState::Hole | MapState::Delayed => disk + self.delayed.sequence(),
        }
    }

    /// The sequence of all changes, of either part.
    pub(crate) fn sequence(&self) -> u64 {
        self.status.sequence() + self.delayed.sequence()
    }

    /// The known range that holds `lblk`, in one state from `lblk` on. Delayed blocks are known
    /// even where nothing is known of the disk.
    pub(crate) fn find(&mut self, lblk: Lblk) -> Option<Status> {
        let known = self.status.find(lblk);
        if known.is_some_and(|known| known.state != MapState::Hole) {
            return known;
        }
        let at = u64::from(lblk.get());
        match self.delayed.run_from(self.trees, at) {
            Some(run) if run.start <= at => Some(Status {
                state: MapState::Delayed,
                ..Status::hole(lblk, run.end)
            }),
            Some(run) => known?.cut(at, run.start),
            None => known,
        }
    }

    /// Returns whether a block of `from..to` is delayed.
    pub(crate) fn has_delayed(&self, from: u64, to: u64) -> bool {
        let run = self.delayed.run_from(self.trees, from);
        run.is_some_and(|run| run.start < to)
    }

    /// Remembers what the tree on disk says of `range`, where nothing is known yet.
    pub(crate) fn fill(&mut self, range: Status) {
        self.status.fill(range);
    }

    /// Makes `range` known as a change on disk, and ends what is delayed within. `fate` says what
    /// happens to the reservation.
    pub(crate) fn set(&mut self, range: Status, fate: ReservationFate) {
        self.status.set(range);
        let (from, to) = (u64::from(range.lblk.get()), range.end());
        let allocates = matches!(range.state, MapState::Written(_) | MapState::Unwritten(_));
        self.end_delayed(from, to, MapChange { fate, allocates });
        debug_assert!(
            !self.has_delayed(from, to),
            "delayed or on disk, not both (J7)"
        );
    }

    /// Makes `range`, whose blocks are on disk already, known in another state. So nothing within
    /// is delayed, and the tree of delayed blocks is not asked.
    pub(crate) fn convert(&mut self, range: Status) {
        debug_assert!(
            !self.has_delayed(u64::from(range.lblk.get()), range.end()),
            "delayed or on disk, not both (J7)"
        );
        self.status.set(range);
    }

    /// Blocks to reserve for `len` blocks from `lblk` on, before they become delayed. `allocated`
    /// has the clusters at the ends of this hole of which other blocks are mapped.
    pub(crate) fn to_reserve(&self, lblk: Lblk, len: u32, allocated: &[u64]) -> Blocks {
        let from = u64::from(lblk.get());
        let blocks = from..from + u64::from(len);
        self.delayed.to_reserve(self.trees, &blocks, allocated)
    }

    /// Returns whether a block of the file's cluster `cluster` is delayed.
    pub(crate) fn has_delayed_in(&self, cluster: u64) -> bool {
        self.delayed.has_delayed(self.trees, cluster)
    }

    /// `cluster`, which has delayed blocks, is not the file's any more: `reservation` holds it.
    pub(crate) fn reserve_again(&mut self, cluster: u64, reservation: Reservation) {
        self.delayed.reserve_again(cluster, reservation);
    }

    /// Makes `len` blocks from `lblk` on delayed: a hole of which no block is. `space` has what
    /// they need ([`MapView::to_reserve`]), and the clusters at their ends that are the file's.
    pub(crate) fn set_delayed(&mut self, lblk: Lblk, len: u32, space: (Reservation, &[u64])) {
        let from = u64::from(lblk.get());
        debug_assert!(
            self.status
                .find(lblk)
                .is_none_or(|known| known.state == MapState::Hole),
            "a delayed block is a hole on disk (J14)"
        );
        self.delayed
            .add(self.trees, from..from + u64::from(len), space);
    }

    /// Turns the delayed parts of `from..to` into holes and gives their reservation back. Returns
    /// how many blocks that were.
    pub(crate) fn drop_delayed(&mut self, from: u64, to: u64) -> u64 {
        self.end_delayed(from, to, MapChange::TO_HOLE)
    }

    /// Forgets what is known of `from..to`, as the tree on disk is about to change there. Delayed
    /// blocks within end; their reservation is given back.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        self.status.forget(from, to);
        self.drop_delayed(from, to);
    }

    /// The clusters with delayed blocks that are the file's already.
    pub(crate) fn shared_clusters(&self) -> Vec<u64> {
        self.delayed.shared_clusters()
    }

    /// All known ranges of the map on disk.
    pub(crate) fn on_disk(&self) -> impl Iterator<Item = Status> {
        self.status.iter()
    }

    /// Checks both parts, each for itself, and returns the delayed ranges.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub(crate) fn verify(&self) -> Result<Vec<Status>, String> {
        self.status.verify()?;
        let runs = self.delayed.verify(self.trees)?;
        let range = |run: std::ops::Range<u64>| {
            let lblk = u32::try_from(run.start).map_err(|error| error.to_string())?;
            Ok(Status {
                state: MapState::Delayed,
                ..Status::hole(Lblk::new(lblk), run.end)
            })
        };
        runs.into_iter().map(range).collect()
    }

    fn end_delayed(&self, from: u64, to: u64, change: MapChange) -> u64 {
        self.delayed.end(self.trees, from..to, change)
    }
}
