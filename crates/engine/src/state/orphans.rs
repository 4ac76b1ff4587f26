//! The orphans in memory: the list with both directions, and the orphan file once it is open.

use extant_sync::atomic::{AtomicUsize, Ordering};
use extant_sync::hash::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

use extant_disk::csum::Crc32c;
use extant_sync::{Mutex, RwLock};
use extant_units::{Ino, Pblk};

use crate::state::inode::Inode;

/// The records of orphans.
#[derive(Default)]
pub(crate) struct Orphans {
    pub(crate) list: Mutex<List>,
    /// Opened by [`crate::orphan::open`]; `None` without the feature.
    pub(crate) file: RwLock<Option<Arc<OrphanFile>>>,
}

/// The list in memory. Guarded by its mutex in [`Orphans`].
#[derive(Default)]
pub(crate) struct List {
    pub(crate) nodes: HashMap<Ino, ListNode>,
    /// The newest inode that is in memory.
    pub(crate) newest: Option<Ino>,
}

pub(crate) struct ListNode {
    /// Keeps the inode in memory: removing a neighbour changes it.
    pub(crate) inode: Arc<Inode>,
    /// Towards the superblock.
    pub(crate) newer: Option<Ino>,
    /// The next one on disk, zero at the end. It need not be in memory.
    pub(crate) older: u32,
}

impl List {
    /// Adopts `inode`, which was found on disk behind the newest in memory or as the only one.
    pub(crate) fn adopt_oldest(&mut self, inode: &Arc<Inode>, newer: Option<Ino>, older: u32) {
        if newer.is_none() {
            self.newest = Some(inode.ino);
        }
        let before = self.nodes.insert(
            inode.ino,
            ListNode {
                inode: Arc::clone(inode),
                newer,
                older,
            },
        );
        debug_assert!(before.is_none(), "an inode is listed once");
    }

    /// Puts `inode` at the head, before `older`.
    pub(crate) fn enter(&mut self, inode: &Arc<Inode>, older: u32) {
        if let Some(head) = self.newest.and_then(|ino| self.nodes.get_mut(&ino)) {
            head.newer = Some(inode.ino);
        }
        self.newest = Some(inode.ino);
        let before = self.nodes.insert(
            inode.ino,
            ListNode {
                inode: Arc::clone(inode),
                newer: None,
                older,
            },
        );
        debug_assert!(before.is_none(), "an inode is listed once");
    }

    /// Makes `ino` the last of the list.
    pub(crate) fn end_at(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.older = 0;
        }
    }

    /// Number of inodes on the list that are in memory.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// The orphan file's blocks.
pub(crate) struct OrphanFile {
    pub(crate) ino: Ino,
    pub(crate) seed: Option<Crc32c>,
    pub(crate) blocks: Vec<OrphanBlock>,
    /// Slots of a block.
    pub(crate) slots: usize,
    pub(crate) hasher: RandomState,
}

/// A block of the file.
pub(crate) struct OrphanBlock {
    pub(crate) pblk: Pblk,
    /// Slots that may be claimed.
    pub(crate) free: AtomicUsize,
    /// Slot at which the next search begins.
    pub(crate) hint: AtomicUsize,
}

impl OrphanFile {
    /// Returns whether no slot is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks
            .iter()
            .all(|block| block.free.load(Ordering::Acquire) == self.slots)
    }

    /// Slots of all blocks.
    #[cfg(test)]
    pub(crate) fn slots_in_all(&self) -> usize {
        self.slots * self.blocks.len()
    }

    /// The file's first block.
    #[cfg(test)]
    pub(crate) fn first_block(&self) -> Pblk {
        self.blocks.first().map_or(Pblk::ZERO, |block| block.pblk)
    }
}
