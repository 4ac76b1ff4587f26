//! The records of a tree in order: a treap over slots, whose records also know their
//! neighbours.
//!
//! Slots are recycled through a free list, so that inserting and removing cost no memory in the
//! long run; a slot is one cache line's worth and names others by number. The treap is ordered
//! by position and a heap by random ranks, so its depth stays logarithmic whatever callers do,
//! with two rotations per change on average. Records never overlap, so trimming one in place
//! keeps the order.
//!
//! No locks in here: all of it is under the tree's. Growing is done in three steps, so that the
//! memory comes from outside of that lock: [`Records::wants_room`], [`Records::larger`],
//! [`Records::adopt`].

use crate::bits::Bits;
use crate::record::{Id, Record};
use crate::report::io_tree_panic;

/// Slots of a tree's first allocation.
const FIRST_SLOTS: usize = 4;
/// An empty tree with more slots than this gives them back.
const KEPT_SLOTS: usize = 1024;

/// See the head of the file.
pub(crate) struct Records {
    slots: Vec<Record>,
    root: Id,
    /// The first and the last record by position.
    first: Id,
    last: Id,
    /// Free slots, linked by `next`.
    free: Id,
    free_len: usize,
    len: usize,
    /// Source of ranks.
    random: u32,
}

impl Records {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            root: Id::NONE,
            first: Id::NONE,
            last: Id::NONE,
            free: Id::NONE,
            free_len: 0,
            len: 0,
            random: 0x9e37_79b9,
        }
    }

    /// Records in the tree.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Slots in memory, used or not.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Returns whether fewer than `need` records can be inserted without new memory.
    #[inline]
    pub(crate) fn wants_room(&self, need: usize) -> bool {
        self.free_len + (self.slots.capacity() - self.slots.len()) < need
    }

    /// Memory for a tree of more than `capacity` slots, to be [adopted](Records::adopt).
    pub(crate) fn larger(capacity: usize) -> Vec<Record> {
        Vec::with_capacity((capacity * 2).max(FIRST_SLOTS))
    }

    /// Moves the records into `memory`; what is returned is to be freed outside of the lock.
    /// Another thread may have been faster.
    pub(crate) fn adopt(&mut self, mut memory: Vec<Record>) -> Vec<Record> {
        if memory.capacity() > self.slots.capacity() {
            memory.append(&mut self.slots);
            std::mem::swap(&mut memory, &mut self.slots);
        }
        memory
    }

    /// The memory of a tree that was large and is empty, to be freed outside of the lock.
    #[inline]
    pub(crate) fn surplus(&mut self) -> Option<Vec<Record>> {
        if self.len > 0 || self.slots.capacity() <= KEPT_SLOTS {
            return None;
        }
        self.free = Id::NONE;
        self.free_len = 0;
        Some(std::mem::take(&mut self.slots))
    }

    /// A record of the tree.
    #[inline]
    pub(crate) fn get(&self, id: Id) -> &Record {
        &self.slots[id.slot()]
    }

    /// A record of the tree. Its position may only change between those of its neighbours.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id) -> &mut Record {
        &mut self.slots[id.slot()]
    }

    /// The first record by position.
    pub(crate) fn first(&self) -> Id {
        self.first
    }

    /// The record behind this one.
    #[inline]
    pub(crate) fn next(&self, id: Id) -> Id {
        self.get(id).next
    }

    /// The record before this one; of none, the last one.
    #[inline]
    pub(crate) fn prev(&self, id: Id) -> Id {
        if id.is_none() {
            self.last
        } else {
            self.get(id).prev
        }
    }

    /// The first record that ends at `at` or behind it. `hint` saves the search if it is a
    /// record that contains `at`: any slot will do, as no two records contain the same byte.
    #[inline]
    pub(crate) fn find(&self, at: u64, hint: Id) -> Id {
        if let Some(record) = self.slots.get(hint.slot())
            && record.start <= at
            && at <= record.last
            && !record.bits.is_empty()
        {
            return hint;
        }
        let (mut id, mut best) = (self.root, Id::NONE);
        while id.is_some() {
            let record = self.get(id);
            if record.last < at {
                id = record.right;
            } else {
                best = id;
                if record.start <= at {
                    break;
                }
                id = record.left;
            }
        }
        best
    }

    /// Puts a record in front of `next`; of none, at the end. Says whether that took memory
    /// from the allocator.
    pub(crate) fn insert_before(&mut self, next: Id, record: Record) -> (Id, bool) {
        let grew = self.free.is_none() && self.slots.len() == self.slots.capacity();
        let prev = self.prev(next);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let record = Record {
            rank: self.random,
            prev,
            next,
            ..record
        };
        let id = if self.free.is_some() {
            let id = self.free;
            self.free = self.get(id).next;
            self.free_len -= 1;
            *self.get_mut(id) = record;
            id
        } else {
            self.slots.push(record);
            Id::new(self.slots.len() - 1)
        };
        self.len += 1;
        self.link_neighbours(prev, id, id, next);
        // Of two neighbours one is below the other, so one of these links is empty.
        if prev.is_some() && self.get(prev).right.is_none() {
            self.get_mut(prev).right = id;
            self.get_mut(id).parent = prev;
        } else if next.is_some() {
            self.get_mut(next).left = id;
            self.get_mut(id).parent = next;
        } else {
            self.root = id;
        }
        while self.get(id).parent.is_some()
            && self.get(self.get(id).parent).rank < self.get(id).rank
        {
            self.rotate_up(id);
        }
        (id, grew)
    }

    /// Takes a record, which has no bits left, out of the tree, and returns the one behind it.
    pub(crate) fn remove(&mut self, id: Id) -> Id {
        let (prev, next) = (self.get(id).prev, self.get(id).next);
        loop {
            let Record { left, right, .. } = *self.get(id);
            if left.is_some() && right.is_some() {
                let higher = self.get(left).rank > self.get(right).rank;
                self.rotate_up(if higher { left } else { right });
                continue;
            }
            let child = if left.is_some() { left } else { right };
            let parent = self.get(id).parent;
            self.replace_child(parent, id, child);
            if child.is_some() {
                self.get_mut(child).parent = parent;
            }
            break;
        }
        self.link_neighbours(prev, next, prev, next);
        self.len -= 1;
        let free = self.free;
        let record = self.get_mut(id);
        (record.bits, record.next) = (Bits::empty(), free);
        (record.left, record.right, record.parent) = (Id::NONE, Id::NONE, Id::NONE);
        self.free = id;
        self.free_len += 1;
        next
    }

    /// Makes `after` follow `prev`, and `before` precede `next`.
    fn link_neighbours(&mut self, prev: Id, after: Id, before: Id, next: Id) {
        if prev.is_some() {
            self.get_mut(prev).next = after;
        } else {
            self.first = after;
        }
        if next.is_some() {
            self.get_mut(next).prev = before;
        } else {
            self.last = before;
        }
    }

    /// Puts `new` where `old` is, below `parent`.
    fn replace_child(&mut self, parent: Id, old: Id, new: Id) {
        if parent.is_none() {
            if self.root != old {
                io_tree_panic!("a record is not in the tree", self.get(old));
            }
            self.root = new;
        } else if self.get(parent).left == old {
            self.get_mut(parent).left = new;
        } else if self.get(parent).right == old {
            self.get_mut(parent).right = new;
        } else {
            io_tree_panic!("a record is not in the tree", self.get(old));
        }
    }

    /// Swaps a record with its parent.
    fn rotate_up(&mut self, id: Id) {
        let parent = self.get(id).parent;
        let above = self.get(parent).parent;
        self.replace_child(above, parent, id);
        let moved = if self.get(parent).left == id {
            let moved = std::mem::replace(&mut self.get_mut(id).right, parent);
            self.get_mut(parent).left = moved;
            moved
        } else {
            let moved = std::mem::replace(&mut self.get_mut(id).left, parent);
            self.get_mut(parent).right = moved;
            moved
        };
        if moved.is_some() {
            self.get_mut(moved).parent = parent;
        }
        self.get_mut(parent).parent = id;
        self.get_mut(id).parent = above;
    }

    /// Says what is wrong with the structure: for tests.
    pub(crate) fn fault(&self) -> Option<String> {
        let (mut seen, mut prev, mut id) = (0, Id::NONE, self.first);
        while id.is_some() {
            let record = self.get(id);
            seen += 1;
            if record.prev != prev || record.bits.is_empty() || record.start > record.last {
                return Some(format!("{record:?} is malformed"));
            }
            for (child, left) in [(record.left, true), (record.right, false)] {
                if child.is_some() {
                    let below = self.get(child);
                    let ordered = left == (below.last < record.start);
                    if below.parent != id || below.rank > record.rank || !ordered {
                        return Some(format!("{below:?} is misplaced below {record:?}"));
                    }
                }
            }
            if record.parent.is_none() && self.root != id {
                return Some(format!("{record:?} hangs loose"));
            }
            if prev.is_some() {
                let before = self.get(prev);
                if before.last >= record.start {
                    return Some(format!("{before:?} overlaps {record:?}"));
                }
                let adjacent = before.last + 1 == record.start && before.bits == record.bits;
                if adjacent && Record::may_merge(record.bits) {
                    return Some(format!("{before:?} should be one with {record:?}"));
                }
            }
            if self.find(record.last, Id::NONE) != id {
                return Some(format!("{record:?} is not found"));
            }
            (prev, id) = (id, record.next);
        }
        let slots = self.len + self.free_len;
        let fits = seen == self.len && slots == self.slots.len() && self.last == prev;
        (!fits).then(|| format!("{seen} records seen of {}, {slots} slots", self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::ByteRange;

    /// As many records, apart from each other, in their order.
    fn filled(count: u64) -> (Records, Vec<Id>) {
        let mut records = Records::new();
        let ids = (0..count).map(|n| {
            let range = ByteRange::from_len(n * 10, 5).unwrap();
            records
                .insert_before(Id::NONE, Record::new(range, Bits::DIRTY))
                .0
        });
        let ids = ids.collect();
        (records, ids)
    }

    /// Records above this one, and it.
    fn depth(records: &Records, mut id: Id) -> usize {
        let mut above = 0;
        while id.is_some() {
            id = records.get(id).parent;
            above += 1;
        }
        above
    }

    #[test]
    fn a_tree_filled_in_order_stays_flat() {
        let (mut records, ids) = filled(4096);
        let deepest = |ids: &[Id], records: &Records| {
            let depths = ids.iter().map(|&id| depth(records, id));
            depths.max().unwrap()
        };
        // Twice the expected depth; a list would be 4096 deep.
        assert!(deepest(&ids, &records) < 64);
        let (gone, left): (Vec<Id>, Vec<Id>) = ids.iter().partition(|id| id.slot() % 2 == 0);
        for id in gone {
            records.remove(id);
        }
        assert_eq!(records.fault(), None);
        assert!(deepest(&left, &records) < 64);
    }

    #[test]
    fn memory_grows_by_halves_and_is_kept_while_it_is_used() {
        let mut records = Records::new();
        assert!(records.wants_room(1) && !records.wants_room(0));
        for (capacity, larger) in [(0, FIRST_SLOTS), (2, FIRST_SLOTS), (4, 8), (100, 200)] {
            assert_eq!(Records::larger(capacity).capacity(), larger);
        }
        drop(records.adopt(Records::larger(0)));
        assert!(records.wants_room(FIRST_SLOTS + 1) && !records.wants_room(FIRST_SLOTS));
        // Memory that is no larger goes back to where it came from.
        assert_eq!(
            records.adopt(Vec::with_capacity(FIRST_SLOTS)).capacity(),
            FIRST_SLOTS
        );
        let (mut large, ids) = filled(KEPT_SLOTS as u64 + 1);
        for id in ids {
            assert!(large.surplus().is_none());
            large.remove(id);
        }
        assert!(
            large
                .surplus()
                .is_some_and(|memory| memory.capacity() > KEPT_SLOTS)
        );
        assert_eq!((large.capacity(), large.fault()), (0, None));
        let mut small = Records::new();
        drop(small.adopt(Vec::with_capacity(KEPT_SLOTS)));
        assert!(small.surplus().is_none() && small.capacity() == KEPT_SLOTS);
    }

    /// The check that tests rely on sees each kind of damage, and nothing in a sound tree.
    #[test]
    fn every_damage_is_a_fault() {
        type Damage = fn(&mut Records, &[Id]);
        let damages: [(&str, Damage); 14] = [
            ("malformed", |r, ids| r.get_mut(ids[3]).prev = ids[1]),
            ("malformed", |r, ids| r.get_mut(ids[3]).bits = Bits::empty()),
            ("malformed", |r, ids| r.get_mut(ids[3]).start = 35),
            ("misplaced", |r, ids| {
                let child = r.children(ids)[0];
                r.get_mut(child).parent = child;
            }),
            ("misplaced", |r, ids| {
                let child = r.children(ids)[0];
                r.get_mut(child).rank = u32::MAX;
            }),
            ("misplaced", |r, ids| {
                // Those before it are not below it, so they are still found.
                let has_right =
                    |id: &&Id| r.get(**id).left.is_none() && r.get(**id).right.is_some();
                let id = *ids.iter().find(has_right).unwrap();
                let record = r.get_mut(id);
                std::mem::swap(&mut record.left, &mut record.right);
            }),
            ("hangs loose", |r, _| {
                let Record { left, right, .. } = *r.get(r.root);
                r.root = if left.is_some() { left } else { right };
            }),
            ("overlaps", |r, ids| {
                // The record behind it is below it.
                let mut all = ids.iter().copied();
                let above = all.find(|id| r.get(*id).right.is_some()).unwrap();
                let next = r.next(above);
                let start = r.get(next).start;
                r.get_mut(above).last = start;
            }),
            ("should be one", |r, ids| r.get_mut(ids[3]).last = 39),
            ("is not found", |r, ids| {
                let child = r.children(ids)[0];
                let parent = r.get(child).parent;
                r.replace_child(parent, child, Id::NONE);
            }),
            ("records seen of", |r, _| r.len += 1),
            ("records seen of", |r, _| r.free_len += 1),
            ("records seen of", |r, ids| r.last = ids[3]),
            ("records seen of", |r, ids| {
                r.slots.push(*r.get(ids[3]));
            }),
        ];
        for (nth, (told, damage)) in damages.into_iter().enumerate() {
            let (mut records, ids) = filled(16);
            assert_eq!(records.fault(), None);
            damage(&mut records, &ids);
            let fault = records.fault().unwrap_or_default();
            assert!(fault.contains(told), "damage {nth}: {fault}");
        }
    }

    impl Records {
        /// The records that are below another.
        fn children(&self, ids: &[Id]) -> Vec<Id> {
            let below = ids.iter().filter(|id| self.get(**id).parent.is_some());
            below.copied().collect()
        }
    }
}
