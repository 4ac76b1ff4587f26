//! The tree as its users have it: one short lock around [`State`], and what is done before
//! taking and after releasing it.
//!
//! Memory is taken from the allocator before the lock is taken, and given back after it was
//! released; threads are woken after that, too. Whether anything is locked at all is known
//! without the lock: see [`IoTree::is_locked`].

use std::hint::spin_loop;
use std::sync::Arc;

use extant_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use extant_sync::{MutexGuard, SPINS, SpinMutex};

use crate::bits::{Bits, Resolved};
use crate::hooks::{Hooks, NoHooks};
use crate::locking::Blocked;
use crate::probe::{ClearProbe, probed};
use crate::range::ByteRange;
use crate::record::Id;
use crate::records::Records;
use crate::state::{State, lock_count};
use crate::stats::{Totals, TreeStats};
use crate::step::Step;
use crate::waiters::{Parker, Waiter, WaiterId, Waiters};

/// Records that a call may need: two to cut edges off, one for a gap. More gaps than that are
/// filled with memory taken inside of the lock, if the free ones do not suffice.
pub(crate) const ROOM: usize = 3;

/// Switches of a tree. Fixed for its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeTuning {
    /// Clearing all bits of a part of the first or the last record of a range trims that record
    /// in place. Off: it is cut in two, and the part removed. The outcome is the same.
    pub trim_on_clear: bool,
    /// Told how long each clear takes.
    pub clear_probe: Option<ClearProbe>,
}

impl Default for TreeTuning {
    fn default() -> Self {
        Self {
            trim_on_clear: true,
            clear_probe: None,
        }
    }
}

/// Byte ranges of a file with state bits and locks. See the crate's documentation.
pub struct IoTree<H = NoHooks> {
    pub(crate) state: SpinMutex<State<H>>,
    /// Records with lock bits, as [`lock_count`] counts them. Changes under the lock only.
    locked: AtomicU64,
    /// Grows with every release of lock bits: what a thread looks at before it sleeps. Changes
    /// under the lock only.
    releases: AtomicU32,
    /// Totals that get the counters in the end.
    totals: Option<Arc<Totals>>,
    pub(crate) probe: Option<ClearProbe>,
}

impl IoTree {
    /// An empty tree.
    pub fn new(tuning: TreeTuning) -> Self {
        Self::with_hooks(tuning, NoHooks)
    }

    /// A tree that leaves `step` out.
    #[cfg(extant_shuttle)]
    pub fn omitting(step: Step) -> Self {
        let tree = Self::default();
        tree.state.lock().omitted = crate::step::Omitted::only(step);
        tree
    }

    /// An empty tree, which adds its counters to `totals` when it is dropped.
    pub fn counted(tuning: TreeTuning, totals: &Arc<Totals>) -> Self {
        Self::counted_with_hooks(tuning, NoHooks, totals)
    }
}

impl<H> Drop for IoTree<H> {
    fn drop(&mut self) {
        if let Some(totals) = &self.totals {
            totals.add(self.state.lock().stats);
        }
    }
}

impl Default for IoTree {
    fn default() -> Self {
        Self::new(TreeTuning::default())
    }
}

impl<H> std::fmt::Debug for IoTree<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IoTree").finish_non_exhaustive()
    }
}

impl<H: Hooks> IoTree<H> {
    /// An empty tree, whose owner hears what happens.
    pub fn with_hooks(tuning: TreeTuning, hooks: H) -> Self {
        Self {
            state: SpinMutex::new(State::new(tuning.trim_on_clear, hooks)),
            locked: AtomicU64::new(0),
            releases: AtomicU32::new(0),
            totals: None,
            probe: tuning.clear_probe,
        }
    }

    /// [`IoTree::with_hooks`], which adds its counters to `totals` when it is dropped.
    pub fn counted_with_hooks(tuning: TreeTuning, hooks: H, totals: &Arc<Totals>) -> Self {
        let mut tree = Self::with_hooks(tuning, hooks);
        tree.totals = Some(Arc::clone(totals));
        tree
    }

    /// Looks at the accounts, under the tree's lock.
    pub fn hooks<R>(&self, look: impl FnOnce(&mut H) -> R) -> R {
        look(&mut self.state.lock().hooks)
    }

    /// The counters so far.
    pub fn stats(&self) -> TreeStats {
        self.state.lock().stats
    }

    /// Records in the tree.
    pub fn records(&self) -> usize {
        self.state.lock().records.len()
    }

    /// Returns whether a byte of `range` has [`Bits::LOCKED`].
    ///
    /// One atomic load if nothing in the tree is locked. The answer is about the past. A caller
    /// that excludes lock holders by other means (a folio lock that each of them takes while it
    /// has its range) may act on "no": a thread that locked before, and took and released that
    /// other lock since, is seen.
    #[inline]
    pub fn is_locked(&self, range: ByteRange) -> bool {
        self.is_locked_by(range, Bits::LOCKED)
    }

    /// Returns whether a byte of `range` has one of the lock bits `bits`; as [`IoTree::is_locked`].
    #[inline]
    pub fn is_locked_by(&self, range: ByteRange, bits: Bits) -> bool {
        self.may_be_locked(bits) && self.is_owned(range, bits)
    }

    #[cold]
    fn is_owned(&self, range: ByteRange, bits: Bits) -> bool {
        let state = self.state.lock();
        let id = state.records.find(range.start(), Id::NONE);
        state.owned(range, bits, id).is_some()
    }

    /// Returns whether a request to lock `range` with `bits` would have to wait: a byte of it is
    /// locked, or a waiter that lost many times must not be overtaken. One atomic load if
    /// nothing in the tree is locked.
    #[inline]
    pub fn would_block(&self, range: ByteRange, bits: Bits) -> bool {
        self.may_be_locked(bits) && self.is_blocked(range, bits)
    }

    #[cold]
    fn is_blocked(&self, range: ByteRange, bits: Bits) -> bool {
        let state = self.state.lock();
        state.blocked(range, bits, WaiterId::NONE).is_some()
    }

    /// Counts a sleep of a thread that holds a record and waits for what the tree does not know.
    pub fn note_wait(&self) {
        self.state.lock().stats.lock_waits += 1;
    }

    /// Returns whether any record has one of the lock bits.
    #[inline]
    fn may_be_locked(&self, bits: Bits) -> bool {
        let locked = self.locked.load(Ordering::SeqCst);
        let low = if bits.contains(Bits::LOCKED) {
            u64::from(u32::MAX)
        } else {
            0
        };
        let high = if bits.contains(Bits::DIO_LOCKED) {
            !u64::from(u32::MAX)
        } else {
            0
        };
        locked & (low | high) != 0
    }

    /// [`IoTree::lock`] without a guard: for tests that [unlock](IoTree::unlock) any part.
    #[doc(hidden)]
    pub fn lock_bits(&self, range: ByteRange, bits: Bits) {
        self.take(range, bits);
    }

    /// Clears lock bits of [`IoTree::lock_bits`], and wakes the waiters for them.
    #[doc(hidden)]
    pub fn unlock(&self, range: ByteRange, bits: Bits) {
        self.release(range, bits, Id::NONE);
    }

    /// Waits until no byte of `range` has [`Bits::LOCKED`]. It may be locked again by the time
    /// this returns.
    pub fn wait_unlocked(&self, range: ByteRange) {
        let bits = Bits::LOCKED;
        if self.may_be_locked(bits) {
            self.wait_until(range, bits, true, |state, _| {
                let id = state.records.find(range.start(), Id::NONE);
                match state.owned(range, bits, id) {
                    None => Ok(Id::NONE),
                    Some(id) => Err(Blocked::By(id)),
                }
            });
        }
    }

    /// [`IoTree::lock`], with the record of the first byte.
    #[inline]
    pub(crate) fn take(&self, range: ByteRange, bits: Bits) -> Id {
        self.try_take(range, bits).unwrap_or_else(|| {
            self.wait_until(range, bits & Bits::LOCKS, false, |state, me| {
                state.try_lock(range, bits, me)
            })
        })
    }

    /// [`IoTree::try_lock`], with the record of the first byte.
    #[inline]
    pub(crate) fn try_take(&self, range: ByteRange, bits: Bits) -> Option<Id> {
        debug_assert!(Bits::LOCKS.contains(bits) && !bits.is_empty(), "{bits:?}");
        let mut state = self.enter(ROOM);
        let taken = state.try_lock(range, bits, WaiterId::NONE).ok();
        self.leave(state);
        taken
    }

    /// Clears lock bits and wakes the waiters for them, with the record of the first byte, if it is
    /// still that.
    #[inline]
    pub(crate) fn release(&self, range: ByteRange, bits: Bits, hint: Id) {
        probed(self.probe, || self.give_back(range, bits, hint));
    }

    #[inline]
    fn give_back(&self, range: ByteRange, bits: Bits, hint: Id) {
        // A part of what a longer record has locked is cut off.
        let mut state = self.enter(ROOM);
        let id = state.records.find(range.start(), hint);
        let what = Resolved {
            state: bits & Bits::LOCKS,
            control: Bits::empty(),
        };
        state.clear(range, what, None, id);
        let releases = self.releases.load(Ordering::Relaxed);
        self.releases
            .store(releases.wrapping_add(1), Ordering::Release);
        self.leave(state);
    }

    /// Tries until it succeeds, and sleeps in between: first on the processor, for a moment,
    /// then off it.
    #[cold]
    fn wait_until(
        &self,
        range: ByteRange,
        bits: Bits,
        watches: bool,
        mut attempt: impl FnMut(&mut State<H>, WaiterId) -> Result<Id, Blocked>,
    ) -> Id {
        let parker = Parker::new();
        let mut me = WaiterId::NONE;
        let mut spins = SPINS;
        loop {
            let mut state = self.enter(ROOM);
            let blocked = match attempt(&mut state, me) {
                Ok(id) => {
                    if !me.is_none() {
                        state.arrived(me, (!watches).then_some((range, bits)));
                    }
                    self.leave(state);
                    return id;
                }
                Err(blocked) => blocked,
            };
            if spins > 0 {
                let seen = self.releases.load(Ordering::Relaxed);
                self.leave(state);
                spins = self.spin(seen, spins);
                continue;
            }
            if me.is_none() {
                if state.waiters.wants_room() {
                    let capacity = state.waiters.capacity();
                    drop(state);
                    let memory = Waiters::larger(capacity);
                    let mut state = self.state.lock();
                    let old = state.waiters.adopt(memory);
                    drop(state);
                    drop(old);
                    continue;
                }
                let waiter = Waiter::new(range, bits, watches, parker.clone());
                me = state.waiters.insert(waiter);
                state.stats.lock_waits += 1;
            }
            state.wait_for(blocked, me);
            self.leave(state);
            parker.sleep();
            spins = SPINS;
        }
    }

    /// Looks for a release, at most `spins` times. Says how often that may still be done.
    fn spin(&self, seen: u32, mut spins: u32) -> u32 {
        while spins > 0 && self.releases.load(Ordering::Acquire) == seen {
            spin_loop();
            spins -= 1;
        }
        // One less also for a release that is seen at once, so that the spins run out.
        spins.saturating_sub(1)
    }

    /// Takes the tree's lock, with room for `need` more records.
    #[inline]
    pub(crate) fn enter(&self, need: usize) -> MutexGuard<'_, State<H>> {
        let state = self.state.lock();
        if state.records.wants_room(need) {
            return self.enter_with_memory(state, need);
        }
        state
    }

    #[cold]
    fn enter_with_memory<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<H>>,
        need: usize,
    ) -> MutexGuard<'a, State<H>> {
        while state.records.wants_room(need) {
            let capacity = state.records.capacity();
            drop(state);
            let memory = Records::larger(capacity);
            state = self.state.lock();
            let old = state.records.adopt(memory);
            state.stats.grows += 1;
            if old.capacity() > 0 {
                drop(state);
                drop(old);
                state = self.state.lock();
            }
        }
        state
    }

    /// Releases the tree's lock, frees memory and wakes threads.
    #[inline]
    pub(crate) fn leave(&self, mut state: MutexGuard<'_, State<H>>) {
        if self.locked.load(Ordering::Relaxed) != state.locked
            && !state.omitted.is(Step::LockIsPublished)
        {
            self.locked.store(state.locked, Ordering::Release);
        }
        let surplus = state.records.surplus();
        if state.to_wake.is_empty() {
            drop(state);
        } else {
            self.leave_and_wake(state);
        }
        drop(surplus);
    }

    #[cold]
    fn leave_and_wake(&self, mut state: MutexGuard<'_, State<H>>) {
        let mut parkers = [const { None }; 8];
        let mut to_wake = state.to_wake;
        for parker in &mut parkers {
            let Some(id) = state.waiters.pop(&mut to_wake) else {
                break;
            };
            state.stats.wakes += 1;
            *parker = state.waiters.parker(id);
        }
        state.to_wake = to_wake;
        let more = !to_wake.is_empty();
        drop(state);
        parkers.iter().flatten().for_each(|parker| parker.wake());
        if more {
            self.leave(self.state.lock());
        }
    }

    /// Panics if an invariant does not hold: for tests.
    #[doc(hidden)]
    pub fn verify(&self) {
        let state = self.state.lock();
        let fault = state.records.fault();
        assert!(fault.is_none(), "{fault:?}");
        let (mut locked, mut id) = (0, state.records.first());
        while id.is_some() {
            let record = state.records.get(id);
            locked += lock_count(record.bits);
            let waits = !record.waiters.is_empty();
            assert!(!waits || record.bits.intersects(Bits::LOCKS), "{record:?}");
            id = record.next;
        }
        assert_eq!(
            (locked, state.locked),
            (state.locked, self.locked.load(Ordering::Relaxed))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sound(tree: &IoTree) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tree.verify())).is_ok()
    }

    /// The check that tests rely on sees a wrong count of locks, a waiter that nothing wakes, and
    /// what is wrong with the records.
    #[test]
    fn every_damage_is_seen() {
        type Damage = fn(&IoTree, Id);
        let damages: [Damage; 4] = [
            |tree, _| tree.locked.store(2, Ordering::Relaxed),
            |tree, _| tree.state.lock().locked = 2,
            |tree, id| {
                let mut state = tree.state.lock();
                let waiter = Waiter::new(ByteRange::ALL, Bits::LOCKED, false, Parker::new());
                let waiter = state.waiters.insert(waiter);
                state.wait_for(Blocked::By(id), waiter);
                state.records.get_mut(id).bits = Bits::DIRTY;
                state.locked = 0;
                tree.locked.store(0, Ordering::Relaxed);
            },
            |tree, id| tree.state.lock().records.get_mut(id).start = 10,
        ];
        for (nth, damage) in damages.into_iter().enumerate() {
            let tree = IoTree::default();
            let range = ByteRange::from_len(0, 10).unwrap();
            let id = tree.take(range, Bits::LOCKED);
            assert!(is_sound(&tree));
            damage(&tree, id);
            assert!(!is_sound(&tree), "damage {nth}");
        }
    }
}
