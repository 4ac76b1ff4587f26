//! The volume's counters: what is free, what is promised, what is kept back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extant_units::Blocks;

/// Most blocks of the pool that keeps writeback and conversions going on a full volume.
const POOL_MAX: u64 = 4096;

/// Who claims space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claimant {
    /// Anybody.
    User,
    /// Root, and whom it let in: may use the root reserve.
    Privileged,
    /// Metadata that promised data needs: may use the root reserve and the pool.
    Pool,
}

/// Free and promised blocks, free inodes, directories of the volume.
///
/// `available` is free minus promised; it is what claims are made against, in one atomic step, so that the
/// sum of promises never exceeds what is free (J12).
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Free blocks in the bitmaps, blocks of transactions that are not durable yet included.
    free: AtomicU64,
    /// Blocks promised to delayed allocation.
    reserved: AtomicU64,
    /// Free blocks that are not promised.
    available: AtomicU64,
    /// Blocks kept for root.
    root_reserved: u64,
    /// Blocks kept for metadata at writeback.
    pool: u64,
    free_inodes: AtomicU64,
    dirs: AtomicU64,
    /// Promises that were forgotten: bugs.
    leaked: AtomicU64,
}

impl Counts {
    /// Counters of a volume with `free` blocks, `root_reserved` of them only for root. The pool is a fiftieth of
    /// `total`: the volume's blocks, or zero where files have no extents to split.
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
            root_reserved: root_reserved.get(),
            pool: (total.get() / 50).min(POOL_MAX),
            free_inodes: AtomicU64::new(free_inodes),
            dirs: AtomicU64::new(dirs),
            leaked: AtomicU64::new(0),
        }
    }

    /// The only way to space: delayed allocation's promises ([`super::reserve`]) and the allocator's own requests both claim here,
    /// and whatever a claim was not used for comes back through [`Counts::unclaim`].
    ///
    /// So this is where quotas belong, should they be built: the owner's quota is charged first, in the claim's amount, and the
    /// charge taken back if the claim fails; `unclaim` takes it back as well. A promise that becomes allocated space
    /// ([`Counts::end_promise`] alone) was charged when it was made, and is only moved from reserved to used.
    ///
    /// Takes up to `want` blocks from what is available to `who`, but at least `min`; `None` if there are not as many.
    pub(crate) fn claim(&self, who: Claimant, min: u64, want: u64) -> Option<u64> {
        let kept = self.kept(who);
        let mut granted = 0;
        self.available
            .fetch_update(Relaxed, Relaxed, |available| {
                granted = available.saturating_sub(kept).min(want);
                (granted >= min && granted > 0).then(|| available - granted)
            })
            .ok()?;
        Some(granted)
    }

    /// Returns `n` claimed blocks that were not used.
    pub(crate) fn unclaim(&self, n: u64) {
        self.available.fetch_add(n, Relaxed);
    }

    /// `n` blocks were claimed as a promise.
    pub(super) fn promise(&self, n: u64) {
        self.reserved.fetch_add(n, Relaxed);
    }

    /// A promise of `n` blocks ended: kept, or (with [`Counts::unclaim`]) given back.
    pub(super) fn end_promise(&self, n: u64) {
        self.reserved.fetch_sub(n, Relaxed);
    }

    /// `n` claimed or promised blocks are in use from now on.
    pub(super) fn used(&self, n: u64) {
        self.free.fetch_sub(n, Relaxed);
    }

    /// `n` blocks were freed.
    pub(super) fn freed(&self, n: u64) {
        self.free.fetch_add(n, Relaxed);
        self.available.fetch_add(n, Relaxed);
    }

    /// An inode was allocated.
    pub(super) fn inode_used(&self, is_dir: bool) {
        self.free_inodes.fetch_sub(1, Relaxed);
        self.dirs.fetch_add(u64::from(is_dir), Relaxed);
    }

    /// An inode was freed.
    pub(super) fn inode_freed(&self, is_dir: bool) {
        self.free_inodes.fetch_add(1, Relaxed);
        self.dirs.fetch_sub(u64::from(is_dir), Relaxed);
    }

    /// A reservation was dropped while full.
    pub(super) fn leak(&self) {
        self.leaked.fetch_add(1, Relaxed);
    }

    /// Reservations that were dropped while full.
    pub(crate) fn leaked(&self) -> u64 {
        self.leaked.load(Relaxed)
    }

    /// Free blocks, promised ones included.
    pub(crate) fn free_blocks(&self) -> Blocks {
        Blocks::new(self.free.load(Relaxed))
    }

    /// Blocks promised to delayed allocation.
    pub(crate) fn promised(&self) -> Blocks {
        Blocks::new(self.reserved.load(Relaxed))
    }

    /// Free blocks that are not promised.
    pub(crate) fn available(&self) -> Blocks {
        Blocks::new(self.available.load(Relaxed))
    }

    /// Free blocks that an ordinary user may take.
    pub(crate) fn available_to_users(&self) -> Blocks {
        let kept = self.root_reserved.saturating_add(self.pool);
        Blocks::new(self.available.load(Relaxed).saturating_sub(kept))
    }

    /// Blocks that [`Counts::claim`] would grant to root, or to an ordinary user.
    pub(crate) fn room(&self, privileged: bool) -> u64 {
        let who = if privileged {
            Claimant::Privileged
        } else {
            Claimant::User
        };
        self.available.load(Relaxed).saturating_sub(self.kept(who))
    }

    /// Blocks that `who` may not take.
    fn kept(&self, who: Claimant) -> u64 {
        match who {
            Claimant::User => self.root_reserved.saturating_add(self.pool),
            Claimant::Privileged => self.pool,
            Claimant::Pool => 0,
        }
    }

    /// Free inodes.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Relaxed)
    }

    /// Directories.
    pub(crate) fn dirs(&self) -> u64 {
        self.dirs.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_respect_what_is_kept_back() {
        // 1000 blocks: a pool of 20; 50 for root.
        let counts = Counts::new(Blocks::new(1000), Blocks::new(100), Blocks::new(50), 0, 0);
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
    fn claims_from_many_threads_never_exceed_what_is_free() {
        let counts = Counts::new(Blocks::new(40), Blocks::new(10_000), Blocks::ZERO, 0, 0);
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
