//! The account of delayed blocks where space is allocated in clusters of several blocks.
//!
//! A cluster is reserved once for all of its delayed blocks, and not at all if the file has it
//! already: blocks of it are mapped on disk. So the reservation is that of the clusters with a
//! delayed block, less those that are the file's (J10). The second are kept here: there are few, at
//! the ends of what is mapped.
//!
//! The records of the I/O tree are in blocks, and its hooks hear of one record at a time. Whether a
//! cluster has other delayed blocks says the tree itself, so these accounts change after it, while
//! the lock of the extent status tree, which is held, keeps both from being seen in between.

use std::ops::Range;

use extant_units::Blocks;

use super::delayed_space::{Account, DelayedSpace, DelayedTrees};
use super::{MapChange, ReservationFate};
use crate::state::alloc::Reservation;

impl DelayedTrees {
    /// The clusters that `blocks` touch.
    pub(super) fn clusters_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let bits = self.cluster_bits;
        blocks.start >> bits..blocks.end.div_ceil(1 << bits)
    }
}

/// The first and the last of `clusters`.
fn ends(clusters: &Range<u64>) -> impl Iterator<Item = u64> {
    let last = clusters.end.saturating_sub(1);
    let first = (clusters.start < last).then_some(clusters.start);
    first
        .into_iter()
        .chain((!clusters.is_empty()).then_some(last))
}

impl DelayedSpace {
    /// Blocks to reserve before `blocks`, a hole, become delayed. `allocated` has the clusters at
    /// its ends of which other blocks are mapped.
    pub(crate) fn to_reserve(
        &self,
        of: &DelayedTrees,
        blocks: &Range<u64>,
        allocated: &[u64],
    ) -> Blocks {
        let clusters = of.clusters_of(blocks);
        let all = clusters.end - clusters.start;
        let paid = |&cluster: &u64| allocated.contains(&cluster) || self.has_delayed(of, cluster);
        let paid = match of.cluster_bits {
            0 => 0,
            _ => ends(&clusters).filter(paid).count() as u64,
        };
        Blocks::new((all - paid) << of.cluster_bits)
    }

    /// The clusters at the ends of `blocks` that are in `allocated` and have no delayed block.
    pub(super) fn newly_shared(
        &self,
        of: &DelayedTrees,
        blocks: &Range<u64>,
        allocated: &[u64],
    ) -> Vec<u64> {
        let clusters = of.clusters_of(blocks);
        let is_new =
            |&cluster: &u64| allocated.contains(&cluster) && !self.has_delayed(of, cluster);
        ends(&clusters).filter(is_new).collect()
    }

    /// Returns whether a block of `cluster` is delayed.
    pub(crate) fn has_delayed(&self, of: &DelayedTrees, cluster: u64) -> bool {
        let (from, to) = (cluster << of.cluster_bits, (cluster + 1) << of.cluster_bits);
        self.run_from(of, from).is_some_and(|run| run.start < to)
    }

    /// As [`DelayedSpace::end`], where a cluster has several blocks.
    pub(super) fn end_in_clusters(
        &self,
        of: &DelayedTrees,
        blocks: &Range<u64>,
        change: MapChange,
        clear: impl FnOnce(),
    ) {
        let clusters = of.clusters_of(blocks);
        let before = self.reserved_clusters(of, clusters.clone());
        clear();
        let left: Vec<u64> = ends(&clusters)
            .filter(|&cluster| self.has_delayed(of, cluster))
            .collect();
        self.with_account(|account| {
            let shared = &mut account.shared;
            shared.note(clusters.clone(), &left, change.allocates);
        });
        let after = self.reserved_clusters(of, clusters);
        debug_assert!(after <= before, "{after} clusters after {before} (J10)");
        let ended = Blocks::new(before.saturating_sub(after) << of.cluster_bits);
        self.with_account(|account| account.end_reserved(ended, change.fate));
    }

    /// `cluster` has been freed on disk, and its delayed blocks need it: `reservation` has as many
    /// blocks.
    pub(crate) fn reserve_again(&self, cluster: u64, reservation: Reservation) {
        self.with_account(|account| {
            let was_shared = account.shared.remove(cluster);
            debug_assert!(was_shared, "cluster {cluster} was the file's (J10)");
            account.absorb(reservation);
        });
    }

    /// The clusters with a delayed block among `clusters` that are reserved.
    fn reserved_clusters(&self, of: &DelayedTrees, clusters: Range<u64>) -> u64 {
        let bits = of.cluster_bits;
        let (mut at, mut delayed) = (clusters.start, 0);
        // Each round goes on behind a run.
        while let Some(run) = self.run_from(of, at << bits) {
            let touched = of.clusters_of(&run);
            let from = touched.start.max(at);
            if from >= clusters.end {
                break;
            }
            let to = touched.end.min(clusters.end);
            delayed += to - from;
            at = to;
        }
        let shared = self.with_account(|account| account.shared.count(clusters));
        delayed - shared.unwrap_or(0).min(delayed)
    }
}

impl Account {
    /// Ends the reservation of `blocks`.
    fn end_reserved(&mut self, blocks: Blocks, fate: ReservationFate) {
        match fate {
            ReservationFate::Consume => self.reserved.consume(blocks),
            ReservationFate::GiveBack => self.reserved.give_back(blocks),
        }
        self.publish();
    }

    fn absorb(&mut self, reservation: Reservation) {
        self.reserved.absorb(reservation);
        self.publish();
    }
}
