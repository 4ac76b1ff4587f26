//! The locks of inodes: taking them, and the proof that they are held.
//!
//! # Invariants
//! A function that relies on an inode's `lock` which its caller has taken gets a token of it:
//! [`LockedInode`] where shared is enough, [`ExclusiveInode`] where it is not. A token comes from a
//! guard and ends before it. It is the inode and the proof in one, so a function cannot get the
//! lock of one inode and the entries of another.
//!
//! # Locks
//! There is no order among inodes: no thread waits for an inode's `lock` while it holds another's
//! ([`lock_all`]). The lock has its place in the check of the lock order (`extant_lock_order`).

use std::ops::Deref;

use extant_lock_order::{Locked, Rank, lock, took};
use extant_range_lock::{FileLock, HeldExclusively, HeldShared};
use extant_sync::{RwLockReadGuard, RwLockWriteGuard};

use crate::state::inode::Inode;

/// An inode's `lock`, held shared.
#[must_use]
pub(crate) struct SharedGuard<'a> {
    inode: &'a Inode,
    _guard: Locked<RwLockReadGuard<'a, ()>>,
}

/// An inode's `lock`, held exclusively.
#[must_use]
pub(crate) struct ExclusiveGuard<'a> {
    inode: &'a Inode,
    _guard: Locked<RwLockWriteGuard<'a, ()>>,
}

/// The `lock`s of several inodes, held exclusively.
#[must_use]
pub(crate) struct ExclusiveGuards<'a>(Vec<ExclusiveGuard<'a>>);

/// An inode whose `lock` is held, shared or exclusively: the entries of a directory do not change.
#[derive(Clone, Copy)]
pub(crate) struct LockedInode<'a>(&'a Inode);

/// An inode whose `lock` is held exclusively: only this thread sees and changes a directory's
/// entries.
#[derive(Clone, Copy)]
pub(crate) struct ExclusiveInode<'a>(&'a Inode);

impl Inode {
    /// Takes `lock` shared.
    #[inline]
    #[track_caller]
    pub(crate) fn lock_shared(&self) -> SharedGuard<'_> {
        SharedGuard {
            inode: self,
            _guard: lock(Rank::Inode, || self.lock.0.read()),
        }
    }

    /// Takes `lock` shared, unless that has to wait.
    #[inline]
    pub(crate) fn try_lock_shared(&self) -> Option<SharedGuard<'_>> {
        let guard = self.lock.0.try_read()?;
        Some(SharedGuard {
            inode: self,
            _guard: Locked::new(guard, took(Rank::Inode)),
        })
    }

    /// Takes `lock` exclusively.
    #[inline]
    #[track_caller]
    pub(crate) fn lock_exclusively(&self) -> ExclusiveGuard<'_> {
        ExclusiveGuard {
            inode: self,
            _guard: lock(Rank::Inode, || self.lock.0.write()),
        }
    }

    /// Takes `lock` exclusively, unless that has to wait.
    #[inline]
    pub(crate) fn try_lock_exclusively(&self) -> Option<ExclusiveGuard<'_>> {
        let guard = self.lock.0.try_write()?;
        Some(ExclusiveGuard {
            inode: self,
            _guard: Locked::new(guard, took(Rank::Inode)),
        })
    }
}

impl SharedGuard<'_> {
    /// Returns whether it is `inode` that is locked.
    #[inline]
    pub(crate) fn is_of(&self, inode: &Inode) -> bool {
        std::ptr::eq(self.inode, inode)
    }

    /// The inode, and the proof that it is locked.
    #[inline]
    pub(crate) fn inode(&self) -> LockedInode<'_> {
        LockedInode(self.inode)
    }
}

impl ExclusiveGuard<'_> {
    /// Returns whether it is `inode` that is locked.
    #[inline]
    pub(crate) fn is_of(&self, inode: &Inode) -> bool {
        std::ptr::eq(self.inode, inode)
    }

    /// The inode, and the proof that it is locked.
    #[inline]
    pub(crate) fn inode(&self) -> ExclusiveInode<'_> {
        ExclusiveInode(self.inode)
    }
}

impl ExclusiveGuards<'_> {
    /// `inode`, which is one of the locked ones, and the proof of that.
    ///
    /// # Panics
    /// It is none of them: a mistake of the program, which a change must not follow.
    #[inline]
    pub(crate) fn of<'g>(&'g self, inode: &'g Inode) -> ExclusiveInode<'g> {
        assert!(
            self.0.iter().any(|held| std::ptr::eq(held.inode, inode)),
            "inode {} is not among the locked ones",
            inode.ino
        );
        ExclusiveInode(inode)
    }
}

impl<'a> ExclusiveInode<'a> {
    /// The same inode, for a callee that only relies on its not changing.
    #[inline]
    pub(crate) fn shared(self) -> LockedInode<'a> {
        LockedInode(self.0)
    }
}

impl Deref for LockedInode<'_> {
    type Target = Inode;

    #[inline]
    fn deref(&self) -> &Inode {
        self.0
    }
}

impl Deref for ExclusiveInode<'_> {
    type Target = Inode;

    #[inline]
    fn deref(&self) -> &Inode {
        self.0
    }
}

impl FileLock for SharedGuard<'_> {
    #[inline]
    fn is_exclusive(&self) -> bool {
        false
    }
}

impl HeldShared for SharedGuard<'_> {}

impl HeldExclusively for ExclusiveGuard<'_> {}

impl HeldExclusively for ExclusiveGuards<'_> {}

/// Locks all of `inodes` (at most a handful, repeats allowed) exclusively. The caller holds no
/// inode's `lock`.
///
/// The function waits for a lock only while it holds none. If one is taken, it releases all, waits
/// for that one, and goes on from there. So no order among inodes is needed, and a hostile tree
/// that pretends one cannot cause a deadlock.
pub(crate) fn lock_all<'a>(inodes: &[&'a Inode]) -> ExclusiveGuards<'a> {
    debug_assert!(!inodes.is_empty(), "a lock of nothing");
    let mut distinct: Vec<&Inode> = inodes.to_vec();
    distinct.sort_unstable_by_key(|inode| inode.ino);
    distinct.dedup_by_key(|inode| inode.ino);
    loop {
        let mut held = Vec::with_capacity(distinct.len());
        let mut taken = None;
        for (at, inode) in distinct.iter().enumerate() {
            let guard = if at == 0 {
                Some(inode.lock_exclusively())
            } else {
                inode.try_lock_exclusively()
            };
            match guard {
                Some(guard) => held.push(guard),
                None => {
                    taken = Some(at);
                    break;
                }
            }
        }
        match taken {
            None => return ExclusiveGuards(held),
            Some(at) => {
                drop(held);
                distinct.swap(0, at);
            }
        }
    }
}
