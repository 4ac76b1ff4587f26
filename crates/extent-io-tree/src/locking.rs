//! Lock bits, under the tree's lock: which request is granted, which waits, and which is woken.
//!
//! A request gets its whole range or nothing, in one step; so no thread sleeps while it holds a
//! part, and there is no part to give up before sleeping. What was taken is in the tree as lock
//! bits of records.
//!
//! **Waking.** When a record is unlocked its queue is gone through in order. The first waiter
//! is woken; a later one, too, unless it wants bytes that one of those just woken wants: it
//! follows that one, and is woken (or waits for another record) when that one has been served.
//! So a release wakes as many threads as can go on, not a herd, and no wake is lost: a waiter
//! that was woken always comes back here, by [`State::arrived`] or [`State::wait_for`].
//!
//! **Order.** A range that becomes free goes to the first request: a running thread may take it
//! before the woken one is there, which is what makes short locks fast. A waiter that lost
//! [`PATIENCE`] times becomes the preferred one: until its range is granted, all other requests
//! for bytes of that range follow it.

use crate::bits::{Bits, Resolved};
use crate::hooks::Hooks;
use crate::range::ByteRange;
use crate::record::Id;
use crate::state::State;
use crate::step::Step;
use crate::waiters::{Queue, WaiterId};

/// Sleeps of a waiter before no other request may overtake it: as many as a model checker can
/// afford, or 6.
pub(crate) const PATIENCE: u32 = if cfg!(extant_shuttle) { 2 } else { 6 };

/// Why a range cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// This record is locked.
    By(Id),
    /// This waiter is preferred, and wants bytes of it.
    Behind(WaiterId),
}

impl<H: Hooks> State<H> {
    /// Locks all of `range` or nothing of it. `me` is the caller's waiter, if it has one.
    /// Returns the record of the first byte.
    #[inline]
    pub(crate) fn try_lock(
        &mut self,
        range: ByteRange,
        bits: Bits,
        me: WaiterId,
    ) -> Result<Id, Blocked> {
        let id = self.records.find(range.start(), Id::NONE);
        if let Some(blocked) = self.blocked_from(id, range, bits, me) {
            return Err(blocked);
        }
        let state = bits & Bits::LOCKS;
        let control = Bits::empty();
        Ok(self.set(range, Resolved { state, control }, None, id))
    }

    /// The obstacle of a request of `me` for `range`, if any.
    pub(crate) fn blocked(&self, range: ByteRange, bits: Bits, me: WaiterId) -> Option<Blocked> {
        let id = self.records.find(range.start(), Id::NONE);
        self.blocked_from(id, range, bits, me)
    }

    #[inline]
    fn blocked_from(&self, id: Id, range: ByteRange, bits: Bits, me: WaiterId) -> Option<Blocked> {
        if !self.preferred.is_none() && self.preferred != me {
            let preferred = self.waiters.get(self.preferred);
            if preferred.minds(range, bits) {
                return Some(Blocked::Behind(self.preferred));
            }
        }
        if self.locked == 0 || self.omitted.is(Step::RequestSeesOwners) {
            return None;
        }
        self.owned(range, bits, id).map(Blocked::By)
    }

    /// The first record of `range` with one of the lock bits, looked for from `id` on.
    #[inline]
    pub(crate) fn owned(&self, range: ByteRange, bits: Bits, mut id: Id) -> Option<Id> {
        while id.is_some() {
            let record = self.records.get(id);
            if record.start > range.last() {
                break;
            }
            if record.bits.intersects(bits & Bits::LOCKS) {
                return Some(id);
            }
            id = record.next;
        }
        None
    }

    /// Puts the waiter `me`, which stands in no queue, where it is woken when what blocks it
    /// goes; followers that are not blocked by that go on.
    pub(crate) fn wait_for(&mut self, blocked: Blocked, me: WaiterId) {
        let waiter = self.waiters.get_mut(me);
        let newcomer = waiter.tries == 0;
        waiter.tries += 1;
        let patient = waiter.watches || waiter.tries < PATIENCE;
        let mut followers = std::mem::replace(&mut waiter.followers, Queue::EMPTY);
        if !patient && self.preferred.is_none() {
            self.preferred = me;
        }
        let mut queue = Queue::EMPTY;
        self.waiters.push(&mut queue, me);
        while let Some(id) = self.waiters.pop(&mut followers) {
            let follower = self.waiters.get(id);
            let behind = match blocked {
                Blocked::By(record) => {
                    let record = self.records.get(record);
                    follower.minds(record.range(), record.bits)
                }
                Blocked::Behind(preferred) => {
                    let preferred = self.waiters.get(preferred);
                    follower.minds(preferred.range, preferred.wanted)
                }
            };
            let queue = if behind {
                &mut queue
            } else {
                &mut self.to_wake
            };
            self.waiters.push(queue, id);
        }
        match blocked {
            Blocked::By(record) => {
                let others = self.records.get(record).waiters;
                // A waiter that was woken before stands before those that came meanwhile.
                let (mut all, later) = match newcomer {
                    true => (others, queue),
                    false => (queue, others),
                };
                self.waiters.append(&mut all, later);
                self.records.get_mut(record).waiters = all;
            }
            Blocked::Behind(preferred) => {
                let mut all = self.waiters.get(preferred).followers;
                self.waiters.append(&mut all, queue);
                self.waiters.get_mut(preferred).followers = all;
            }
        }
    }

    /// The waiter `me` is served: it holds the lock bits `held` of `range`, or needs nothing
    /// any more (`None`). Its slot goes.
    pub(crate) fn arrived(&mut self, me: WaiterId, held: Option<(ByteRange, Bits)>) {
        if self.preferred == me {
            self.preferred = WaiterId::NONE;
        }
        let mut followers =
            std::mem::replace(&mut self.waiters.get_mut(me).followers, Queue::EMPTY);
        if self.omitted.is(Step::ServedPassesFollowersOn) {
            followers = Queue::EMPTY;
        }
        while let Some(id) = self.waiters.pop(&mut followers) {
            let follower = self.waiters.get(id);
            let wanted = (follower.range, follower.wanted);
            let owned = held.filter(|&(range, bits)| follower.minds(range, bits));
            let blocking = owned.and_then(|_| {
                let first = self.records.find(wanted.0.start(), Id::NONE);
                self.owned(wanted.0, wanted.1, first)
            });
            match blocking {
                Some(record) => {
                    let mut queue = self.records.get(record).waiters;
                    self.waiters.push(&mut queue, id);
                    self.records.get_mut(record).waiters = queue;
                }
                None => self.waiters.push(&mut self.to_wake, id),
            }
        }
        self.waiters.remove(me);
    }

    /// A record has lost lock bits, or bytes: wakes the waiters of its queue that can go on.
    #[cold]
    pub(crate) fn wake_queue(&mut self, id: Id) {
        let mut queue = std::mem::replace(&mut self.records.get_mut(id).waiters, Queue::EMPTY);
        let record = *self.records.get(id);
        let (mut stay, mut go, mut woken) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
        while let Some(waiter) = self.waiters.pop(&mut queue) {
            let part = if self.waiters.get(waiter).minds(record.range(), record.bits) {
                &mut stay
            } else if waiter == self.preferred {
                // It follows no other, as all others follow it.
                &mut woken
            } else {
                &mut go
            };
            self.waiters.push(part, waiter);
        }
        while let Some(waiter) = self.waiters.pop(&mut go) {
            match self.first_followed(woken, waiter) {
                Some(before) => {
                    let mut followers = self.waiters.get(before).followers;
                    self.waiters.push(&mut followers, waiter);
                    self.waiters.get_mut(before).followers = followers;
                }
                None => self.waiters.push(&mut woken, waiter),
            }
        }
        self.waiters.append(&mut self.to_wake, woken);
        self.records.get_mut(id).waiters = stay;
    }

    /// The first of `woken` that `waiter` follows.
    fn first_followed(&self, woken: Queue, waiter: WaiterId) -> Option<WaiterId> {
        let waiter = self.waiters.get(waiter);
        self.waiters.first(woken, |before| {
            !waiter.watches && !before.watches && waiter.minds(before.range, before.wanted)
        })
    }

    /// A record was cut in two: waiters that only the left part blocks wait for that one.
    #[cold]
    pub(crate) fn divide_queue(&mut self, left: Id, right: Id) {
        let mut queue = std::mem::replace(&mut self.records.get_mut(right).waiters, Queue::EMPTY);
        let range = self.records.get(right).range();
        let (mut stay, mut go) = (Queue::EMPTY, Queue::EMPTY);
        while let Some(id) = self.waiters.pop(&mut queue) {
            let part = if self.waiters.get(id).range.overlaps(range) {
                &mut stay
            } else {
                &mut go
            };
            self.waiters.push(part, id);
        }
        self.records.get_mut(right).waiters = stay;
        self.records.get_mut(left).waiters = go;
    }
}
