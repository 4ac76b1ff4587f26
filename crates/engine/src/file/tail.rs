//! The end of a file, locked without a record in the I/O tree: what makes an append that meets nobody cheap.
//!
//! Whoever makes the file longer, alone or with the turn of those who do ([`super::turns`]), may claim everything from a byte on by writing it into one word. Everybody
//! else locks ranges in the tree, and then looks at the word; who claims looks into the tree afterwards, and gives the claim up if
//! it finds somebody. So of two who want the same byte at least one sees the other, and it is never the claimant who waits.
//!
//! # Invariants
//! * There is one claim at most.
//! * A claim that counts was made when no locked range of the tree reached into it; and whoever has locked such a range since
//!   waits until the claim is gone.
//!
//! # Concurrency
//! The word and the tree's count of locked records are each written before the other is read, with a fence in between. A claim is dropped
//! before the waiters are counted, a waiter is counted before it looks: no wake is lost.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::{Condvar, Mutex};

/// Looks at somebody's claim before whoever has the turn goes without one.
const LOOKS: u32 = 256;
/// Nothing is claimed.
const NOTHING: u64 = u64::MAX;

/// See the module.
#[repr(align(64))]
pub(super) struct Tail {
    /// The first byte that is claimed.
    from: AtomicU64,
    waiters: AtomicU32,
    sleep: Mutex<()>,
    gone: Condvar,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(NOTHING),
            waiters: AtomicU32::new(0),
            sleep: Mutex::new(()),
            gone: Condvar::new(),
        }
    }
}

/// A claim, until it is dropped.
#[must_use]
pub(super) struct Claim<'a>(&'a Tail);

impl Tail {
    /// Claims everything from byte `from` on, unless somebody has a claim. It counts if no locked range of the tree reaches into it now, that is after this call.
    #[inline]
    pub(super) fn claim(&self, from: u64) -> Option<Claim<'_>> {
        let from = from.min(NOTHING - 1);
        let claimed =
            self.from
                .compare_exchange(NOTHING, from, Ordering::AcqRel, Ordering::Relaxed);
        claimed.ok()?;
        fence(Ordering::SeqCst);
        Some(Claim(self))
    }

    /// [`Tail::claim`] for whoever has the turn: others claim for a moment only, and are waited for.
    #[inline]
    pub(super) fn claim_in_turn(&self, from: u64) -> Option<Claim<'_>> {
        self.claim(from).or_else(|| self.claim_again(from))
    }

    #[cold]
    fn claim_again(&self, from: u64) -> Option<Claim<'_>> {
        (0..LOOKS).find_map(|_| {
            spin_loop();
            self.claim(from)
        })
    }

    /// Whether any byte up to `last` is claimed, for somebody who has just locked it in the tree.
    #[inline]
    pub(super) fn reaches(&self, last: u64) -> bool {
        fence(Ordering::SeqCst);
        self.is_claimed(last)
    }

    /// The same for somebody who has a folio locked instead: whoever had that folio under a claim before is seen.
    #[inline]
    pub(super) fn is_claimed(&self, last: u64) -> bool {
        let from = self.from.load(Ordering::Acquire);
        from <= last && from != NOTHING
    }

    /// Waits until no byte up to `last` is claimed.
    #[cold]
    pub(super) fn wait(&self, last: u64) {
        let mut held = self.sleep.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.is_claimed(last) {
            self.gone.wait(&mut held);
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    #[cold]
    fn wake(&self) {
        // Whoever is between its look and its sleep has this.
        drop(self.sleep.lock());
        self.gone.notify_all();
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.from.swap(NOTHING, Ordering::SeqCst);
        if self.0.waiters.load(Ordering::SeqCst) != 0 {
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use extant_extent_io_tree::{ByteRange, IoTree};

    use super::Tail;

    #[test]
    fn a_claim_reaches_to_infinity() {
        let tail = Tail::default();
        assert!(!tail.reaches(0) && !tail.reaches(u64::MAX));
        let claim = tail.claim(4096).unwrap();
        assert!(tail.claim(8192).is_none(), "one at a time");
        assert!(tail.claim_in_turn(0).is_none());
        assert!(!tail.reaches(4095) && tail.reaches(4096) && tail.reaches(u64::MAX));
        drop(claim);
        assert!(!tail.reaches(u64::MAX));
        let _all = tail.claim_in_turn(0);
        assert!(tail.reaches(0));
    }

    #[test]
    fn who_waits_is_woken() {
        let tail = Tail::default();
        let claim = tail.claim(10).unwrap();
        tail.wait(9);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| tail.wait(10));
            while tail.waiters.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert!(!waiter.is_finished());
            drop(claim);
            waiter.join().unwrap();
        });
        assert_eq!(tail.waiters.load(Ordering::SeqCst), 0);
    }

    /// Some claim, the others lock in the tree, as the file's writers do: nobody is ever beside anybody.
    #[test]
    fn claims_and_ranges_exclude_each_other() {
        let (tail, tree) = (Tail::default(), IoTree::default());
        let inside = AtomicU64::new(0);
        let count = |by: u64| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            (0..by).for_each(|_| std::hint::spin_loop());
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        let range = ByteRange::to_infinity(100);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let _mine = tree.lock(range);
                        if tail.reaches(range.last()) {
                            tail.wait(range.last());
                        }
                        count(round % 8);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let claim = tail.claim(range.start());
                        if claim.is_some() && !tree.is_locked(range) {
                            count(round % 8);
                            continue;
                        }
                        drop(claim);
                        let _mine = tree.lock(range);
                        if tail.reaches(range.last()) {
                            tail.wait(range.last());
                        }
                        count(round % 8);
                    }
                });
            }
        });
    }
}
