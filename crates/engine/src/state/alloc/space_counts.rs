//! The volume's space counters: free, reserved, and held back.

use extant_sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::cell::Cell;
use std::sync::Arc;

use extant_counter::Counter;
use extant_units::Blocks;

use crate::state::alloc::dirty_bound::{left_free, note_refusal};

/// Upper bound of the pool, in clusters, which keeps writeback and extent conversion going on a
/// full volume.
const POOL_MAX: u64 = 4096;

extant_sync::thread_local! {
    /// The last claim of this thread was refused for the sake of what is dirty above alone.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the last claim of this thread would have found its blocks without the bound of
/// what is dirty above.
pub(crate) fn is_refused() -> bool {
    REFUSED.get()
}

/// On whose behalf space is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimant {
    /// An ordinary user.
    User,
    /// Root, or a user to which the mount options open root's reserve.
    Privileged,
    /// Metadata that delayed data needs at writeback. May use root's reserve and the pool.
    Pool,
}

/// Free and reserved blocks, free inodes and directories of the volume.
///
/// `available` is free minus reserved. Claims are made against it in one atomic step, so the sum of
/// all reservations never exceeds the free blocks (J12).
#[derive(Debug, Default)]
pub(crate) struct SpaceCounts {
    /// Free blocks in the bitmaps, those freed by transactions that are not durable included.
    free: AtomicU64,
    /// Blocks reserved for delayed allocation.
    reserved: AtomicU64,
    /// Free blocks that are not reserved.
    available: AtomicU64,
    /// Blocks that were lost while they were reserved. They leave the counts when the reservation
    /// is given back.
    owed: AtomicU64,
    /// Bound of what a cache above the engine holds dirty ([`crate::state::alloc::dirty_bound`]).
    dirty: Arc<AtomicU64>,
    /// Blocks reserved for root. A grow raises them.
    root_reserved: AtomicU64,
    /// Blocks reserved for metadata at writeback.
    pool: u64,
    /// log2 of the blocks that are claimed at once.
    cluster_bits: u32,
    /// Free inodes at the mount.
    inodes_at_mount: u64,
    /// Inodes allocated or lost since. Every thread that creates a file counts one, so no two write
    /// a common word.
    inodes_used: Counter,
    /// Inodes freed since, and those of groups that were added.
    inodes_freed: Counter,
    dirs: AtomicU64,
    /// Reservations that were dropped while they held blocks. Each is a bug.
    leaked: AtomicU64,
}

impl SpaceCounts {
    /// Counters of a volume with `free` blocks, `root_reserved` of them for root only. The pool is
    /// a fiftieth of `total`, which is the volume's size, or zero on volumes without extent trees.
    pub(crate) fn new(
        total: Blocks,
        free: Blocks,
        root_reserved: Blocks,
        free_inodes: u64,
        dirs: u64,
    ) -> Self {
        Self {
            free: AtomicU64::new(free.get()),
            reserved: AtomicU64::new(0),
            available: AtomicU64::new(free.get()),
            owed: AtomicU64::new(0),
            dirty: Arc::default(),
            root_reserved: AtomicU64::new(root_reserved.get()),
            pool: (total.get() / 50).min(POOL_MAX),
            cluster_bits: 0,
            inodes_at_mount: free_inodes,
            inodes_used: Counter::default(),
            inodes_freed: Counter::default(),
            dirs: AtomicU64::new(dirs),
            leaked: AtomicU64::new(0),
        }
    }

    /// The same counters, whose blocks are claimed in clusters of `1 << cluster_bits`. The pool has
    /// a cluster for each block that it had, as far as that is a fiftieth of the volume, and one
    /// cluster at least.
    pub(crate) fn in_clusters(self, cluster_bits: u32, total: Blocks) -> Self {
        let (most, one) = (POOL_MAX << cluster_bits, 1 << cluster_bits);
        let pool = match (total.get(), cluster_bits) {
            (0, _) | (_, 0) => self.pool,
            (total, _) => ((total / 50).min(most) / one * one).max(one),
        };
        Self {
            pool,
            cluster_bits,
            ..self
        }
    }

    /// Takes up to `want` blocks from what is available to `claimant`, but at least `min`. Returns
    /// `None` if fewer than `min` are available.
    ///
    /// This is the only entry to space: the reservations of delayed allocation
    /// ([`crate::alloc::reserve`]) and the allocator's own requests both claim here. What a claim
    /// did not use comes back through [`SpaceCounts::unclaim`]. Quotas would therefore be charged
    /// here, with the claimed amount, and taken back in `unclaim`.
    pub(crate) fn claim(&self, claimant: Claimant, min: u64, want: u64) -> Option<u64> {
        REFUSED.set(false);
        self.claim_after(claimant, (min, want), || {})
    }

    /// The same. Calls `meanwhile` once it has read what it must leave, before it takes blocks.
    fn claim_after(
        &self,
        claimant: Claimant,
        (min, want): (u64, u64),
        mut meanwhile: impl FnMut(),
    ) -> Option<u64> {
        let grant = |available: u64, left: u64| {
            let granted = available.saturating_sub(left).min(want);
            let granted = granted >> self.cluster_bits << self.cluster_bits;
            (granted >= min && granted > 0).then_some(granted)
        };
        loop {
            let left = self.blocks_to_leave(claimant);
            meanwhile();
            let mut granted = 0;
            let taken = self.available.fetch_update(SeqCst, SeqCst, |available| {
                granted = grant(available, left)?;
                Some(available - granted)
            });
            let before = match taken {
                Ok(before) => before,
                Err(available) => {
                    if grant(available, self.blocks_held_back(claimant)).is_some() {
                        note_refusal();
                        REFUSED.set(true);
                    }
                    return None;
                }
            };
            debug_assert!((min..=want).contains(&granted), "a claim within its bounds");
            // The bound of what is dirty above may have risen meanwhile: then this claim was late.
            if self.blocks_to_leave(claimant) <= left.max(before - granted) {
                return Some(granted);
            }
            self.unclaim(granted);
        }
    }

    /// Returns `n` claimed blocks that were not used.
    pub(crate) fn unclaim(&self, n: u64) {
        let n = n - self.pay(n);
        let before = self.available.fetch_add(n, Relaxed);
        debug_assert!(
            before.checked_add(n).is_some(),
            "{n} blocks are given back twice (J12)"
        );
    }

    /// Takes `n` free blocks off the counts: their group is out of use. Those that are reserved by
    /// now follow when they are given back.
    pub(crate) fn lost(&self, n: u64) {
        let taken = self.claim(Claimant::Pool, 1, n).unwrap_or(0);
        self.used(taken);
        self.owed.fetch_add(n - taken, Relaxed);
    }

    /// Takes what is owed of `n` blocks that are given back off the free ones. Returns how many.
    fn pay(&self, n: u64) -> u64 {
        if self.owed.load(Relaxed) == 0 {
            return 0;
        }
        let mut paid = 0;
        let _ = self.owed.fetch_update(Relaxed, Relaxed, |owed| {
            paid = owed.min(n);
            Some(owed - paid)
        });
        self.used(paid);
        paid
    }

    /// Takes `n` free inodes of a group that is out of use off the counts.
    pub(crate) fn inodes_lost(&self, n: u64) {
        self.inodes_used.add(n);
    }

    /// Turns `n` claimed blocks into a reservation.
    pub(crate) fn begin_reserved(&self, n: u64) {
        self.reserved.fetch_add(n, Relaxed);
    }

    /// Ends the reservation of `n` blocks: they were allocated, or (with [`SpaceCounts::unclaim`])
    /// given back.
    pub(crate) fn end_reserved(&self, n: u64) {
        let before = self.reserved.fetch_sub(n, Relaxed);
        debug_assert!(n <= before, "more reservations end than were made (J9)");
    }

    /// Counts `n` claimed or reserved blocks as used.
    pub(crate) fn used(&self, n: u64) {
        let before = self.free.fetch_sub(n, Relaxed);
        debug_assert!(n <= before, "more blocks are used than were free (J12)");
    }

    /// Counts `n` blocks as freed.
    pub(crate) fn freed(&self, n: u64) {
        self.free.fetch_add(n, Relaxed);
        self.available.fetch_add(n, Relaxed);
    }

    /// Counts `n` blocks as freed, and reserved at once.
    pub(crate) fn freed_reserved(&self, n: u64) {
        self.free.fetch_add(n, Relaxed);
        self.begin_reserved(n);
    }

    /// Counts the free blocks and inodes of groups that were added. Root's reserve grows with the
    /// volume.
    pub(crate) fn grown(&self, free: Blocks, inodes: u64, root_reserved: Blocks) {
        self.freed(free.get());
        self.inodes_freed.add(inodes);
        self.root_reserved.store(root_reserved.get(), Relaxed);
    }

    /// Counts an inode as allocated.
    pub(crate) fn inode_used(&self, is_dir: bool) {
        self.inodes_used.bump();
        if is_dir {
            self.dirs.fetch_add(1, Relaxed);
        }
    }

    /// Counts an inode as freed.
    pub(crate) fn inode_freed(&self, is_dir: bool) {
        self.inodes_freed.bump();
        if is_dir {
            self.dirs.fetch_sub(1, Relaxed);
        }
    }

    /// Counts a reservation that was dropped while it held blocks.
    pub(crate) fn leak(&self) {
        self.leaked.fetch_add(1, Relaxed);
    }

    /// Number of reservations that were dropped while they held blocks.
    pub(crate) fn leaked(&self) -> u64 {
        self.leaked.load(Relaxed)
    }

    /// Free blocks, reserved ones included.
    pub(crate) fn free_blocks(&self) -> Blocks {
        Blocks::new(self.free.load(Relaxed))
    }

    /// Blocks reserved for delayed allocation.
    pub(crate) fn reserved_blocks(&self) -> Blocks {
        Blocks::new(self.reserved.load(Relaxed))
    }

    /// Free blocks that are not reserved.
    pub(crate) fn available(&self) -> Blocks {
        Blocks::new(self.available.load(Relaxed))
    }

    /// Free blocks that an ordinary user may claim.
    pub(crate) fn available_to_users(&self) -> Blocks {
        Blocks::new(self.room(false))
    }

    /// Returns whether an ordinary user's claim of a block would be granted now.
    pub(crate) fn has_room(&self) -> bool {
        self.available.load(SeqCst) > self.blocks_to_leave(Claimant::User)
    }

    /// The bound of what a cache above the engine holds dirty, in blocks.
    pub(crate) fn dirty_bound(&self) -> &Arc<AtomicU64> {
        &self.dirty
    }

    /// Blocks that are left to data of root, or of an ordinary user: that which is dirty in a cache
    /// above the engine included.
    pub(crate) fn room(&self, privileged: bool) -> u64 {
        let claimant = if privileged {
            Claimant::Privileged
        } else {
            Claimant::User
        };
        self.available
            .load(SeqCst)
            .saturating_sub(self.blocks_held_back(claimant))
    }

    /// Blocks that `claimant` may not take now.
    fn blocks_to_leave(&self, claimant: Claimant) -> u64 {
        let dirty = match claimant {
            Claimant::User | Claimant::Privileged => left_free(&self.dirty),
            Claimant::Pool => 0,
        };
        // Saturates, as both may be any number.
        self.blocks_held_back(claimant).saturating_add(dirty)
    }

    /// Blocks that `claimant` may not take, whatever is dirty above.
    fn blocks_held_back(&self, claimant: Claimant) -> u64 {
        match claimant {
            // Saturates, as the superblock may reserve any number.
            Claimant::User => self.root_reserved.load(Relaxed).saturating_add(self.pool),
            Claimant::Privileged => self.pool,
            Claimant::Pool => 0,
        }
    }

    /// Free inodes; while inodes are freed, maybe some too many.
    pub(crate) fn free_inodes(&self) -> u64 {
        // In this order: an inode that is freed and used again meanwhile is not missed twice.
        let used = self.inodes_used.get();
        let all = self.inodes_at_mount.saturating_add(self.inodes_freed.get());
        all.saturating_sub(used)
    }

    /// Directories.
    pub(crate) fn dirs(&self) -> u64 {
        self.dirs.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::alloc::DirtyBound;

    #[test]
    fn claims_leave_what_is_held_back() {
        // 1000 blocks: a pool of 20; 50 for root.
        let counts = SpaceCounts::new(Blocks::new(1000), Blocks::new(100), Blocks::new(50), 0, 0);
        assert_eq!(counts.claim(Claimant::User, 31, 31), None);
        assert_eq!(counts.claim(Claimant::User, 1, 500), Some(30));
        assert_eq!(counts.claim(Claimant::User, 1, 1), None);
        assert_eq!(counts.claim(Claimant::Privileged, 50, 50), Some(50));
        assert_eq!(counts.claim(Claimant::Privileged, 1, 1), None);
        assert_eq!(counts.claim(Claimant::Pool, 1, 50), Some(20));
        assert_eq!(counts.claim(Claimant::Pool, 1, 1), None);
        counts.unclaim(100);
        assert_eq!(counts.available(), counts.free_blocks());
    }

    #[test]
    fn lost_blocks_leave_the_counts_at_once_or_with_the_reservation() {
        let counts = SpaceCounts::new(Blocks::ZERO, Blocks::new(100), Blocks::ZERO, 0, 0);
        assert_eq!(counts.claim(Claimant::User, 70, 70), Some(70));
        counts.begin_reserved(70);
        counts.lost(50);
        assert_eq!(
            (counts.available().get(), counts.free_blocks().get()),
            (0, 70)
        );
        counts.end_reserved(30);
        counts.unclaim(30);
        assert_eq!(
            (counts.available().get(), counts.free_blocks().get()),
            (10, 50)
        );
        counts.end_reserved(40);
        counts.unclaim(40);
        assert_eq!(
            (counts.available().get(), counts.free_blocks().get()),
            (50, 50)
        );
    }

    #[test]
    fn claims_leave_what_is_dirty_above_and_its_writeback_spends_it() {
        let counts = SpaceCounts::new(Blocks::new(1000), Blocks::new(100), Blocks::ZERO, 0, 0);
        let bound = DirtyBound::of(counts.dirty_bound(), 12);
        bound.set((50 << 12) - 1);
        assert_eq!(counts.claim(Claimant::User, 31, 31), None);
        assert_eq!(counts.claim(Claimant::Privileged, 1, 500), Some(30));
        assert_eq!(counts.room(false), 50, "what is dirty has that");
        let spent = bound.spending(20 << 12, || counts.claim(Claimant::User, 1, 500));
        assert_eq!(spent, Some(20));
        assert_eq!(counts.claim(Claimant::User, 1, 1), None);
        let rest = bound.spending(u64::MAX, || counts.claim(Claimant::User, 30, 30));
        assert_eq!(rest, Some(30));
        assert_eq!(counts.claim(Claimant::Pool, 20, 20), Some(20));
        counts.unclaim(100);
        bound.set(0);
        assert_eq!(counts.claim(Claimant::User, 80, 80), Some(80));
    }

    #[test]
    fn a_refusal_is_put_down_to_the_bound_only_where_it_made_the_difference() {
        let counts = SpaceCounts::new(Blocks::new(1000), Blocks::new(100), Blocks::ZERO, 0, 0);
        let bound = DirtyBound::of(counts.dirty_bound(), 0);
        let claim = |min| DirtyBound::refuses(|| counts.claim(Claimant::User, min, min));
        bound.set(50);
        assert_eq!(claim(80), (None, true), "all but the pool of 20");
        assert_eq!(claim(81), (None, false), "more than there is");
        assert_eq!(claim(30), (Some(30), false));
        assert_eq!(claim(1), (None, true));
        bound.set(0);
        assert_eq!(claim(51), (None, false));
    }

    /// The front end raises the bound and finds room just before the claim takes its blocks.
    #[test]
    fn a_raised_bound_and_a_claim_do_not_both_get_the_same_blocks() {
        let counts = SpaceCounts::new(Blocks::ZERO, Blocks::new(100), Blocks::ZERO, 0, 0);
        let bound = DirtyBound::of(counts.dirty_bound(), 0);
        let mut fits = false;
        let claimed = counts.claim_after(Claimant::User, (60, 60), || {
            bound.set(60);
            fits = counts.room(false) >= 60;
        });
        assert!(fits && claimed.is_none());
        assert_eq!(counts.available().get(), 100, "it took nothing");
        assert_eq!(counts.claim(Claimant::User, 1, 60), Some(40));
    }

    #[test]
    fn claims_from_many_threads_never_exceed_what_is_free() {
        let counts = SpaceCounts::new(Blocks::new(40), Blocks::new(10_000), Blocks::ZERO, 0, 0);
        let total: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let counts = &counts;
                    scope.spawn(move || {
                        (0..2000)
                            .filter_map(|i| counts.claim(Claimant::Pool, 1, i % 7 + worker))
                            .sum::<u64>()
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .sum()
        });
        assert_eq!(total, 10_000);
        assert_eq!(counts.available(), Blocks::ZERO);
    }
}
