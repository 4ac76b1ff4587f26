//! A check of the lock order, in builds with debug assertions.
//!
//! # Responsibility
//! `docs/LOCKING.md` has one order for all locks. [`Rank`] names each lock of its table, outermost
//! first. Code that takes one says so first ([`taking`]) and keeps the result for as long as it
//! holds the lock. A thread that takes a lock while it holds one that comes later panics, whether
//! or not another thread waits.
//!
//! # Invariants
//! - The order between a folio and a handle depends on the data path of the folio's file. The folio
//!   has two ranks: [`Rank::Folio`] comes before the handle, [`Rank::FolioInHandle`] after it. The
//!   address space of a file knows which one its folios have.
//! - A lock that is only tried is in order at any time ([`took`]). It counts as held afterwards.
//! - In builds without debug assertions nothing is left of this: [`Held`] has no size and no drop.
//!   Under a model checker, whose threads are one thread of the host, nothing is checked either.
#![forbid(unsafe_code)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A lock of the table in `docs/LOCKING.md`. A thread takes them from above to below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// `rename_lock`: directory renames between parents.
    Rename,
    /// A file's `extend_turn`: threads that make one file longer.
    ExtendTurn,
    /// The inode's `lock`.
    Inode,
    /// A range of a file: writes, truncation, direct I/O.
    Range,
    /// A range of a file whose blocks are read into the cache, against direct writes to them.
    Fill,
    /// Cached pages against the block map.
    Invalidate,
    /// The writeback pass of a file.
    Pass,
    /// A folio of a file on the iomap path: comes before the handle (J24).
    Folio,
    /// A handle of the journal. Starting one may wait for a commit or for log space.
    Handle,
    /// A folio of a file on the buffer-head path: comes after the handle.
    FolioInHandle,
    /// The inode's `xattr_lock`.
    Xattr,
    /// A stripe of the shared attribute blocks.
    SharedXattr,
    /// The inode's `orphan` lock.
    Orphan,
    /// The header of a file of quotas, while an entry is looked up or added.
    QuotaFile,
    /// The inode's `map_lock` (`i_data_sem` in Linux).
    Map,
    /// The inode's extent status tree.
    Status,
    /// The block allocator's windows that threads have checked out. No thread waits to check one
    /// out; a thread that finds no space waits until all are back.
    Windows,
    /// A block group.
    Group,
    /// The inode's `core`: its stored fields.
    InodeCore,
    /// The part of an inode in quotas.
    InodeQuota,
    /// Usage and limits of one id.
    Dquot,
    /// The content of a metadata block.
    BlockContent,
}

/// A lock that this thread holds. Drop it together with the lock.
#[derive(Debug)]
#[must_use]
pub struct Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    rank: Rank,
    /// Stays on the thread that took the lock.
    _not_send: PhantomData<*const ()>,
}

/// A guard, and the note that its lock is held.
#[derive(Debug)]
#[must_use]
pub struct Locked<G> {
    // Dropped in this order.
    guard: G,
    _held: Held,
}

impl<G> Locked<G> {
    /// `guard`, with the note that was made before its lock was taken.
    #[inline]
    pub fn new(guard: G, held: Held) -> Self {
        Self { guard, _held: held }
    }

    /// The guard, to see what it locks.
    #[inline]
    pub fn guard(&self) -> &G {
        &self.guard
    }

    /// The guard, to let go of a part of what it locks.
    #[inline]
    pub fn guard_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<G: Deref> Deref for Locked<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Locked<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

/// Takes a lock of this rank by calling `take`.
///
/// # Panics
/// See [`taking`].
#[inline]
#[track_caller]
pub fn lock<G>(rank: Rank, take: impl FnOnce() -> G) -> Locked<G> {
    let held = taking(rank);
    Locked {
        guard: take(),
        _held: held,
    }
}

/// While it exists, nothing is checked on this thread.
#[derive(Debug)]
#[must_use]
pub struct Exempt(PhantomData<*const ()>);

/// This thread is about to wait for a lock of this rank.
///
/// # Panics
/// With debug assertions, if this thread holds a lock that comes later.
#[inline]
#[track_caller]
pub fn taking(rank: Rank) -> Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::assert_may_take(rank);
    took(rank)
}

/// This thread is about to wait for what holders of any lock may need: it holds none.
///
/// # Panics
/// With debug assertions, if this thread holds a lock.
#[inline]
#[track_caller]
pub fn assert_none_held() {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::assert_none();
}

/// This thread got a lock of this rank without waiting for it, which is in order at any time.
#[inline]
pub fn took(rank: Rank) -> Held {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::add(rank);
    let _ = rank;
    Held {
        #[cfg(all(debug_assertions, not(extant_shuttle)))]
        rank,
        _not_send: PhantomData,
    }
}

/// Number of locks of this rank that this thread has taken so far, for tests that count them. Where
/// nothing is checked, it is 0.
pub fn taken_by_this_thread(rank: Rank) -> u64 {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    return checked::taken(rank);
    #[cfg(not(all(debug_assertions, not(extant_shuttle))))]
    {
        let _ = rank;
        0
    }
}

/// Switches the check off on this thread, where no thread can wait in the opposite order: code of a
/// caller's that runs under locks of ours and uses another file system, or a check of everything
/// while nothing else runs.
#[inline]
pub fn exempt() -> Exempt {
    #[cfg(all(debug_assertions, not(extant_shuttle)))]
    checked::begin_exemption();
    Exempt(PhantomData)
}

#[cfg(all(debug_assertions, not(extant_shuttle)))]
mod checked {
    use std::cell::Cell;

    use super::{Exempt, Held, Rank};

    const RANKS: [Rank; 22] = [
        Rank::Rename,
        Rank::ExtendTurn,
        Rank::Inode,
        Rank::Range,
        Rank::Fill,
        Rank::Invalidate,
        Rank::Pass,
        Rank::Folio,
        Rank::Handle,
        Rank::FolioInHandle,
        Rank::Xattr,
        Rank::SharedXattr,
        Rank::Orphan,
        Rank::QuotaFile,
        Rank::Map,
        Rank::Status,
        Rank::Windows,
        Rank::Group,
        Rank::InodeCore,
        Rank::InodeQuota,
        Rank::Dquot,
        Rank::BlockContent,
    ];

    /// Returns whether a thread that holds a lock of this rank may wait for another one. Folios
    /// have an order of their own, by index; the maps of two files are locked under both inodes'
    /// locks. Of several inodes a thread waits for the first only, and tries the others.
    fn repeats(rank: Rank) -> bool {
        use Rank::{Folio, FolioInHandle, Map};
        matches!(rank, Folio | FolioInHandle | Map)
    }

    thread_local! {
        /// How many locks of each rank this thread holds.
        static COUNTS: [Cell<u32>; RANKS.len()] = const { [const { Cell::new(0) }; RANKS.len()] };
        /// How many it has taken so far.
        static TAKEN: [Cell<u64>; RANKS.len()] = const { [const { Cell::new(0) }; RANKS.len()] };
        static EXEMPTIONS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn add(rank: Rank) {
        // A thread that is ending has no counts any more, and takes no lock after this one.
        let _ = COUNTS.try_with(|counts| {
            let count = &counts[rank as usize];
            count.set(count.get() + 1);
        });
        let _ = TAKEN.try_with(|taken| {
            let taken = &taken[rank as usize];
            taken.set(taken.get() + 1);
        });
    }

    pub(super) fn taken(rank: Rank) -> u64 {
        let taken = TAKEN.try_with(|taken| taken[rank as usize].get());
        taken.unwrap_or(0)
    }

    fn remove(rank: Rank) {
        let _ = COUNTS.try_with(|counts| {
            let count = &counts[rank as usize];
            let Some(left) = count.get().checked_sub(1) else {
                panic!("lock order: {rank:?} is released more often than it was taken");
            };
            count.set(left);
        });
    }

    pub(super) fn begin_exemption() {
        EXEMPTIONS.set(EXEMPTIONS.get() + 1);
    }

    /// The last lock in the order that this thread holds, unless nothing is checked.
    fn last_held() -> Option<Rank> {
        if EXEMPTIONS.get() > 0 {
            return None;
        }
        let held = COUNTS.try_with(|counts| {
            let held = |other: &&Rank| counts[**other as usize].get() > 0;
            RANKS.iter().rev().find(held).copied()
        });
        held.ok().flatten()
    }

    #[track_caller]
    pub(super) fn assert_none() {
        if let Some(held) = last_held() {
            panic!("lock order: a wait without locks while {held:?} is held");
        }
    }

    #[track_caller]
    pub(super) fn assert_may_take(rank: Rank) {
        if let Some(held) = last_held() {
            assert!(
                held < rank || (held == rank && repeats(rank)),
                "lock order: {rank:?} is taken while {held:?} is held"
            );
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            remove(self.rank);
        }
    }

    impl Drop for Exempt {
        fn drop(&mut self) {
            let left = EXEMPTIONS.get().checked_sub(1);
            EXEMPTIONS.set(left.expect("an exemption ends once"));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_list_has_every_rank_in_order() {
            assert!(RANKS.is_sorted());
            assert_eq!(RANKS[RANKS.len() - 1] as usize, RANKS.len() - 1);
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
    fn an_earlier_lock_is_not_taken_later() {
        let map = taking(Rank::Map);
        for earlier in [Rank::Range, Rank::Invalidate, Rank::Pass, Rank::Handle] {
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
        let folio = taking(Rank::Folio);
        drop(range);
        assert!(panics(|| drop(taking(Rank::Invalidate))));
        drop(folio);
        drop(taking(Rank::Invalidate));
    }

    #[test]
    fn some_may_be_held_twice() {
        // Of several inodes all but the first are tried.
        let inode = taking(Rank::Inode);
        drop(took(Rank::Inode));
        assert!(panics(|| drop(taking(Rank::Inode))));
        drop(inode);
        let _folios = [taking(Rank::Folio), taking(Rank::Folio)];
        let _handle = taking(Rank::Handle);
        assert!(panics(|| drop(taking(Rank::Handle))));
        let _maps = [taking(Rank::Map), taking(Rank::Map)];
        let _status = taking(Rank::Status);
        assert!(panics(|| drop(taking(Rank::Status))));
    }

    #[test]
    fn the_data_path_decides_between_folio_and_handle() {
        let folio = taking(Rank::Folio);
        let handle = taking(Rank::Handle);
        drop(folio);
        assert!(panics(|| drop(taking(Rank::Folio))), "J24");
        let _folio = taking(Rank::FolioInHandle);
        drop(handle);
        assert!(panics(|| drop(taking(Rank::Handle))));
        drop(taking(Rank::FolioInHandle));
    }

    #[test]
    fn a_wait_without_locks_is_checked() {
        assert_none_held();
        let core = taking(Rank::InodeCore);
        assert!(panics(assert_none_held));
        drop(core);
        assert_none_held();
        let _tried = took(Rank::Range);
        assert!(panics(assert_none_held));
        let _free = exempt();
        assert_none_held();
    }

    #[test]
    fn trying_is_always_allowed_and_counts() {
        let _folio = taking(Rank::Folio);
        let before = taken_by_this_thread(Rank::Range);
        let tried = took(Rank::Range);
        drop(tried);
        assert_eq!(taken_by_this_thread(Rank::Range), before + 1);
        let _status = took(Rank::Status);
        assert!(panics(|| drop(taking(Rank::Map))));
        let _free = exempt();
        drop(taking(Rank::Map));
    }
}
