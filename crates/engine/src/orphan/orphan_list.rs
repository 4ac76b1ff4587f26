//! The orphan list: `s_last_orphan` names the newest inode, each inode's deletion time the next
//! older one.
//!
//! The copy in memory has both directions, so that an inode in the middle can be removed: its
//! successor towards the superblock is changed, wherever it is stored.

use std::collections::HashMap;
use std::sync::Arc;

use extant_jbd2::Handle;
use extant_units::Ino;

use crate::inode::Inode;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The list in memory. Guarded by its mutex in [`super::Orphans`].
#[derive(Default)]
pub(super) struct List {
    nodes: HashMap<Ino, ListNode>,
    /// The newest inode that is in memory.
    newest: Option<Ino>,
}

struct ListNode {
    /// Keeps the inode in memory: removing a neighbour changes it.
    inode: Arc<Inode>,
    /// Towards the superblock.
    newer: Option<Ino>,
    /// The next one on disk, zero at the end. It need not be in memory.
    older: u32,
}

impl List {
    /// Adds `inode` at the head.
    pub(super) fn add(&mut self, fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
        let head = fs.super_block.update(fs, h, |raw| {
            let head = raw.last_orphan.get();
            raw.last_orphan.set(inode.ino.get());
            head
        })?;
        inode.update(fs, h, |core| core.dtime = head)?;
        self.enter(inode, head);
        Ok(())
    }

    /// Adopts `inode`, which was found on disk behind the newest in memory or as the only one.
    pub(super) fn adopt_oldest(&mut self, inode: &Arc<Inode>, newer: Option<Ino>, older: u32) {
        if newer.is_none() {
            self.newest = Some(inode.ino);
        }
        self.nodes.insert(
            inode.ino,
            ListNode {
                inode: Arc::clone(inode),
                newer,
                older,
            },
        );
    }

    fn enter(&mut self, inode: &Arc<Inode>, older: u32) {
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

    /// Removes `inode` and clears its deletion time.
    pub(super) fn remove(&mut self, fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
        let Some((newer, older)) = self.nodes.get(&inode.ino).map(|n| (n.newer, n.older)) else {
            return Err(Error::corrupt(
                Location::Orphans,
                format_args!("inode {} is not on the list", inode.ino),
            ));
        };
        match newer {
            None => fs
                .super_block
                .update(fs, h, |raw| raw.last_orphan.set(older))?,
            Some(ino) => {
                if let Some(node) = self.nodes.get_mut(&ino) {
                    node.inode.update(fs, h, |core| core.dtime = older)?;
                    node.older = older;
                }
            }
        }
        inode.update(fs, h, |core| core.dtime = 0)?;
        let older = Ino::new(older);
        if let Some(node) = older.and_then(|ino| self.nodes.get_mut(&ino)) {
            node.newer = newer;
        }
        if newer.is_none() {
            self.newest = older.filter(|ino| self.nodes.contains_key(ino));
        }
        self.nodes.remove(&inode.ino);
        Ok(())
    }

    /// Makes `ino` the last of the list.
    pub(super) fn end_at(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.older = 0;
        }
    }

    /// Number of inodes on the list that are in memory.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
