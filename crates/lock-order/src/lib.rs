//! A check of the lock order, for builds with debug assertions.
//!
//! `docs/LOCKING.md` has one order for all locks. The part of it that a file's data goes through is known here as ranks: whoever takes such a
//! lock says so first ([`taking`]), and keeps what it gets for as long as it holds the lock. A thread that takes one while it holds
//! one that comes later panics, whether or not another thread is there to wait for.
//!
//! Nothing is left of this in builds without debug assertions: [`Held`] has no size and no drop. Under a model
//! checker, whose threads are all the same one to the host, nothing is checked either.
#![forbid(unsafe_code)]

use std::marker::PhantomData;

/// Where a lock stands; a thread takes them from above to below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// A part of a file, against others who change it.
    Range,
    /// A part of a file whose device blocks are read into the cache, against those who write it past the cache.
    Fill,
    /// The cache against the block map.
    Invalidate,
    /// One writeback pass of a file.
    Pass,
    /// A folio, or a handle of the journal: which of them comes first is up to the path of the file.
    FolioOrHandle,
    /// A file's map: `i_data_sem`.
    Map,
    /// What is known of the map.
    Status,
}

/// A lock that this thread holds; to be dropped with it.
#[derive(Debug)]
#[must_use]
pub struct Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    rank: Rank,
    /// Stays on the thread that took it.
    _not_send: PhantomData<*const ()>,
}

/// A guard, and the note that its lock is held.
#[derive(Debug)]
#[must_use]
pub struct Locked<G> {
    // Dropped in this order.
    _guard: G,
    _held: Held,
}

impl<G> Locked<G> {
    /// `guard`, with the note that was made before its lock was taken.
    #[inline]
    pub fn new(guard: G, held: Held) -> Self {
        Self {
            _guard: guard,
            _held: held,
        }
    }
}

/// Takes a lock of this rank by `take`.
///
/// # Panics
/// As [`taking`].
#[inline]
#[track_caller]
pub fn lock<G>(rank: Rank, take: impl FnOnce() -> G) -> Locked<G> {
    let held = taking(rank);
    Locked {
        _guard: take(),
        _held: held,
    }
}

/// Until it is dropped, nothing is asserted on this thread.
#[derive(Debug)]
#[must_use]
pub struct Exempt(PhantomData<*const ()>);

/// This thread is going to wait for a lock of this rank.
///
/// # Panics
/// With debug assertions, if it holds a lock that comes later.
#[inline]
#[track_caller]
pub fn taking(rank: Rank) -> Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::assert_may_take(rank);
    took(rank)
}

/// This thread got a lock of this rank without waiting for it, which is in order at any time.
#[inline]
pub fn took(rank: Rank) -> Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::note(rank, 1);
    let _ = rank;
    Held {
        #[cfg(all(debug_assertions, not(extant_shuttle)))]
        rank,
        _not_send: PhantomData,
    }
}

/// For somebody who knows that nobody waits the other way round: code of a caller's that runs under our locks and uses
/// another file system, or a check of everything while nothing else runs.
#[inline]
pub fn exempt() -> Exempt {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::exempt(1);
    Exempt(PhantomData)
}

#[cfg(all(debug_assertions, not(extant_shuttle)))]
mod checked {
    use std::cell::Cell;

    use super::{Exempt, Held, Rank};

    const RANKS: [Rank; 7] = [
        Rank::Range,
        Rank::Fill,
        Rank::Invalidate,
        Rank::Pass,
        Rank::FolioOrHandle,
        Rank::Map,
        Rank::Status,
    ];

    /// Whether a thread may hold several of these: they have an order of their own.
    fn repeats(rank: Rank) -> bool {
        matches!(rank, Rank::FolioOrHandle | Rank::Map)
    }

    thread_local! {
        /// How many locks of each rank this thread holds.
        static COUNTS: [Cell<u32>; RANKS.len()] = const { [const { Cell::new(0) }; RANKS.len()] };
        static EXEMPTIONS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn note(rank: Rank, by: i32) {
        // A thread on its way out has nothing to compare any more.
        let _ = COUNTS.try_with(|counts| {
            let count = &counts[rank as usize];
            count.set(count.get().saturating_add_signed(by));
        });
    }

    pub(super) fn exempt(by: i32) {
        EXEMPTIONS.set(EXEMPTIONS.get().saturating_add_signed(by));
    }

    #[track_caller]
    pub(super) fn assert_may_take(rank: Rank) {
        if EXEMPTIONS.get() > 0 {
            return;
        }
        let held = COUNTS.try_with(|counts| {
            let held = |other: &&Rank| counts[**other as usize].get() > 0;
            RANKS.iter().rev().find(held).copied()
        });
        if let Ok(Some(held)) = held {
            assert!(
                held < rank || (held == rank && repeats(rank)),
                "lock order: {rank:?} is taken while {held:?} is held"
            );
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            note(self.rank, -1);
        }
    }

    impl Drop for Exempt {
        fn drop(&mut self) {
            exempt(-1);
        }
    }
}

#[cfg(all(test, debug_assertions, not(extant_shuttle)))]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn panics(take: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        catch_unwind(take).is_err()
    }

    #[test]
    fn what_comes_earlier_is_not_taken_later() {
        let map = taking(Rank::Map);
        for earlier in [
            Rank::Range,
            Rank::Invalidate,
            Rank::Pass,
            Rank::FolioOrHandle,
        ] {
            assert!(panics(move || drop(taking(earlier))), "{earlier:?}");
        }
        drop(taking(Rank::Status));
        drop(map);
        // A refusal leaves nothing behind.
        drop(taking(Rank::Range));
    }

    #[test]
    fn order_of_release_does_not_matter() {
        let range = taking(Rank::Range);
        let folio = taking(Rank::FolioOrHandle);
        drop(range);
        assert!(panics(|| drop(taking(Rank::Invalidate))));
        drop(folio);
        drop(taking(Rank::Invalidate));
    }

    #[test]
    fn some_may_be_held_twice() {
        let _folio = taking(Rank::FolioOrHandle);
        let _handle = taking(Rank::FolioOrHandle);
        let _map = taking(Rank::Map);
        let _other = taking(Rank::Map);
        let _status = taking(Rank::Status);
        assert!(panics(|| drop(taking(Rank::Status))));
    }

    #[test]
    fn trying_is_always_allowed_and_counts() {
        let _folio = taking(Rank::FolioOrHandle);
        let tried = took(Rank::Range);
        drop(tried);
        let _status = took(Rank::Status);
        assert!(panics(|| drop(taking(Rank::Map))));
        let _free = exempt();
        drop(taking(Rank::Map));
    }
}
