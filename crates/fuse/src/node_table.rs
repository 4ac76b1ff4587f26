//! The nodes that the kernel knows, each with the number of replies that named it.
//!
//! A node lives in the table, and its inode in memory, from the first reply that names it until the
//! kernel has forgotten it as often as it was named. That is what keeps an unlinked file alive
//! while it is open: the kernel forgets a node only after its last file is closed.
//!
//! # Locks
//! One mutex per shard, a leaf. References are dropped outside of it: the last one may delete the
//! file.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasherDefault, Hasher};

use extant_engine::{Ino, Node};
use parking_lot::Mutex;

use crate::abi::ROOT_ID;
use crate::errno::Errno;

const SHARDS: usize = 64;

/// The table; see the module's header.
pub(crate) struct NodeTable {
    root: Node,
    shards: Box<[Mutex<Shard>]>,
}

type Shard = HashMap<u64, Known, BuildHasherDefault<Spread>>;

struct Known {
    node: Node,
    lookups: u64,
}

impl NodeTable {
    pub(crate) fn new(root: Node) -> Self {
        Self {
            root,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The number under which the kernel knows an inode. FUSE's root is always 1; ext4's is 2, and
    /// its inode 1 (bad blocks) has no name.
    pub(crate) fn id(&self, ino: Ino) -> u64 {
        if ino == self.root.ino() {
            ROOT_ID
        } else {
            u64::from(ino.get())
        }
    }

    /// The node behind a number that the kernel sent.
    pub(crate) fn get(&self, id: u64) -> Result<Node, Errno> {
        if id == ROOT_ID {
            return Ok(self.root.clone());
        }
        self.shard(id)
            .lock()
            .get(&id)
            .map(|known| known.node.clone())
            .ok_or(Errno::STALE)
    }

    /// Counts one more reply that names `node`; returns its number.
    pub(crate) fn remember(&self, node: &Node) -> u64 {
        let id = self.id(node.ino());
        if id != ROOT_ID {
            match self.shard(id).lock().entry(id) {
                Slot::Occupied(mut known) => known.get_mut().lookups += 1,
                Slot::Vacant(slot) => {
                    slot.insert(Known {
                        node: node.clone(),
                        lookups: 1,
                    });
                }
            }
        }
        id
    }

    /// The kernel has dropped `count` of the times that `id` was named.
    pub(crate) fn forget(&self, id: u64, count: u64) {
        let mut shard = self.shard(id).lock();
        let Slot::Occupied(mut known) = shard.entry(id) else {
            return;
        };
        let lookups = &mut known.get_mut().lookups;
        // The kernel is trusted to count; a count too large ends the node, as zero does.
        *lookups = lookups.saturating_sub(count);
        if *lookups == 0 {
            let gone = known.remove();
            drop(shard);
            drop(gone);
        }
    }

    /// Each node that the kernel knows beside the root, and how many replies have named it.
    pub(crate) fn lookups(&self) -> Vec<(u64, u64)> {
        let count = |shard: &Mutex<Shard>| -> Vec<(u64, u64)> {
            let shard = shard.lock();
            shard
                .iter()
                .map(|(id, known)| (*id, known.lookups))
                .collect()
        };
        self.shards.iter().flat_map(count).collect()
    }

    /// The nodes that the kernel knows and `is_wanted` too, the root among them.
    pub(crate) fn of(&self, is_wanted: impl Fn(&Node) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let known: Vec<_> = {
                let shard = shard.lock();
                let each = shard.iter().map(|(id, known)| (*id, known.node.clone()));
                each.collect()
            };
            found.extend(
                known
                    .iter()
                    .filter(|(_, node)| is_wanted(node))
                    .map(|(id, _)| *id),
            );
        }
        if is_wanted(&self.root) {
            found.push(ROOT_ID);
        }
        found
    }

    /// Replies that named `id` and are not forgotten.
    #[cfg(test)]
    pub(crate) fn lookups_of(&self, id: u64) -> u64 {
        self.shard(id)
            .lock()
            .get(&id)
            .map_or(0, |known| known.lookups)
    }

    fn shard(&self, id: u64) -> &Mutex<Shard> {
        // A remainder below SHARDS fits every usize.
        &self.shards[usize::try_from(id % SHARDS as u64).unwrap_or(0)]
    }
}

/// Hashes one inode number. Consecutive numbers must not collide; no attacker chooses the numbers.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
