//! The folio lock: [`FolioRef`] holds it shared, [`FolioGuard`] exclusively.
//!
//! # Invariants
//! * Bytes and state of a folio are read and changed through a guard only. A copy into or out of a
//!   folio happens under one guard, so a reader sees each folio whole.
//! * Every change of a dirty bit is accounted for before the guard is dropped (J4).
//!
//! # Locks
//! Folio locks of one address space are taken in ascending order. An exclusive guard can be made
//! shared without letting a writer in between ([`FolioGuard::downgrade`]).

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Range;

use extant_lock_order::{Held, Rank, taking, took};

use crate::block_bits::BlockBits;
use crate::folio::{Folio, FolioOwner, FolioState};
use crate::pinnable::PinnableMemory;
use crate::private::FolioPrivate;
use extant_sync::atomic::Ordering;
use extant_sync::{RwLockReadGuard, RwLockWriteGuard};

/// Says that the calling thread holds a folio lock of the file at hand, shared or exclusively.
///
/// Functions that must run under a folio lock take this as an argument. It borrows the guard.
#[derive(Clone, Copy)]
pub struct FolioLocked<'a>(PhantomData<&'a ()>);

/// A folio held shared: its bytes and state do not change.
pub struct FolioRef<'a> {
    folio: &'a Folio,
    state: RwLockReadGuard<'a, FolioState>,
    #[allow(dead_code, reason = "held")]
    held: Held,
}

impl<'a> FolioRef<'a> {
    /// Locks `folio`, whose address space gives its folios this rank.
    #[inline]
    pub(crate) fn lock(folio: &'a Folio, rank: Rank) -> Self {
        let held = taking(rank);
        Self {
            folio,
            state: folio.state.read(),
            held,
        }
    }

    /// The folio.
    #[inline]
    pub fn folio(&self) -> &'a Folio {
        self.folio
    }

    /// Proof that this lock is held.
    #[inline]
    pub fn locked(&self) -> FolioLocked<'_> {
        FolioLocked(PhantomData)
    }

    /// Returns whether the folio is still part of its address space.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        self.state.attached
    }

    /// The whole folio's bytes. Those of blocks that are not uptodate mean nothing.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.state.memory.bytes()
    }

    pub(crate) fn memory(&self) -> &PinnableMemory {
        &self.state.memory
    }

    /// Returns whether every block that `bytes` touches is uptodate.
    #[inline]
    pub fn is_uptodate(&self, bytes: Range<usize>) -> bool {
        self.state.uptodate.contains(self.folio.blocks(&bytes))
    }

    /// The first byte, at or after `from`, of a block that is known to have space, or is not.
    pub(crate) fn next_backed(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.backed, self.folio, from, wanted)
    }

    /// Checks that the bitmaps agree with themselves and each other.
    pub(crate) fn verify_bits(&self) -> Result<(), String> {
        self.state.uptodate.verify()?;
        self.state.backed.verify()?;
        self.state.dirty.verify()
    }

    /// The first byte, at or after `from`, of a block whose uptodate state is `wanted`.
    pub fn next_uptodate(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.uptodate, self.folio, from, wanted)
    }

    /// The first byte, at or after `from`, of a block whose dirty state is `wanted`.
    pub fn next_dirty(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.dirty, self.folio, from, wanted)
    }
}

fn next_in(bits: &BlockBits, folio: &Folio, from: usize, wanted: bool) -> Option<usize> {
    if from >= folio.len() {
        return None;
    }
    let first = folio.blocks(&(from..from + 1)).start;
    let block = if wanted {
        bits.next_set(first)?
    } else {
        bits.next_clear(first)?
    };
    Some(((block as usize) << folio.block_shift()).max(from))
}

/// The blocks that a write to cached bytes meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// All are dirty: nothing is to be marked.
    OfDirty,
    /// Some are clean, or without bytes.
    OfClean,
}

/// A folio held exclusively.
pub struct FolioGuard<'a> {
    folio: &'a Folio,
    owner: &'a dyn FolioOwner,
    state: RwLockWriteGuard<'a, FolioState>,
    held: Held,
}

impl<'a> FolioGuard<'a> {
    /// Locks `folio`, whose address space `owner` gives its folios this rank.
    #[inline]
    pub(crate) fn lock(folio: &'a Folio, owner: &'a dyn FolioOwner, rank: Rank) -> Self {
        let held = taking(rank);
        Self {
            folio,
            owner,
            state: folio.state.write(),
            held,
        }
    }

    /// Tries to lock `folio`. A lock that is tried is in order at any time.
    #[inline]
    pub(crate) fn try_lock(folio: &'a Folio, owner: &'a dyn FolioOwner) -> Option<Self> {
        Some(Self {
            folio,
            owner,
            state: folio.state.try_write()?,
            held: took(Rank::Folio),
        })
    }

    /// The folio.
    #[inline]
    pub fn folio(&self) -> &'a Folio {
        self.folio
    }

    /// Proof that this lock is held.
    #[inline]
    pub fn locked(&self) -> FolioLocked<'_> {
        FolioLocked(PhantomData)
    }

    /// Makes the lock shared, without letting a writer in between.
    pub fn downgrade(self) -> FolioRef<'a> {
        FolioRef {
            folio: self.folio,
            state: RwLockWriteGuard::downgrade(self.state),
            held: self.held,
        }
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.state.attached
    }

    /// The whole folio's bytes. Those of blocks that are not uptodate mean nothing.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.state.memory.bytes()
    }

    pub(crate) fn memory_mut(&mut self) -> &mut PinnableMemory {
        &mut self.state.memory
    }

    /// The whole folio's bytes, to be changed. The caller marks uptodate bytes that it changes
    /// dirty.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let owner = self.owner;
        self.state
            .memory
            .bytes_mut(|order| owner.allocate_copy(order))
    }

    /// Returns whether every block that `bytes` touches is uptodate.
    #[inline]
    pub fn is_uptodate(&self, bytes: Range<usize>) -> bool {
        self.state.uptodate.contains(self.folio.blocks(&bytes))
    }

    /// The first byte, at or after `from`, of a block whose uptodate state is `wanted`.
    pub fn next_uptodate(&self, from: usize, wanted: bool) -> Option<usize> {
        next_in(&self.state.uptodate, self.folio, from, wanted)
    }

    /// Marks every block that `bytes` touches uptodate: the caller has filled all of them.
    pub fn mark_uptodate(&mut self, bytes: Range<usize>) {
        debug_assert!(self.state.attached, "a detached folio has no content");
        let blocks = self.folio.blocks(&bytes);
        self.state.uptodate.insert(blocks);
        if let Some(private) = &mut self.state.private {
            private.uptodate(bytes);
        }
    }

    /// Returns whether every block that `bytes` touches is dirty.
    #[inline]
    pub fn is_dirty(&self, bytes: Range<usize>) -> bool {
        self.state.dirty.contains(self.folio.blocks(&bytes))
    }

    /// Returns whether no block that `bytes` touches is dirty.
    pub(crate) fn is_clean(&self, bytes: Range<usize>) -> bool {
        let blocks = self.folio.blocks(&bytes);
        let next = self.state.dirty.next_run(blocks.start);
        next.is_none_or(|run| run.start >= blocks.end)
    }

    /// Returns whether any block is dirty.
    #[inline]
    pub fn has_dirty(&self) -> bool {
        !self.state.dirty.is_empty()
    }

    /// Marks every block that `bytes` touches dirty; returns whether any was clean. The blocks are
    /// uptodate and have space, allocated or reserved.
    #[inline]
    pub fn mark_dirty(&mut self, bytes: Range<usize>) -> bool {
        let blocks = self.folio.blocks(&bytes);
        debug_assert!(self.state.attached, "a detached folio is not dirtied");
        debug_assert!(
            self.state.uptodate.contains(blocks.clone()),
            "dirty blocks are uptodate"
        );
        let was_clean = self.state.dirty.is_empty();
        let added = self.state.dirty.insert(blocks);
        if added > 0 {
            self.after_dirty(bytes, added, was_clean);
        }
        added > 0
    }

    /// Notes that the caller has changed all of `bytes`, of which [`FolioGuard::can_overwrite`]
    /// said `how`. Returns whether any block was clean.
    #[inline]
    pub fn overwritten(&mut self, bytes: Range<usize>, how: Overwrite) -> bool {
        match how {
            Overwrite::OfDirty => false,
            Overwrite::OfClean => {
                if !self.is_uptodate(bytes.clone()) {
                    self.mark_uptodate(bytes.clone());
                }
                self.mark_dirty(bytes)
            }
        }
    }

    /// Accounts for `added` blocks within `bytes` that became dirty; `first`: no block was before.
    fn after_dirty(&mut self, bytes: Range<usize>, added: u32, first: bool) {
        if let Some(private) = &mut self.state.private {
            private.dirtied(bytes);
        }
        let bytes = u64::from(added) << self.folio.block_shift();
        self.owner.account_dirtied(self.folio, bytes, first);
    }

    /// Cleans every block that lies wholly within `bytes`, without writing it: its content is not
    /// wanted any more.
    pub fn cancel_dirty(&mut self, bytes: Range<usize>) {
        let block = 1 << self.folio.block_shift();
        // Up to the folio's end, which is a block's end as well.
        let whole = bytes.start.next_multiple_of(block)..bytes.end & !(block - 1);
        if whole.is_empty() {
            return;
        }
        let blocks = self.folio.blocks(&whole);
        if let Some(private) = &mut self.state.private {
            private.cleaned(whole);
        }
        let removed = self.state.dirty.remove(blocks);
        self.after_clean(removed, 0);
    }

    /// Drops the content of `bytes`, none of whose whole blocks is dirty. Whole blocks are not
    /// uptodate afterwards, and parts of blocks are zeroed. Without private state the cost does
    /// not grow with the number of blocks.
    pub(crate) fn discard(&mut self, bytes: Range<usize>) {
        let block = 1 << self.folio.block_shift();
        let whole = bytes.start.next_multiple_of(block)..bytes.end & !(block - 1);
        if whole.is_empty() {
            self.bytes_mut()[bytes].fill(0);
            return;
        }
        debug_assert!(self.is_clean(whole.clone()), "dirty blocks stay uptodate");
        let blocks = self.folio.blocks(&whole);
        self.state.uptodate.remove(blocks);
        if let Some(private) = &mut self.state.private {
            private.discarded(whole.clone());
        }
        self.bytes_mut()[bytes.start..whole.start].fill(0);
        self.bytes_mut()[whole.end..bytes.end].fill(0);
    }

    /// Notes that the blocks of `bytes`, whole ones, have space.
    #[inline]
    pub fn set_backed(&mut self, bytes: Range<usize>) {
        let blocks = self.folio.blocks(&bytes);
        self.state.backed.insert(blocks);
    }

    /// The blocks that `bytes` touches may have lost their space.
    pub(crate) fn clear_backed(&mut self, bytes: Range<usize>) {
        let blocks = self.folio.blocks(&bytes);
        self.state.backed.remove(blocks);
        if let Some(private) = &mut self.state.private {
            private.unmapped(bytes);
        }
    }

    /// Takes the folio's private state out; `None` if there is none of this type.
    #[inline]
    pub fn take_private<T: FolioPrivate>(&mut self) -> Option<Box<T>> {
        let private: Box<dyn Any> = self.state.private.take()?;
        private.downcast().ok()
    }

    /// Attaches private state, instead of any other.
    #[inline]
    pub fn put_private<T: FolioPrivate>(&mut self, private: Box<T>) {
        debug_assert!(self.state.attached, "a detached folio has no state");
        self.state.private = Some(private);
    }

    /// How a write to `bytes` leaves the folio that needs neither the block map nor the device: all
    /// of its blocks have space, and those that it changes in part are uptodate. `None` if it needs
    /// one of them.
    #[inline]
    pub fn can_overwrite(&self, bytes: Range<usize>) -> Option<Overwrite> {
        let blocks = self.folio.blocks(&bytes);
        let FolioState {
            uptodate,
            backed,
            dirty,
            ..
        } = &*self.state;
        // Dirty blocks are uptodate. Most writes meet blocks that an earlier one made dirty.
        if dirty.contains(blocks.clone()) {
            return Some(Overwrite::OfDirty);
        }
        let has_bytes = || uptodate.contains(blocks.clone()) || self.has_edges(&bytes);
        (backed.contains(blocks.clone()) && has_bytes()).then_some(Overwrite::OfClean)
    }

    /// Returns whether the blocks that `bytes` covers in part are uptodate.
    fn has_edges(&self, bytes: &Range<usize>) -> bool {
        let part_of_block = (1usize << self.folio.block_shift()) - 1;
        [bytes.start, bytes.end].into_iter().all(|edge| {
            // An edge at a block's boundary cuts no block.
            edge & part_of_block == 0 || self.is_uptodate(edge..edge + 1)
        })
    }

    /// Begins writeback of the dirty blocks below byte `end`: calls `each` with every run of bytes,
    /// cleans the blocks, and puts the folio under writeback if there were any. The caller ends
    /// that with [`crate::AddressSpace::end_writeback`]. Dirty blocks at or past `end` are cleaned
    /// too, without being written.
    pub fn start_writeback(&mut self, end: usize, mut each: impl FnMut(Range<usize>)) {
        let limit = self.folio.blocks(&(0..end.min(self.folio.len()))).end;
        let mut from = 0;
        let mut taken = 0;
        while let Some(run) = self.state.dirty.next_run(from) {
            if run.start >= limit {
                break;
            }
            let run = run.start..run.end.min(limit);
            from = run.end;
            taken += run.end - run.start;
            each(self.folio.bytes_of(&run));
        }
        let whole = self.folio.blocks(&(0..self.folio.len()));
        let all = self.state.dirty.remove(whole);
        if let Some(private) = &mut self.state.private {
            private.cleaned(0..self.folio.len());
        }
        self.set_writeback(all, taken);
    }

    /// Begins writeback of the dirty blocks of `runs`; others stay dirty.
    pub fn start_writeback_of(&mut self, runs: impl IntoIterator<Item = Range<usize>>) {
        let mut taken = 0;
        for run in runs {
            let blocks = self.folio.blocks(&run);
            taken += self.state.dirty.remove(blocks);
        }
        self.set_writeback(taken, taken);
    }

    fn set_writeback(&mut self, removed: u32, written: u32) {
        debug_assert!(self.state.attached, "a detached folio is not written");
        debug_assert!(
            !self.folio.is_under_writeback(),
            "one writeback of a folio at a time (J5)"
        );
        let bytes = written << self.folio.block_shift();
        self.folio.writeback.store(bytes, Ordering::Release);
        self.after_clean(removed, written);
    }

    /// Accounts for `removed` blocks that ceased to be dirty, `written` of which are under
    /// writeback.
    fn after_clean(&mut self, removed: u32, written: u32) {
        debug_assert!(written <= removed);
        if removed == 0 {
            return;
        }
        let shift = self.folio.block_shift();
        let clean = self.state.dirty.is_empty();
        self.owner.account_cleaned(
            self.folio,
            u64::from(removed) << shift,
            u64::from(written) << shift,
            clean,
        );
    }

    /// Takes the folio, which is not under writeback, out of its address space with all its
    /// content.
    pub(crate) fn detach(mut self) {
        debug_assert!(
            !self.folio.is_under_writeback(),
            "a folio stays until its writeback has ended (J6)"
        );
        debug_assert!(self.state.attached, "a folio is detached once");
        self.cancel_dirty(0..self.folio.len());
        self.state.attached = false;
        self.state.private = None;
        self.folio.detached.store(true, Ordering::Relaxed);
        self.owner.remove_detached(self.folio);
        self.state.memory.release();
    }
}
