//! The orphan list: `s_last_orphan` names the newest inode, each inode's deletion time the next
//! older one.
//!
//! The copy in memory has both directions, so that an inode in the middle can be removed: its
//! successor towards the superblock is changed, wherever it is stored.

use std::sync::Arc;

use extant_disk::damage::OrphanDamage;
use extant_jbd2::Handle;
use extant_units::Ino;

use crate::state::inode::Inode;
use crate::state::orphans::List;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

impl List {
    /// Adds `inode` at the head.
    pub(super) fn add(&mut self, fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
        let head = fs.super_block.update_orphans(fs, h, |raw| {
            let head = raw.last_orphan.get();
            raw.last_orphan.set(inode.ino.get());
            head
        })?;
        inode.update(fs, h, |core| core.dtime = head)?;
        self.enter(inode, head);
        Ok(())
    }

    /// Removes `inode` and clears its deletion time.
    pub(super) fn remove(&mut self, fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
        let Some((newer, older)) = self.nodes.get(&inode.ino).map(|n| (n.newer, n.older)) else {
            return Err(Error::corrupt(
                Location::Orphans,
                OrphanDamage::NotListed { ino: inode.ino },
            ));
        };
        match newer {
            None => fs
                .super_block
                .update_orphans(fs, h, |raw| raw.last_orphan.set(older))?,
            Some(ino) => {
                debug_assert!(self.nodes.contains_key(&ino), "the newer one is in memory");
                if let Some(node) = self.nodes.get_mut(&ino) {
                    node.inode.update(fs, h, |core| core.dtime = older)?;
                    node.older = older;
                }
            }
        }
        inode.update(fs, h, |core| core.dtime = 0)?;
        let older = Ino::new(older);
        if let Some(node) = older.and_then(|ino| self.nodes.get_mut(&ino)) {
            debug_assert_eq!(node.newer, Some(inode.ino), "neighbours know each other");
            node.newer = newer;
        }
        if newer.is_none() {
            self.newest = older.filter(|ino| self.nodes.contains_key(ino));
        }
        self.nodes.remove(&inode.ino);
        Ok(())
    }
}
