//! The index of attribute blocks that inodes may share, the locks of their counts, and the index of
//! inodes with values that attributes may share.
//!
//! # Locks
//! A stripe per group of block numbers, and inside it the index's own lock, a leaf. The index of
//! values is a leaf of its own: their counts are fields of inodes.

use std::collections::{HashMap, VecDeque};

use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};
use extant_units::{Ino, Pblk, index};

const STRIPES: usize = 64;
/// Blocks, or inodes, that an index remembers.
const REMEMBERED: usize = 4096;
/// Those of one hash that are compared: hostile images may make hashes collide.
const CANDIDATES: usize = 8;

/// The index of attribute blocks, and the locks of their counts.
pub(crate) struct SharedBlocks {
    stripes: Box<[Mutex<()>]>,
    pub(crate) index: Mutex<Index<Pblk>>,
    /// Inodes that hold values, by the hashes of these. A hint: what it names may be gone.
    pub(crate) values: Mutex<Index<Ino>>,
}

/// Blocks or inodes by the hash of their content.
pub(crate) struct Index<T> {
    by_hash: HashMap<u32, Vec<T>>,
    /// In the order of arrival, which is the order of eviction. May name some that are gone
    /// already.
    order: VecDeque<(u32, T)>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            by_hash: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl Default for SharedBlocks {
    fn default() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            index: Mutex::default(),
            values: Mutex::default(),
        }
    }
}

impl<T: Copy + PartialEq> Index<T> {
    /// Adds a block or inode, unless it has no hash or too many have the same.
    pub(crate) fn add(&mut self, hash: u32, at: T) {
        let known = self.by_hash.entry(hash).or_default();
        if hash == 0 || known.contains(&at) || known.len() >= CANDIDATES {
            return;
        }
        known.push(at);
        self.order.push_back((hash, at));
        while self.order.len() > REMEMBERED {
            if let Some((hash, at)) = self.order.pop_front() {
                self.forget(hash, at);
            }
        }
        debug_assert!(self.order.len() <= REMEMBERED, "memory is bounded");
    }

    /// Removes a block or inode, if it is there.
    pub(crate) fn forget(&mut self, hash: u32, at: T) {
        if let Some(known) = self.by_hash.get_mut(&hash) {
            known.retain(|one| *one != at);
            if known.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Returns whether the block or inode is there.
    pub(crate) fn has(&self, hash: u32, at: T) -> bool {
        let known = self.by_hash.get(&hash);
        known.is_some_and(|known| known.contains(&at))
    }

    /// Those of a content hash.
    pub(crate) fn candidates(&self, hash: u32) -> Vec<T> {
        self.by_hash.get(&hash).cloned().unwrap_or_default()
    }
}

impl SharedBlocks {
    /// Locks the count of the block at `pblk`.
    #[track_caller]
    pub(crate) fn stripe(&self, pblk: Pblk) -> Locked<MutexGuard<'_, ()>> {
        let at = index(pblk.get() % STRIPES as u64);
        lock(Rank::SharedXattr, || self.stripes[at].lock())
    }

    /// The blocks of a content hash.
    pub(crate) fn candidates(&self, hash: u32) -> Vec<Pblk> {
        self.index.lock().candidates(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_bounded() {
        let mut index = Index::default();
        for i in 0..u32::try_from(REMEMBERED).unwrap_or(0) * 2 {
            index.add(i + 1, Pblk::new(u64::from(i)));
        }
        assert_eq!(index.order.len(), REMEMBERED);
        assert_eq!(index.by_hash.len(), REMEMBERED);
        for i in 0..100 {
            index.add(7, Pblk::new(1_000_000 + i));
        }
        assert!(index.by_hash.get(&7).is_some_and(|b| b.len() <= CANDIDATES));
        index.add(0, Pblk::new(5));
        assert!(!index.has(0, Pblk::new(5)), "no hash, no sharing");
    }
}
