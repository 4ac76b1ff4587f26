//! The index of attribute blocks that inodes may share, and the locks of their counts.
//!
//! # Locks
//! A stripe per group of block numbers, and inside it the index's own lock, a leaf.

use std::collections::{HashMap, VecDeque};

use extant_lock_order::{Locked, Rank, lock};
use extant_sync::{Mutex, MutexGuard};
use extant_units::{Pblk, index};

const STRIPES: usize = 64;
/// Blocks that the index remembers.
const REMEMBERED: usize = 4096;
/// Blocks of one hash that are compared: hostile images may make hashes collide.
const CANDIDATES: usize = 8;

/// The index of attribute blocks, and the locks of their counts.
pub(crate) struct SharedBlocks {
    stripes: Box<[Mutex<()>]>,
    pub(crate) index: Mutex<Index>,
}

/// Blocks by the hash of their content.
#[derive(Default)]
pub(crate) struct Index {
    by_hash: HashMap<u32, Vec<Pblk>>,
    /// In the order of arrival, which is the order of eviction. May name some that are gone
    /// already.
    order: VecDeque<(u32, Pblk)>,
}

impl Default for SharedBlocks {
    fn default() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            index: Mutex::default(),
        }
    }
}

impl Index {
    /// Adds a block, unless it has no hash or too many blocks have the same.
    pub(crate) fn add(&mut self, hash: u32, pblk: Pblk) {
        let blocks = self.by_hash.entry(hash).or_default();
        if hash == 0 || blocks.contains(&pblk) || blocks.len() >= CANDIDATES {
            return;
        }
        blocks.push(pblk);
        self.order.push_back((hash, pblk));
        while self.order.len() > REMEMBERED {
            if let Some((hash, pblk)) = self.order.pop_front() {
                self.forget(hash, pblk);
            }
        }
        debug_assert!(self.order.len() <= REMEMBERED, "memory is bounded");
    }

    /// Removes a block, if it is there.
    pub(crate) fn forget(&mut self, hash: u32, pblk: Pblk) {
        if let Some(blocks) = self.by_hash.get_mut(&hash) {
            blocks.retain(|b| *b != pblk);
            if blocks.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Returns whether the block is there.
    pub(crate) fn has(&self, hash: u32, pblk: Pblk) -> bool {
        self.by_hash
            .get(&hash)
            .is_some_and(|blocks| blocks.contains(&pblk))
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
        let index = self.index.lock();
        index.by_hash.get(&hash).cloned().unwrap_or_default()
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
