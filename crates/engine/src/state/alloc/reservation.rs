//! Reserved space as an object.

use std::sync::Arc;

use extant_units::Blocks;

use crate::state::alloc::{Claimant, SpaceCounts};
use crate::state::quota::InodeQuota;

/// A reservation of blocks for delayed allocation. It is consumed as blocks are allocated (with
/// `AllocRequest::reserved`) or given back. Dropping one that still holds blocks is a bug, which is
/// counted, logged and repaired.
#[derive(Debug)]
#[must_use = "reserved space must be consumed or given back"]
pub(crate) struct Reservation {
    counts: Arc<SpaceCounts>,
    blocks: u64,
    /// The quotas of the inode, where the same blocks are reserved, and how many bytes one has.
    quota: Option<(Arc<InodeQuota>, u64)>,
}

impl Reservation {
    /// An empty reservation, to merge others into.
    pub(crate) fn empty(counts: &Arc<SpaceCounts>) -> Self {
        Self {
            counts: Arc::clone(counts),
            blocks: 0,
            quota: None,
        }
    }

    /// Reserves exactly `n` blocks; `None` if fewer are available.
    pub(crate) fn take(counts: &Arc<SpaceCounts>, n: Blocks, privileged: bool) -> Option<Self> {
        let claimant = if privileged {
            Claimant::Privileged
        } else {
            Claimant::User
        };
        let mut reservation = Self::empty(counts);
        if !n.is_zero() {
            reservation.blocks = counts.claim(claimant, n.get(), n.get())?;
            debug_assert_eq!(reservation.blocks, n.get(), "all or nothing (J9)");
            counts.begin_reserved(reservation.blocks);
        }
        Some(reservation)
    }

    /// Reserves `n` blocks that have just been freed, and that no other request could take.
    pub(crate) fn of_freed(counts: &Arc<SpaceCounts>, n: Blocks) -> Self {
        let mut reservation = Self::empty(counts);
        reservation.blocks = n.get();
        counts.freed_reserved(n.get());
        reservation
    }

    /// Reserves the same blocks in the quotas of their inode, which have `block_bytes` each. False
    /// if a limit is in the way.
    pub(crate) fn join_quota(
        &mut self,
        quota: &Arc<InodeQuota>,
        block_bytes: u64,
        exempt: bool,
    ) -> bool {
        debug_assert!(self.quota.is_none(), "quotas of one inode");
        let fits = quota.reserve(self.blocks * block_bytes, exempt);
        if fits {
            self.quota = Some((Arc::clone(quota), block_bytes));
        }
        fits
    }

    /// Blocks still reserved.
    pub(crate) fn blocks(&self) -> Blocks {
        Blocks::new(self.blocks)
    }

    /// Takes over the blocks of `other`.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.counts, &other.counts),
            "reservations of one volume (J9)"
        );
        self.blocks += std::mem::take(&mut other.blocks);
        if self.quota.is_none() {
            self.quota = other.quota.take();
        }
    }

    /// Ends the reservation of `n` blocks that were allocated with `AllocRequest::reserved`. `n` is
    /// at most what is held. In quotas a claim
    /// ([`SpaceClaim::of_reserved`](crate::state::quota::SpaceClaim)) has ended it.
    pub(crate) fn consume(&mut self, n: Blocks) {
        let n = self.lower(n);
        self.counts.end_reserved(n);
    }

    /// Gives `n` reserved blocks back. `n` is at most what is held.
    pub(crate) fn give_back(&mut self, n: Blocks) {
        let n = self.lower(n);
        self.counts.end_reserved(n);
        self.counts.unclaim(n);
        if let Some((quota, bytes)) = &self.quota {
            quota.give_back(n * bytes);
        }
    }

    fn lower(&mut self, n: Blocks) -> u64 {
        debug_assert!(n.get() <= self.blocks, "more than was reserved");
        let n = n.get().min(self.blocks);
        self.blocks -= n;
        n
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.blocks != 0 {
            tracing::error!(blocks = self.blocks, "a reservation was dropped while full");
            self.counts.leak();
            self.give_back(Blocks::new(self.blocks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_kept_given_back_or_repaired() {
        let counts = Arc::new(SpaceCounts::new(
            Blocks::ZERO,
            Blocks::new(100),
            Blocks::ZERO,
            0,
            0,
        ));
        let mut all = Reservation::empty(&counts);
        for _ in 0..3 {
            all.absorb(Reservation::take(&counts, Blocks::new(30), false).unwrap());
        }
        assert!(Reservation::take(&counts, Blocks::new(11), false).is_none());
        assert_eq!(
            (all.blocks().get(), counts.reserved_blocks().get()),
            (90, 90)
        );
        counts.used(40);
        all.consume(Blocks::new(40));
        assert_eq!(counts.reserved_blocks().get(), 50);
        assert_eq!(counts.available().get(), 10);
        all.give_back(Blocks::new(20));
        drop(all);
        assert_eq!(counts.reserved_blocks().get(), 0);
        assert_eq!(counts.available(), counts.free_blocks());
        assert_eq!(counts.leaked(), 1);
    }
}
