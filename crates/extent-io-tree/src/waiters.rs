//! Threads that wait: their slots, the queues they stand in, and how they sleep.
//!
//! A waiter stands in the queue of one record whose lock it waits for, or behind another waiter
//! that was woken before it and wants some of the same bytes (it *follows* that one). It holds
//! no record: a record may leave the tree, and its slot be used again, before the waiter has
//! even run.
//!
//! Slots and queues are under the tree's lock. A [`Parker`] is not: it is touched after that
//! was let go of.

use std::sync::Arc;

use extant_sync::atomic::{AtomicBool, Ordering};
use extant_sync::thread::{Thread, current, park};

use crate::bits::Bits;
use crate::range::ByteRange;

/// Slots of a tree's first allocation.
const FIRST_SLOTS: usize = 4;

/// A sleeping thread.
pub(crate) struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// Of the calling thread, which alone may [`Parker::sleep`].
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: current(),
            woken: AtomicBool::new(false),
        })
    }

    /// Until [`Parker::wake`], which may have come already.
    pub(crate) fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            park();
        }
    }

    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// A waiter's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(u32);

impl WaiterId {
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn slot(self) -> usize {
        self.0 as usize
    }
}

/// Waiters in the order in which they came: a ring, known by its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue(WaiterId);

impl Queue {
    pub(crate) const EMPTY: Self = Self(WaiterId::NONE);

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }
}

/// A request that a thread waits for.
#[derive(Clone)]
pub(crate) struct Waiter {
    pub(crate) range: ByteRange,
    /// The lock bits that it wants to set, or whose end it waits for.
    pub(crate) wanted: Bits,
    /// It only waits for them to go, and blocks no other waiter.
    pub(crate) watches: bool,
    /// How often it went to sleep.
    pub(crate) tries: u32,
    /// Waiters that are woken when this one has been served.
    pub(crate) followers: Queue,
    parker: Option<Arc<Parker>>,
    next: WaiterId,
}

impl Waiter {
    pub(crate) fn new(range: ByteRange, wanted: Bits, watches: bool, parker: Arc<Parker>) -> Self {
        Self {
            range,
            wanted,
            watches,
            tries: 0,
            followers: Queue::EMPTY,
            parker: Some(parker),
            next: WaiterId::NONE,
        }
    }

    /// Returns whether `self` cannot have what it wants while `range` has, or is about to have, the
    /// lock bits `held`.
    pub(crate) fn minds(&self, range: ByteRange, held: Bits) -> bool {
        self.wanted.intersects(held) && self.range.overlaps(range)
    }
}

/// The waiters of a tree.
pub(crate) struct Waiters {
    slots: Vec<Waiter>,
    /// Free slots, linked by `next`.
    free: WaiterId,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: WaiterId::NONE,
        }
    }

    /// Returns whether [`Waiters::insert`] needs memory.
    pub(crate) fn wants_room(&self) -> bool {
        self.free.is_none() && self.slots.len() == self.slots.capacity()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Memory for more than `capacity` waiters, to be [adopted](Waiters::adopt).
    pub(crate) fn larger(capacity: usize) -> Vec<Waiter> {
        Vec::with_capacity((capacity * 2).max(FIRST_SLOTS))
    }

    /// Moves the waiters into `memory`; what is returned is to be freed outside of the lock.
    pub(crate) fn adopt(&mut self, mut memory: Vec<Waiter>) -> Vec<Waiter> {
        if memory.capacity() > self.slots.capacity() {
            memory.append(&mut self.slots);
            std::mem::swap(&mut memory, &mut self.slots);
        }
        memory
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "there are fewer threads than numbers"
    )]
    pub(crate) fn insert(&mut self, waiter: Waiter) -> WaiterId {
        let id = self.free;
        if id.is_none() {
            self.slots.push(waiter);
            return WaiterId(self.slots.len() as u32 - 1);
        }
        self.free = self.get(id).next;
        *self.get_mut(id) = waiter;
        id
    }

    /// Gives a slot back. The waiter stands in no queue and has no followers.
    pub(crate) fn remove(&mut self, id: WaiterId) {
        let free = self.free;
        let waiter = self.get_mut(id);
        (waiter.parker, waiter.next) = (None, free);
        self.free = id;
    }

    pub(crate) fn get(&self, id: WaiterId) -> &Waiter {
        &self.slots[id.slot()]
    }

    pub(crate) fn get_mut(&mut self, id: WaiterId) -> &mut Waiter {
        &mut self.slots[id.slot()]
    }

    /// How to wake this one.
    pub(crate) fn parker(&self, id: WaiterId) -> Option<Arc<Parker>> {
        self.get(id).parker.clone()
    }

    /// Puts a waiter, which stands in no queue, at the end.
    pub(crate) fn push(&mut self, queue: &mut Queue, id: WaiterId) {
        if queue.is_empty() {
            self.get_mut(id).next = id;
        } else {
            let first = std::mem::replace(&mut self.get_mut(queue.0).next, id);
            self.get_mut(id).next = first;
        }
        *queue = Queue(id);
    }

    /// Takes the first waiter out.
    pub(crate) fn pop(&mut self, queue: &mut Queue) -> Option<WaiterId> {
        if queue.is_empty() {
            return None;
        }
        let first = self.get(queue.0).next;
        if first == queue.0 {
            *queue = Queue::EMPTY;
        } else {
            let second = self.get(first).next;
            self.get_mut(queue.0).next = second;
        }
        self.get_mut(first).next = WaiterId::NONE;
        Some(first)
    }

    /// Puts all of `more` behind `queue`.
    pub(crate) fn append(&mut self, queue: &mut Queue, more: Queue) {
        if queue.is_empty() || more.is_empty() {
            if queue.is_empty() {
                *queue = more;
            }
            return;
        }
        let (ours, theirs) = (self.get(queue.0).next, self.get(more.0).next);
        self.get_mut(queue.0).next = theirs;
        self.get_mut(more.0).next = ours;
        *queue = more;
    }

    /// The first waiter of a queue that satisfies `wanted`.
    pub(crate) fn first(&self, queue: Queue, wanted: impl Fn(&Waiter) -> bool) -> Option<WaiterId> {
        if queue.is_empty() {
            return None;
        }
        let mut id = queue.0;
        loop {
            id = self.get(id).next;
            if wanted(self.get(id)) {
                return Some(id);
            }
            if id == queue.0 {
                return None;
            }
        }
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_each_by_one_waiter() {
        let range = ByteRange::new(0, 9).unwrap();
        let waiter = || Waiter::new(range, Bits::LOCKED, false, Parker::new());
        let mut waiters = Waiters::new();
        let first: Vec<WaiterId> = (0..3).map(|_| waiters.insert(waiter())).collect();
        first.iter().for_each(|id| waiters.remove(*id));
        assert!(first.iter().all(|id| waiters.parker(*id).is_none()));
        assert!(!waiters.wants_room());
        let again: Vec<WaiterId> = (0..3).map(|_| waiters.insert(waiter())).collect();
        assert_eq!(waiters.slots.len(), 3);
        let mut queue = Queue::EMPTY;
        again.iter().for_each(|id| waiters.push(&mut queue, *id));
        let order: Vec<usize> = std::iter::from_fn(|| waiters.pop(&mut queue))
            .map(WaiterId::slot)
            .collect();
        assert_eq!(order, [2, 1, 0]);
        assert!(again.iter().all(|id| waiters.get(*id).next.is_none()));
    }
}
