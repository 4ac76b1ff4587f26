//! The state under the tree's lock: setting, clearing, cutting, merging.
//!
//! Invariants: records are disjoint, none is without bits, neighbours with the same bits are
//! one unless locked; the lock count is that of the records; a waiter stands in the
//! queue of a record that has lock bits which block it, or follows a waiter that does.

use crate::bits::{Bits, Resolved};
use crate::changeset::Changeset;
use crate::hooks::Hooks;
use crate::range::ByteRange;
use crate::record::{Id, Record};
use crate::records::Records;
use crate::report::io_tree_panic;
use crate::stats::TreeStats;
use crate::step::{Omitted, Step};
use crate::waiters::{Queue, WaiterId, Waiters};

/// See the head of the file.
pub(crate) struct State<H> {
    pub(crate) records: Records,
    pub(crate) waiters: Waiters,
    pub(crate) hooks: H,
    pub(crate) stats: TreeStats,
    /// Records with a lock bit, as [`lock_count`] counts them.
    pub(crate) locked: u64,
    /// Waiters to wake as soon as the tree's lock is released.
    pub(crate) to_wake: Queue,
    /// The waiter that no other request may overtake: it lost too many times.
    pub(crate) preferred: WaiterId,
    /// Clears trim records in place.
    trim: bool,
    pub(crate) omitted: Omitted,
}

/// A record's part of the count by its bits: one in the lower half if locked, one in the
/// upper half for direct I/O.
#[inline]
pub(crate) fn lock_count(bits: Bits) -> u64 {
    let dio = u64::from(bits.contains(Bits::DIO_LOCKED)) << 32;
    u64::from(bits.contains(Bits::LOCKED)) + dio
}

impl<H: Hooks> State<H> {
    pub(crate) fn new(trim: bool, hooks: H) -> Self {
        Self {
            records: Records::new(),
            waiters: Waiters::new(),
            hooks,
            stats: TreeStats::default(),
            locked: 0,
            to_wake: Queue::EMPTY,
            preferred: WaiterId::NONE,
            trim,
            omitted: Omitted::default(),
        }
    }

    /// Sets bits all over `range`. Returns the record that got its first byte, which may have
    /// merged since: a hint.
    ///
    /// `id` is the first record that ends at the start of the range or behind it, as for all
    /// that begin with a record found.
    pub(crate) fn set(
        &mut self,
        range: ByteRange,
        what: Resolved,
        mut changes: Option<&mut Changeset>,
        mut id: Id,
    ) -> Id {
        self.stats.sets += 1;
        let mut at = range.start();
        let mut first = Id::NONE;
        loop {
            let done = match self.gap(id, at, range.last()) {
                Some(gap) => self.fill(id, gap, what, changes.as_deref_mut()),
                None => self.set_in(id, at, range.last(), what, changes.as_deref_mut()),
            };
            if first.is_none() {
                first = done;
            }
            let end = self.records.get(done).last;
            if end >= range.last() {
                return first;
            }
            at = end + 1;
            id = self.records.next(done);
        }
    }

    /// The bytes from `at` to `last` or to the record `id`, if there are any.
    #[inline]
    fn gap(&self, id: Id, at: u64, last: u64) -> Option<ByteRange> {
        if id.is_none() {
            return ByteRange::new(at, last);
        }
        let start = self.records.get(id).start;
        ByteRange::new(at, start.checked_sub(1)?.min(last))
    }

    /// Sets bits where there were none, in front of the record `next`. Returns the record that
    /// has them now.
    #[inline]
    fn fill(
        &mut self,
        next: Id,
        gap: ByteRange,
        what: Resolved,
        changes: Option<&mut Changeset>,
    ) -> Id {
        self.note(changes, gap, Bits::empty(), what.state, true);
        self.hooks.set(gap, Bits::empty(), what.state, what.control);
        self.locked += lock_count(what.state);
        if Record::may_merge(what.state)
            && let Some(id) = self.extend(next, gap, what.state)
        {
            return id;
        }
        self.insert_before(next, Record::new(gap, what.state))
    }

    /// Lets a neighbour with the same bits grow over `gap`, which lies in front of the record
    /// `next`.
    fn extend(&mut self, next: Id, gap: ByteRange, bits: Bits) -> Option<Id> {
        let prev = self.records.prev(next);
        if prev.is_some() {
            let left = *self.records.get(prev);
            if left.bits == bits && left.last.checked_add(1) == Some(gap.start()) {
                self.stats.merges += 1;
                self.hooks.merge(left.range(), gap, bits);
                self.records.get_mut(prev).last = gap.last();
                return Some(self.merge(prev));
            }
        }
        if next.is_some() {
            let right = *self.records.get(next);
            if right.bits == bits && right.start.checked_sub(1) == Some(gap.last()) {
                self.stats.merges += 1;
                self.hooks.merge(gap, right.range(), bits);
                self.records.get_mut(next).start = gap.start();
                return Some(next);
            }
        }
        None
    }

    /// Sets bits between `at` and `last` in the record `id`, which has the byte `at`. Returns
    /// the record that has it now.
    fn set_in(
        &mut self,
        id: Id,
        at: u64,
        last: u64,
        what: Resolved,
        changes: Option<&mut Changeset>,
    ) -> Id {
        let record = *self.records.get(id);
        if record.bits.contains(what.state) {
            return id;
        }
        if record.start < at {
            self.split(id, at);
        }
        let id = match last.checked_add(1) {
            Some(behind) if record.last > last => self.split(id, behind),
            _ => id,
        };
        let range = self.records.get(id).range();
        self.note(changes, range, record.bits, what.state, true);
        self.hooks.set(range, record.bits, what.state, what.control);
        let bits = record.bits | what.state;
        self.locked += lock_count(bits) - lock_count(record.bits);
        self.records.get_mut(id).bits = bits;
        self.merge(id)
    }

    /// Clears bits all over `range`; see [`State::set`] for `id`.
    pub(crate) fn clear(
        &mut self,
        range: ByteRange,
        what: Resolved,
        mut changes: Option<&mut Changeset>,
        mut id: Id,
    ) {
        self.stats.clears += 1;
        while id.is_some() {
            let record = *self.records.get(id);
            if record.start > range.last() {
                break;
            }
            if !record.bits.intersects(what.state) {
                id = self.records.next(id);
                continue;
            }
            let empties = self.trim && what.state.contains(record.bits);
            if record.start < range.start() {
                if empties && record.last <= range.last() {
                    id = self.trim_first(id, range.start(), what, changes.as_deref_mut());
                    continue;
                }
                self.split(id, range.start());
            }
            match range.last().checked_add(1) {
                Some(behind) if record.last > range.last() => {
                    if empties {
                        self.trim_last(id, behind, what, changes.as_deref_mut());
                    } else {
                        let id = self.split(id, behind);
                        self.clear_one(id, what, changes.as_deref_mut());
                    }
                    break;
                }
                _ => id = self.clear_one(id, what, changes.as_deref_mut()),
            }
        }
    }

    /// Clears all bits of a record from `start` on, before which it begins: its end moves.
    /// Returns the record behind it.
    fn trim_first(
        &mut self,
        id: Id,
        start: u64,
        what: Resolved,
        changes: Option<&mut Changeset>,
    ) -> Id {
        self.stats.trim_first += 1;
        let record = *self.records.get(id);
        self.hooks.split(record.range(), record.bits, start);
        // The record is what is cleared, for as long as that takes.
        self.records.get_mut(id).start = start;
        self.account_clear(id, what, changes);
        let rest = self.records.get_mut(id);
        (rest.start, rest.last) = (record.start, start - 1);
        self.wake_after_trim(id, record.bits, what.state);
        self.records.next(id)
    }

    /// Clears all bits of a record up to `behind`, where it goes on: its start moves.
    fn trim_last(&mut self, id: Id, behind: u64, what: Resolved, changes: Option<&mut Changeset>) {
        self.stats.trim_last += 1;
        let record = *self.records.get(id);
        let whole = self.records.get(id).range();
        self.hooks.split(whole, record.bits, behind);
        self.records.get_mut(id).last = behind - 1;
        self.account_clear(id, what, changes);
        let rest = self.records.get_mut(id);
        (rest.start, rest.last) = (behind, record.last);
        self.wake_after_trim(id, record.bits, what.state);
    }

    /// Wakes the waiters for the bytes that a record, whose bits are `had`, has lost with all of
    /// them.
    #[inline]
    fn wake_after_trim(&mut self, id: Id, had: Bits, cleared: Bits) {
        if !self.omitted.is(Step::TrimWakes) {
            self.wake_after_clear(id, had, cleared);
        }
    }

    /// Clears bits of a whole record, which goes if it has no others. Returns the record behind
    /// it. Which waiters to wake follows from the bits.
    fn clear_one(&mut self, id: Id, what: Resolved, changes: Option<&mut Changeset>) -> Id {
        self.account_clear(id, what, changes);
        let had = self.records.get(id).bits;
        let left = had.difference(what.state);
        self.locked -= lock_count(had) - lock_count(left);
        self.records.get_mut(id).bits = left;
        if !self.omitted.is(Step::ClearWakes) {
            self.wake_after_clear(id, had, what.state);
        }
        if left.is_empty() {
            let record = self.records.get(id);
            if !record.waiters.is_empty() {
                io_tree_panic!("a record without bits has waiters", record);
            }
            return self.records.remove(id);
        }
        let id = self.merge(id);
        self.records.next(id)
    }

    /// Tells the changeset and the owner what a record is about to lose.
    fn account_clear(&mut self, id: Id, what: Resolved, changes: Option<&mut Changeset>) {
        let record = *self.records.get(id);
        self.note(changes, record.range(), record.bits, what.state, false);
        self.hooks
            .clear(record.range(), record.bits, what.state, what.control);
    }

    /// Wakes the waiters for what a record, which had the bits `had`, has lost.
    #[inline]
    fn wake_after_clear(&mut self, id: Id, had: Bits, cleared: Bits) {
        if had.intersects(cleared & Bits::LOCKS) {
            if self.records.get(id).waiters.is_empty() {
                self.stats.wakes_skipped += 1;
            } else {
                self.wake_queue(id);
            }
        }
    }

    /// Cuts a record in two. Returns the left part, which is the new one.
    fn split(&mut self, id: Id, at: u64) -> Id {
        let record = *self.records.get(id);
        self.hooks.split(record.range(), record.bits, at);
        let Some(left) = ByteRange::new(record.start, at - 1) else {
            io_tree_panic!("a record is cut outside of itself", record)
        };
        self.stats.splits += 1;
        self.stats.prealloc_allocs += 1;
        let left = self.insert_before(id, Record::new(left, record.bits));
        self.records.get_mut(id).start = at;
        self.locked += lock_count(record.bits);
        if !record.waiters.is_empty() && !self.omitted.is(Step::CutDividesWaiters) {
            self.divide_queue(left, id);
        }
        left
    }

    fn insert_before(&mut self, next: Id, record: Record) -> Id {
        let (id, grew) = self.records.insert_before(next, record);
        self.stats.grows_inside += u64::from(grew);
        id
    }

    /// Makes a record one with its neighbours, if they agree. Returns the one.
    #[inline]
    fn merge(&mut self, id: Id) -> Id {
        let record = *self.records.get(id);
        if !Record::may_merge(record.bits) {
            return id;
        }
        let prev = self.records.prev(id);
        if prev.is_some() {
            let left = *self.records.get(prev);
            if left.bits == record.bits && left.last.checked_add(1) == Some(record.start) {
                self.stats.merges += 1;
                self.hooks.merge(left.range(), record.range(), record.bits);
                self.records.get_mut(id).start = left.start;
                self.records.remove(prev);
            }
        }
        let next = self.records.next(id);
        if next.is_some() {
            let right = *self.records.get(next);
            if right.bits == record.bits && record.last.checked_add(1) == Some(right.start) {
                self.stats.merges += 1;
                let left = self.records.get(id).range();
                self.hooks.merge(left, right.range(), record.bits);
                self.records.get_mut(id).last = right.last;
                self.records.remove(next);
            }
        }
        id
    }

    /// Adds to the changeset what a record that had the bits `had` gets (`set`) or loses, if
    /// anything.
    #[inline]
    fn note(
        &mut self,
        changes: Option<&mut Changeset>,
        range: ByteRange,
        had: Bits,
        bits: Bits,
        set: bool,
    ) {
        let Some(changes) = changes else { return };
        let bits = bits.difference(Bits::LOCKS);
        let flips = if set {
            !had.contains(bits)
        } else {
            had.intersects(bits)
        };
        if flips {
            self.stats.grows_inside += u64::from(changes.is_full());
            if changes.add(range).is_err() {
                io_tree_panic!("no memory for a changeset", range);
            }
        }
    }
}

#[cfg(test)]
mod tests;
