//! [`RangeLock`]: the protocol of the crate's documentation, step by step.
//!
//! The three forms of a lock and the drain are each a few lines: publish, [`RangeLock::meets`],
//! and then wait or withdraw. What each of them reads stands in [`RangeLock::sees`] alone.

use std::hint::spin_loop;
use std::sync::{Arc, OnceLock};

use extant_extent_io_tree::{
    Bits, ByteRange, IoTree, OwnedRangeGuard, RangeGuard, Totals, TreeStats, TreeTuning, probed,
};
use extant_sync::atomic::{Ordering, fence, fence_after_exchange};

use crate::eof::{EofWord, EofWordGuard};
use crate::eof_guard::EofGuard;
use crate::file_lock::{FileLock, HeldExclusively, HeldShared};
use crate::slot_table::{Slot, SlotTable};
use crate::step::{Omitted, Step};

/// Attempts at an EOF lock that another append holds before a record is locked instead: a model
/// has as few as show both outcomes.
const EOF_ATTEMPTS: u32 = if cfg!(extant_shuttle) { 1 } else { 256 };

/// The locks on parts of one file. See the crate's documentation.
pub struct RangeLock {
    /// The records.
    records: Arc<IoTree>,
    /// There from the first slot on.
    slots: OnceLock<SlotTable>,
    eof: EofWord,
    tuning: TreeTuning,
    omitted: Omitted,
}

/// The word that a thread has published, by which it looks for the others' words.
#[derive(Clone, Copy)]
enum Own {
    /// A record with these lock bits.
    Record(Bits),
    Slot(Slot),
    Eof,
    /// The file's lock, held exclusively.
    File,
    /// Nothing: the thread holds the folios of the range instead.
    Nothing,
}

/// The words that a thread reads in step 3: the table in the crate's documentation.
struct Reads {
    records: bool,
    slots: bool,
    eof: bool,
    file: bool,
}

/// A file's lock that a form of lock does not conflict with.
struct Unrelated;

impl FileLock for Unrelated {
    #[inline]
    fn is_exclusive(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeLock").finish_non_exhaustive()
    }
}

impl RangeLock {
    /// Nothing is locked. The counters of the records go to `totals` in the end.
    pub fn new(tuning: TreeTuning, totals: &Arc<Totals>) -> Self {
        Self {
            records: Arc::new(IoTree::counted(tuning, totals)),
            slots: OnceLock::new(),
            eof: EofWord::default(),
            tuning,
            omitted: Omitted::default(),
        }
    }

    /// A lock whose protocol lacks `step`.
    #[cfg(extant_shuttle)]
    pub fn omitting(step: Step) -> Self {
        Self {
            omitted: Omitted::only(step),
            ..Self::default()
        }
    }

    /// Locks `range` against changes by others. Waits for them; the caller must hold no other lock
    /// on a part of this file but one of [fills](RangeLock::lock_fill).
    #[inline]
    pub fn lock(&self, range: ByteRange, _shared: &impl HeldShared) -> RangeGuard<'_> {
        self.lock_record(range, Bits::LOCKED)
    }

    /// [`RangeLock::lock`], unless it would have to wait.
    #[inline]
    pub fn try_lock(&self, range: ByteRange, _shared: &impl HeldShared) -> Option<RangeGuard<'_>> {
        self.try_lock_record(range, Bits::LOCKED)
    }

    /// Locks `range` against the cache being filled from the device there, or the other way round.
    /// Waits; may be locked within a range of [`RangeLock::lock`].
    #[inline]
    pub fn lock_fill(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock_record(range, Bits::DIO_LOCKED)
    }

    /// [`RangeLock::lock_fill`], unless it would have to wait.
    #[inline]
    pub fn try_lock_fill(&self, range: ByteRange) -> Option<RangeGuard<'_>> {
        self.try_lock_record(range, Bits::DIO_LOCKED)
    }

    /// Locks `range` against changes and fills, as direct I/O needs it, unless that would have to
    /// wait. The guard outlives the shared hold of the file's lock: see [`RangeLock::drain`].
    pub fn try_lock_direct(
        &self,
        range: ByteRange,
        _shared: &impl HeldShared,
    ) -> Option<OwnedRangeGuard> {
        let record = self.records.try_lock_owned(range, Bits::LOCKS)?;
        let met = self.meets(Own::Record(Bits::LOCKS), range, &Unrelated);
        (!met).then_some(record)
    }

    /// Locks `range` as [`RangeLock::try_lock_direct`] does, by a slot of `owner`'s table and
    /// without a lock of the file or of the tree. `None` if a conflict is met, if the range does
    /// not lie within 16 KiB that are aligned to themselves or is not of whole sectors, or if
    /// there is no free slot: says little, and another form may still succeed.
    #[inline]
    pub fn try_lock_slot<O: HasRangeLock>(
        owner: &Arc<O>,
        range: ByteRange,
        file: &impl FileLock,
    ) -> Option<SlotGuard<O>> {
        let slot = owner.range_lock().take_slot(range, file)?;
        Some(SlotGuard::new(Arc::clone(owner), slot))
    }

    #[inline]
    fn take_slot(&self, range: ByteRange, file: &impl FileLock) -> Option<Slot> {
        let table = self.slots.get_or_init(SlotTable::new);
        if self.omitted.is(Step::SlotIsPublishedFirst) {
            let met = self.meets(Own::Nothing, range, file);
            return if met { None } else { table.publish(range) };
        }
        let slot = table.publish(range)?;
        if self.meets(Own::Slot(slot), range, file) {
            table.withdraw(slot, self.omitted);
            return None;
        }
        Some(slot)
    }

    #[inline]
    fn unlock_slot(&self, slot: Slot) {
        probed(self.tuning.clear_probe, || {
            let table = self.slots.get();
            debug_assert!(table.is_some(), "the slot came out of a table");
            if let Some(table) = table {
                table.withdraw(slot, self.omitted);
            }
        });
    }

    /// Locks everything from byte `from` on, by the EOF word alone; `None` if a conflict is met.
    #[inline]
    pub fn try_lock_eof(&self, from: u64, file: &impl FileLock) -> Option<EofGuard<'_>> {
        let range = ByteRange::to_infinity(from);
        if self.omitted.is(Step::EofIsPublishedFirst) {
            let met = self.meets(Own::Nothing, range, file);
            let word = (!met).then(|| self.publish_eof(from))?;
            return word.map(EofGuard::word);
        }
        let word = self.publish_eof(from)?;
        let met = self.meets(Own::Eof, range, file);
        (!met).then(|| EofGuard::word(word))
    }

    /// Locks everything from byte `from` on: by the EOF word if no thread but other appends is in
    /// the way, otherwise as [`RangeLock::lock`] does.
    #[inline]
    pub fn lock_eof(&self, from: u64, shared: &impl HeldShared) -> EofGuard<'_> {
        let range = ByteRange::to_infinity(from);
        let word = self
            .publish_eof(from)
            .or_else(|| self.publish_eof_again(from));
        if let Some(word) = word
            && !self.meets(Own::Eof, range, shared)
        {
            return EofGuard::word(word);
        }
        EofGuard::record(self.lock(range, shared))
    }

    /// For a word that another append holds for a moment.
    #[cold]
    fn publish_eof_again(&self, from: u64) -> Option<EofWordGuard<'_>> {
        (0..EOF_ATTEMPTS).find_map(|_| {
            spin_loop();
            self.publish_eof(from)
        })
    }

    #[inline]
    fn publish_eof(&self, from: u64) -> Option<EofWordGuard<'_>> {
        self.eof.publish(from, self.omitted)
    }

    /// Returns whether another thread has locked a byte of `range` against changes, or holds the
    /// file's lock exclusively. For a thread that holds the locks of all folios of `range` and
    /// changes them in one step, without a lock of this crate; see "Without a lock" in the crate's
    /// documentation.
    #[inline(always)]
    pub fn is_locked(&self, range: ByteRange, file: &impl FileLock) -> bool {
        let locked = self.sees(Own::Nothing, range, file);
        fence(Ordering::Acquire);
        locked
    }

    /// Waits until no part of a file is locked against changes. None becomes locked while the
    /// caller, which holds the file's lock exclusively, keeps that.
    ///
    /// `find` is called after the fence of step 2 and returns the file's range lock, if it has one
    /// yet: a thread that makes it later looks at the file's lock later, too.
    pub fn drain<'a>(
        find: impl FnOnce() -> Option<&'a RangeLock>,
        _exclusive: &impl HeldExclusively,
    ) {
        fence(Ordering::SeqCst);
        if let Some(locks) = find() {
            locks.wait_for_words(Own::File, ByteRange::ALL);
        }
    }

    /// Waits until each part that is locked against changes now has been unlocked. Other threads
    /// may lock parts meanwhile and afterwards.
    pub fn wait_unlocked(&self) {
        fence(Ordering::SeqCst);
        self.wait_for_words(Own::File, ByteRange::ALL);
    }

    #[inline]
    fn lock_record(&self, range: ByteRange, bits: Bits) -> RangeGuard<'_> {
        if self.omitted.is(Step::RecordIsPublishedFirst) {
            self.wait_for_words(Own::Record(bits), range);
            return self.records.lock(range, bits);
        }
        let record = self.records.lock(range, bits);
        if self.meets(Own::Record(bits), range, &Unrelated) {
            self.wait_for_words(Own::Record(bits), range);
        }
        record
    }

    #[inline]
    fn try_lock_record(&self, range: ByteRange, bits: Bits) -> Option<RangeGuard<'_>> {
        let record = self.records.try_lock(range, bits)?;
        let met = self.meets(Own::Record(bits), range, &Unrelated);
        (!met).then_some(record)
    }

    /// Steps 2, 3 and 5 for a thread that has published `own`: whether a word of another thread
    /// conflicts with it. If none does, all that earlier holders of `range` did is visible.
    #[inline]
    fn meets(&self, own: Own, range: ByteRange, file: &impl FileLock) -> bool {
        match own {
            Own::Slot(_) | Own::Eof => fence_after_exchange(),
            Own::Record(_) | Own::File | Own::Nothing => fence(Ordering::SeqCst),
        }
        let met = self.sees(own, range, file);
        fence(Ordering::Acquire);
        met
    }

    /// Whose words the holder of `own` reads.
    #[inline(always)]
    fn reads(&self, own: Own) -> Reads {
        let omits = |step| self.omitted.is(step);
        match own {
            // Other records are met in the tree, and the file's lock is held shared.
            Own::Record(bits) => Reads {
                records: false,
                slots: !omits(Step::RecordSeesSlots),
                eof: bits.contains(Bits::LOCKED) && !omits(Step::RecordSeesEof),
                file: false,
            },
            Own::Slot(_) => Reads {
                records: !omits(Step::SlotSeesRecords),
                slots: !omits(Step::SlotSeesSlots),
                eof: !omits(Step::SlotSeesEof),
                file: !omits(Step::SlotSeesFile),
            },
            // There is one EOF word.
            Own::Eof => Reads {
                records: !omits(Step::EofSeesRecords),
                slots: !omits(Step::EofSeesSlots),
                eof: false,
                file: !omits(Step::EofSeesFile),
            },
            Own::File => Reads {
                records: !omits(Step::DrainSeesRecords),
                slots: !omits(Step::DrainSeesSlots),
                eof: !omits(Step::DrainSeesEof),
                file: false,
            },
            Own::Nothing => Reads {
                records: true,
                slots: true,
                eof: true,
                file: true,
            },
        }
    }

    /// Step 3: whether a word of another thread conflicts with `own`.
    #[inline(always)]
    fn sees(&self, own: Own, range: ByteRange, file: &impl FileLock) -> bool {
        let reads = self.reads(own);
        let records = || match own {
            Own::Slot(_) => self.records.would_block(range, Bits::LOCKS),
            _ => self.records.is_locked(range),
        };
        let slots = || {
            self.slots.get().is_some_and(|table| match own {
                Own::Slot(slot) => table.overlaps_others(range, slot),
                _ => table.overlaps(range),
            })
        };
        (reads.file && file.is_exclusive())
            || (reads.eof && self.eof.reaches(range.last()))
            || (reads.records && records())
            || (reads.slots && slots())
    }

    /// Step 4 for a thread that waits, with `own` published: until each word that conflicts has
    /// been withdrawn. Words that come later are withdrawn by their own holders.
    #[cold]
    fn wait_for_words(&self, own: Own, range: ByteRange) {
        let reads = self.reads(own);
        if reads.records {
            self.records.wait_unlocked(range);
        }
        let table = self.slots.get().filter(|_| reads.slots);
        let slot = table.is_some_and(|table| table.wait(range, self.omitted));
        let eof = reads.eof && self.eof.wait(range.last(), self.omitted);
        if slot || eof {
            self.records.note_wait();
        }
    }

    /// Counters of the records; a wait for a slot or the EOF word counts as one of them.
    pub fn stats(&self) -> TreeStats {
        self.records.stats()
    }

    /// Returns whether any part is locked by a record or a slot: for tests.
    #[doc(hidden)]
    pub fn is_range_locked(&self) -> bool {
        let all = ByteRange::ALL;
        let slots = self.slots.get();
        self.records.is_locked_by(all, Bits::LOCKS)
            || slots.is_some_and(|table| table.overlaps(all))
    }

    /// Returns whether any part is locked, in whichever form: for tests.
    #[doc(hidden)]
    pub fn is_any_locked(&self) -> bool {
        self.is_range_locked() || self.is_eof_locked()
    }

    /// Returns whether the EOF word is held: for tests.
    #[doc(hidden)]
    pub fn is_eof_locked(&self) -> bool {
        self.eof.reaches(u64::MAX)
    }

    /// Returns whether a thread sleeps for a slot or the EOF word: for tests. Threads that sleep
    /// for a record are counted by [`TreeStats::lock_waits`] before they do.
    #[doc(hidden)]
    pub fn has_sleepers(&self) -> bool {
        let slots = self.slots.get();
        slots.is_some_and(SlotTable::has_sleepers) || self.eof.has_sleepers()
    }

    /// How many records there are: for tests.
    #[doc(hidden)]
    pub fn records(&self) -> usize {
        self.records.records()
    }

    /// Panics if an invariant of the records does not hold: for tests.
    #[doc(hidden)]
    pub fn verify(&self) {
        self.records.verify();
    }
}

impl Default for RangeLock {
    fn default() -> Self {
        Self::new(TreeTuning::default(), &Arc::default())
    }
}

/// An object that has a file's [`RangeLock`] and keeps it alive.
pub trait HasRangeLock {
    /// The lock; the same one for the life of the object.
    fn range_lock(&self) -> &RangeLock;
}

impl HasRangeLock for RangeLock {
    fn range_lock(&self) -> &RangeLock {
        self
    }
}

/// A lock slot, with a reference that keeps its table: for requests that end elsewhere than they
/// began. May be sent to another thread and dropped there.
#[must_use = "the range is unlocked when this is dropped"]
pub struct SlotGuard<O: HasRangeLock> {
    /// There until the slot is unlocked.
    owner: Option<Arc<O>>,
    slot: Slot,
}

impl<O: HasRangeLock> SlotGuard<O> {
    #[inline]
    fn new(owner: Arc<O>, slot: Slot) -> Self {
        let owner = Some(owner);
        Self { owner, slot }
    }

    /// Unlocks the range. Returns the guard's reference, for a caller that still needs one.
    #[inline]
    #[must_use = "the drop of the guard unlocks as well"]
    pub fn unlock(mut self) -> Option<Arc<O>> {
        self.withdraw()
    }

    #[inline]
    fn withdraw(&mut self) -> Option<Arc<O>> {
        let owner = self.owner.take()?;
        owner.range_lock().unlock_slot(self.slot);
        Some(owner)
    }
}

impl<O: HasRangeLock> Drop for SlotGuard<O> {
    #[inline]
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl<O: HasRangeLock> std::fmt::Debug for SlotGuard<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.slot)
    }
}
