//! State bits: set, clear, and what is asked about them.

use extant_sync::MutexGuard;

use crate::bits::{Bits, Resolved};
use crate::changeset::Changeset;
use crate::hooks::Hooks;
use crate::probe::probed;
use crate::range::ByteRange;
use crate::record::Id;
use crate::state::State;
use crate::tree::{IoTree, ROOM};

impl<H: Hooks> IoTree<H> {
    /// Sets state bits all over `range`. Lock bits are not set this way: see
    /// [`IoTree::try_lock`].
    pub fn set(&self, range: ByteRange, bits: Bits) {
        self.set_in_full(range, bits, None);
    }

    /// [`IoTree::set`], that adds to `changes` what really changed.
    pub fn set_with_changes(&self, range: ByteRange, bits: Bits, changes: &mut Changeset) {
        self.set_in_full(range, bits, Some(changes));
    }

    /// [`IoTree::set`], after `account` has changed the owner's accounts under the same lock: they
    /// have what pays for the bits before their hook is called.
    pub fn set_accounted(&self, range: ByteRange, bits: Bits, account: impl FnOnce(&mut H)) {
        let what = unlocked(bits.resolve());
        let mut state = self.enter_for(what, None);
        account(&mut state.hooks);
        if !what.state.is_empty() {
            let id = state.records.find(range.start(), Id::NONE);
            state.set(range, what, None, id);
        }
        self.leave(state);
    }

    fn set_in_full(&self, range: ByteRange, bits: Bits, mut changes: Option<&mut Changeset>) {
        let what = unlocked(bits.resolve());
        if what.state.is_empty() {
            return;
        }
        let mut state = self.enter_for(what, changes.as_deref_mut());
        let id = state.records.find(range.start(), Id::NONE);
        state.set(range, what, changes, id);
        self.leave(state);
    }

    /// Clears state bits all over `range`, with what they imply: [`Bits::CLEAR_ALL`] is every
    /// state bit, and [`Bits::DELALLOC`] takes [`Bits::NORESERVE`] with it. Lock bits stay:
    /// a guard clears them.
    pub fn clear(&self, range: ByteRange, bits: Bits) {
        self.clear_in_full(range, bits, None);
    }

    /// [`IoTree::clear`], that adds to `changes` what really changed.
    pub fn clear_with_changes(&self, range: ByteRange, bits: Bits, changes: &mut Changeset) {
        self.clear_in_full(range, bits, Some(changes));
    }

    fn clear_in_full(&self, range: ByteRange, bits: Bits, mut changes: Option<&mut Changeset>) {
        let what = unlocked(bits.to_clear());
        if what.state.is_empty() {
            return;
        }
        probed(self.probe, || {
            let mut state = self.enter_for(what, changes.as_deref_mut());
            let id = state.records.find(range.start(), Id::NONE);
            state.clear(range, what, changes, id);
            self.leave(state);
        });
    }

    /// Takes the tree's lock, with room for a call's changes unless that is not to wait.
    fn enter_for(
        &self,
        what: Resolved,
        changes: Option<&mut Changeset>,
    ) -> MutexGuard<'_, State<H>> {
        if what.control.contains(Bits::NOWAIT) {
            return self.enter(0);
        }
        if let Some(changes) = changes {
            changes.reserve();
        }
        self.enter(ROOM)
    }

    /// The first run of bytes, from `from` on, that have all of `bits`: over as many records as
    /// are adjacent.
    pub fn find_run(&self, from: u64, bits: Bits) -> Option<ByteRange> {
        let state = self.state.lock();
        let mut id = state.records.find(from, Id::NONE);
        let mut run: Option<ByteRange> = None;
        while id.is_some() {
            let record = state.records.get(id);
            let adjacent = run.is_none_or(|r| r.last().checked_add(1) == Some(record.start));
            match (record.bits.contains(bits) && adjacent, run) {
                (true, None) => run = ByteRange::new(record.start.max(from), record.last),
                (true, Some(so_far)) => run = ByteRange::new(so_far.start(), record.last),
                (false, None) => {}
                (false, Some(_)) => break,
            }
            id = record.next;
        }
        run
    }

    /// How many bytes of `range` have all of `bits`; `u64::MAX` if all 2^64 have.
    pub fn count(&self, range: ByteRange, bits: Bits) -> u64 {
        let state = self.state.lock();
        let mut id = state.records.find(range.start(), Id::NONE);
        let mut bytes = 0_u64;
        while id.is_some() {
            let record = state.records.get(id);
            if record.start > range.last() {
                break;
            }
            if record.bits.contains(bits) {
                let start = record.start.max(range.start());
                let part = ByteRange::new(start, record.last.min(range.last()));
                bytes = bytes.saturating_add(part.map_or(0, ByteRange::bytes));
            }
            id = record.next;
        }
        bytes
    }

    /// All records in order: for tests and reports.
    pub fn dump(&self) -> Vec<(ByteRange, Bits)> {
        let state = self.state.lock();
        let mut all = Vec::with_capacity(state.records.len());
        let mut id = state.records.first();
        while id.is_some() {
            let record = state.records.get(id);
            all.push((record.range(), record.bits));
            id = record.next;
        }
        all
    }
}

/// Without lock bits, which have their own calls.
fn unlocked(what: Resolved) -> Resolved {
    debug_assert!(!what.state.intersects(Bits::LOCKS), "{what:?}");
    Resolved {
        state: what.state.difference(Bits::LOCKS),
        control: what.control,
    }
}
