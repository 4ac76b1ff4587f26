//! The `lock`s of several inodes at once, without an order among inodes.

use extant_range_lock::HeldExclusively;
use parking_lot::RwLockWriteGuard;

use super::Inode;

/// The `lock`s of several inodes, exclusively.
#[must_use]
pub(crate) struct Locked<'a>(
    #[expect(dead_code, reason = "held, not read")] Vec<RwLockWriteGuard<'a, ()>>,
);

impl HeldExclusively for Locked<'_> {}

/// Locks all of `inodes` (at most a handful, repeats allowed) exclusively. The caller holds no
/// inode's `lock`.
///
/// The function waits for a lock only while it holds none. If one is taken, it releases all, waits
/// for that one, and goes on from there. So no order among inodes is needed, and a hostile tree
/// that pretends one cannot cause a deadlock.
pub(crate) fn lock_all<'a>(inodes: &[&'a Inode]) -> Locked<'a> {
    let mut distinct: Vec<&Inode> = inodes.to_vec();
    distinct.sort_unstable_by_key(|inode| inode.ino);
    distinct.dedup_by_key(|inode| inode.ino);
    loop {
        let mut held = Vec::with_capacity(distinct.len());
        let mut taken = None;
        for (at, inode) in distinct.iter().enumerate() {
            let guard = if at == 0 {
                Some(inode.lock.write())
            } else {
                inode.lock.try_write()
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
            None => return Locked(held),
            Some(at) => {
                drop(held);
                distinct.swap(0, at);
            }
        }
    }
}
