//! Delayed blocks: space that is reserved for a file and not allocated yet.
//!
//! A file's delayed blocks are the bytes with the bit `DELALLOC` in an I/O tree. Its hooks keep the
//! account of them: a reservation with one block for each delayed block, or with the clusters that
//! they need ([`super::delayed_clusters`]). Allocation clears the bit
//! where it has entered an extent and consumes that part of the reservation; whatever else ends a
//! delayed range gives its part back. A part that begins or ends a longer range is a trim.
//!
//! The tree is the file's own, and not the one whose records lock ranges (`extant_range_lock`).
//! Locks come and go with each operation and are above the map; delayed blocks stay from a write to
//! its writeback and change under the lock of the extent status tree. In one tree every lock would
//! cut delayed records in two and join them again, and no fast path would find it empty.
//!
//! # Invariants
//! - The account is what the records add up to: blocks, ranges, and the reservation (J9, J10, J38).
//! - A delayed block is a hole on disk, whether or not the status tree knows it (J14).
//! - The sequence grows with every change (J16).
//!
//! # Locks
//! Changed with the lock of the extent status tree held, by `map_view` alone, so that a block
//! changes from delayed to allocated in one step. The tree's own lock is a leaf inside.
//!
//! # Concurrency
//! The sequence and the number of blocks can be read without a lock.

use extant_sync::OnceLock;
use extant_sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;
use std::sync::Arc;

use extant_extent_io_tree::{Bits, ByteRange, Hooks, IoTree, Totals, TreeStats, TreeTuning};
use extant_units::{BlockSize, Blocks};

use super::shared_clusters::SharedClusters;
use crate::state::alloc::{Reservation, SpaceCounts};

/// The file blocks that a map can have end here.
const MOST_BLOCKS: u64 = 1 << 32;

/// Outcome for the reservation of delayed blocks that end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReservationFate {
    /// They were allocated from it.
    Consume,
    /// Nothing was allocated from it.
    GiveBack,
}

/// A change of a map that ends what is delayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapChange {
    /// Outcome for the reservation.
    pub(crate) fate: ReservationFate,
    /// The blocks are mapped on disk now, so the file has their clusters.
    pub(crate) allocates: bool,
}

impl MapChange {
    /// Nothing is delayed or mapped afterwards.
    pub(crate) const TO_HOLE: Self = Self {
        fate: ReservationFate::GiveBack,
        allocates: false,
    };

    /// The bit that ends, and what steers its hook: in clusters, the hook leaves the reservation
    /// alone.
    fn bits(self, cluster_bits: u32) -> Bits {
        let steers = match self.fate {
            _ if cluster_bits > 0 => Bits::empty(),
            ReservationFate::Consume => Bits::ADD_INODE_BYTES,
            ReservationFate::GiveBack => Bits::CLEAR_DATA_RESV,
        };
        Bits::DELALLOC | steers
    }
}

/// State that the trees of all files of a mount share.
pub(crate) struct DelayedTrees {
    counts: Arc<SpaceCounts>,
    block_size: BlockSize,
    /// log2 of the blocks of a cluster.
    pub(super) cluster_bits: u32,
    tuning: TreeTuning,
    /// Counters of trees that are gone.
    past: Arc<Totals>,
}

impl DelayedTrees {
    /// For a volume with these counters and blocks.
    pub(crate) fn new(
        counts: &Arc<SpaceCounts>,
        block_size: BlockSize,
        tuning: TreeTuning,
    ) -> Self {
        Self {
            counts: Arc::clone(counts),
            block_size,
            cluster_bits: 0,
            tuning,
            past: Arc::default(),
        }
    }

    /// The same, of a volume with clusters of `1 << cluster_bits` blocks.
    pub(crate) fn in_clusters(self, cluster_bits: u32) -> Self {
        Self {
            cluster_bits,
            ..self
        }
    }

    /// Returns the counters of trees whose inodes are not in memory any more.
    pub(crate) fn past(&self) -> TreeStats {
        self.past.get()
    }
}

/// One inode's delayed blocks; see the module.
#[derive(Default)]
pub(crate) struct DelayedSpace {
    /// There from the first reservation on.
    tree: OnceLock<IoTree<Account>>,
    published: Arc<Published>,
}

/// Values that are read without a lock; written by the hooks.
#[derive(Default)]
struct Published {
    sequence: AtomicU64,
    blocks: AtomicU64,
    reserved: AtomicU64,
}

/// The account of a tree.
pub(super) struct Account {
    block_size: BlockSize,
    cluster_bits: u32,
    /// One block for each delayed block, or the clusters that they need.
    pub(super) reserved: Reservation,
    /// Clusters that need none.
    pub(super) shared: SharedClusters,
    /// Delayed blocks.
    blocks: u64,
    /// Records.
    ranges: u64,
    published: Arc<Published>,
}

impl Account {
    /// Blocks of `range`, which has whole ones.
    fn blocks_of(&self, range: ByteRange) -> u64 {
        debug_assert!(
            range.start().is_multiple_of(self.block_size.bytes_u64())
                && range.bytes().is_multiple_of(self.block_size.bytes_u64()),
            "whole blocks are delayed"
        );
        range.bytes() >> self.block_size.log2()
    }

    pub(super) fn publish(&self) {
        let sequence = self.published.sequence.load(Ordering::Relaxed);
        self.published.blocks.store(self.blocks, Ordering::Relaxed);
        let reserved = self.reserved.blocks().get();
        self.published.reserved.store(reserved, Ordering::Relaxed);
        self.published
            .sequence
            .store(sequence + 1, Ordering::Release);
    }

    /// The one check of the account: the reservation, the blocks and the ranges against `records`
    /// and against what was published (J9, J38).
    fn verify(&self, records: &[(ByteRange, Bits)]) -> Result<(), String> {
        let blocks = records
            .iter()
            .map(|(range, _)| self.blocks_of(*range))
            .sum();
        let needed = self.clusters_of(records) - self.shared.count(0..u64::MAX);
        let needed = needed << self.cluster_bits;
        let expected: (u64, u64, u64) = (blocks, records.len() as u64, needed);
        let account = (self.blocks, self.ranges, self.reserved.blocks().get());
        let published = self.published.blocks.load(Ordering::Relaxed);
        if account != expected || published != blocks {
            return Err(format!(
                "{records:?}: blocks, ranges, reserved {account:?}, {published} shown (J9, J10)"
            ));
        }
        Ok(())
    }
}

impl Account {
    /// The clusters with a block of `records`.
    fn clusters_of(&self, records: &[(ByteRange, Bits)]) -> u64 {
        let bits = self.block_size.log2() + self.cluster_bits;
        let (mut count, mut next) = (0, 0);
        for (range, _) in records {
            let end = (range.last() >> bits) + 1;
            count += end - (range.start() >> bits).max(next);
            next = end;
        }
        count
    }
}

impl Hooks for Account {
    fn set(&mut self, range: ByteRange, had: Bits, bits: Bits, _control: Bits) {
        debug_assert!(had.is_empty() && bits == Bits::DELALLOC, "reserved twice");
        self.blocks += self.blocks_of(range);
        self.ranges += 1;
        debug_assert!(
            self.cluster_bits > 0 || self.blocks <= self.reserved.blocks().get(),
            "delayed before it was reserved (J9)"
        );
        self.publish();
    }

    fn clear(&mut self, range: ByteRange, _had: Bits, _bits: Bits, control: Bits) {
        let blocks = self.blocks_of(range);
        debug_assert!(blocks <= self.blocks && self.ranges > 0, "ended twice (J9)");
        self.blocks -= blocks;
        self.ranges -= 1;
        if control.contains(Bits::ADD_INODE_BYTES) {
            self.reserved.consume(Blocks::new(blocks));
        } else if control.contains(Bits::CLEAR_DATA_RESV) {
            self.reserved.give_back(Blocks::new(blocks));
        }
        debug_assert!(
            self.cluster_bits > 0 || self.reserved.blocks().get() == self.blocks,
            "one for each (J9)"
        );
        self.publish();
    }

    fn split(&mut self, _range: ByteRange, _bits: Bits, _at: u64) {
        self.ranges += 1;
    }

    fn merge(&mut self, _left: ByteRange, _right: ByteRange, _bits: Bits) {
        debug_assert!(self.ranges > 1, "two records become one (J38)");
        self.ranges -= 1;
    }
}

impl DelayedSpace {
    /// Grows with every change. Takes no lock.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.published.sequence.load(Ordering::Acquire)
    }

    /// Delayed blocks. Takes no lock.
    #[inline]
    pub(crate) fn blocks(&self) -> u64 {
        self.published.blocks.load(Ordering::Relaxed)
    }

    /// Blocks that are reserved for them. Takes no lock.
    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.published.reserved.load(Ordering::Relaxed)
    }

    /// Returns the tree's counters.
    pub(crate) fn stats(&self) -> TreeStats {
        self.tree.get().map_or(TreeStats::default(), IoTree::stats)
    }

    /// Makes `blocks` delayed, none of which is. `reservation` holds what they need
    /// ([`DelayedSpace::to_reserve`]).
    pub(crate) fn add(
        &self,
        of: &DelayedTrees,
        blocks: Range<u64>,
        (reservation, allocated): (Reservation, &[u64]),
    ) {
        debug_assert_eq!(
            reservation.blocks(),
            self.to_reserve(of, &blocks, allocated)
        );
        let tree = self.tree.get_or_init(|| self.new_tree(of));
        let shared = self.newly_shared(of, &blocks, allocated);
        if let Some(range) = bytes(&blocks, of.block_size) {
            tree.set_accounted(range, Bits::DELALLOC, |account| {
                account.reserved.absorb(reservation);
                account.shared.extend(shared);
            });
        }
    }

    /// Ends the delayed parts of `blocks` as `change` says. Returns how many blocks those were.
    pub(crate) fn end(&self, of: &DelayedTrees, blocks: Range<u64>, change: MapChange) -> u64 {
        let Some(tree) = self.tree.get().filter(|_| self.blocks() > 0) else {
            return 0;
        };
        let before = self.blocks();
        let Some(range) = bytes(&blocks, of.block_size) else {
            return 0;
        };
        let clear = || tree.clear(range, change.bits(of.cluster_bits));
        match of.cluster_bits {
            0 => clear(),
            _ => self.end_in_clusters(of, &blocks, change, clear),
        }
        before - self.blocks()
    }

    /// Calls `look` with the account, if there is one.
    pub(super) fn with_account<R>(&self, look: impl FnOnce(&mut Account) -> R) -> Option<R> {
        self.tree.get().map(|tree| tree.hooks(look))
    }

    /// The clusters with delayed blocks that need no reservation.
    pub(crate) fn shared_clusters(&self) -> Vec<u64> {
        let shared = self.with_account(|account| account.shared.iter().collect());
        shared.unwrap_or_default()
    }

    /// The longest delayed run that ends behind block `from`: its part from there on.
    pub(crate) fn run_from(&self, of: &DelayedTrees, from: u64) -> Option<Range<u64>> {
        let tree = self.tree.get().filter(|_| self.blocks() > 0)?;
        let bits = of.block_size.log2();
        let run = tree.find_run(from << bits, Bits::DELALLOC)?;
        let blocks = run.start() >> bits..(run.last() >> bits) + 1;
        debug_assert!(from < blocks.end, "{blocks:?} ends behind block {from}");
        Some(blocks)
    }

    /// Checks the account against the records, and returns the delayed runs.
    ///
    /// # Errors
    /// The two accounts that do not agree, in words.
    pub(crate) fn verify(&self, of: &DelayedTrees) -> Result<Vec<Range<u64>>, String> {
        let Some(tree) = self.tree.get() else {
            return Ok(Vec::new());
        };
        let records = tree.dump();
        tree.hooks(|account| account.verify(&records))?;
        let bits = of.block_size.log2();
        let run = |range: &ByteRange| range.start() >> bits..(range.last() >> bits) + 1;
        Ok(records.iter().map(|(range, _)| run(range)).collect())
    }

    fn new_tree(&self, of: &DelayedTrees) -> IoTree<Account> {
        let account = Account {
            block_size: of.block_size,
            cluster_bits: of.cluster_bits,
            reserved: Reservation::empty(&of.counts),
            shared: SharedClusters::default(),
            blocks: 0,
            ranges: 0,
            published: Arc::clone(&self.published),
        };
        IoTree::counted_with_hooks(of.tuning, account, &of.past)
    }
}

/// The bytes of `blocks`, as far as a file can have them; `None` if there are none.
fn bytes(blocks: &Range<u64>, block_size: BlockSize) -> Option<ByteRange> {
    let bits = block_size.log2();
    debug_assert!(blocks.start <= blocks.end, "{blocks:?}");
    let (start, end) = (blocks.start, blocks.end.min(MOST_BLOCKS));
    ByteRange::from_len(start << bits, end.checked_sub(start)? << bits)
}
