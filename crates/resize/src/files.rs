//! Moving the blocks of files out of what the new volume does not have, or needs for itself.

use std::collections::HashMap;

use extant_disk::bitmap;
use extant_disk::features::{Compat, Incompat};
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::GroupFlags;
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::orphan;
use extant_disk::xattr::seal_block;
use extant_units::{Ino, Pblk};

use crate::error::{Error, Result};
use crate::extents::{blocks_of, one};
use crate::volume::Volume;

/// The list of bad blocks.
const BAD_BLOCKS: u32 = 1;
/// The inode that owns the reserve of descriptors: its map follows from the geometry.
pub(crate) const RESIZE: u32 = 7;

/// Bytes of a link's target that an inode holds itself, less one.
const FAST_LINK: u64 = 60;

impl Volume {
    /// Moves the blocks of all files but the journal's.
    pub(crate) fn move_files(&mut self) -> Result<()> {
        let mut attributes = HashMap::new();
        for group in 0..self.old.groups {
            for ino in self.inodes_of(group)? {
                self.move_file(ino, &mut attributes)?;
            }
        }
        Ok(())
    }

    /// The inodes in use of a group, also those that have moved there.
    pub(crate) fn inodes_of(&self, group: u32) -> Result<Vec<Ino>> {
        let desc = self.desc(group)?;
        let per_group = self.old.inodes_per_group;
        let unused =
            self.old.features.group_csum() && desc.flags.contains(GroupFlags::INODE_UNINIT);
        if unused || desc.free_inodes == per_group {
            return Ok(Vec::new());
        }
        let bits = match self.inode_bits.get(&group) {
            Some(bits) => bits.clone(),
            None => self.block(desc.inode_bitmap.get())?,
        };
        let used = (0..per_group).filter(|at| bitmap::test(&bits, *at));
        let first = group * per_group + 1;
        Ok(used.filter_map(|at| Ino::new(first + at)).collect())
    }

    fn move_file(&mut self, ino: Ino, attributes: &mut HashMap<Pblk, Pblk>) -> Result<()> {
        if self.journal() == Some(ino) || ino.get() == RESIZE {
            return Ok(());
        }
        let Some(mut core) = self.used_inode(ino)? else {
            return Ok(());
        };
        let sectors = core.sectors;
        let mapped = self.has_map(&core);
        if ino.get() == BAD_BLOCKS && !self.data_of(ino, &core)?.is_empty() {
            return Err(Error::Unsupported("it has a list of bad blocks"));
        }
        let moved_map = mapped
            && match core.flags.contains(InodeFlags::EXTENTS) {
                true => self.move_tree(ino, &mut core)?,
                false => self.move_pointers(&mut core)?,
            };
        let moved_attributes = self.move_attributes(&mut core, attributes)?;
        if moved_map || moved_attributes {
            self.put_inode(ino, &core)?;
            self.charge(ino, sectors, &core);
        }
        if moved_map && self.is_orphan_file(ino) {
            self.seal_orphan_file(ino)?;
        }
        Ok(())
    }

    /// The journal's inode.
    pub(crate) fn journal(&self) -> Option<Ino> {
        let has_it = self.old.features.has_compat(Compat::HAS_JOURNAL);
        Ino::new(self.raw.journal_inum.get()).filter(|_| has_it)
    }

    /// Returns whether `i_block` of an inode in use is a map.
    pub(crate) fn has_map(&self, core: &InodeCore) -> bool {
        let own = match core.file_acl {
            Pblk::ZERO => 0,
            _ => self.old.cluster_blocks() * (self.block_bytes() as u64 / 512),
        };
        if core.flags.contains(InodeFlags::INLINE_DATA) {
            return false;
        }
        let extents = core.flags.contains(InodeFlags::EXTENTS);
        match FileKind::from_mode(core.mode) {
            Some(FileKind::Regular | FileKind::Directory) => true,
            // With values of attributes in inodes of their own the sectors say nothing.
            Some(FileKind::Symlink) if self.old.features.has_incompat(Incompat::EA_INODE) => {
                extents || core.disk_size >= FAST_LINK
            }
            Some(FileKind::Symlink) => extents || core.sectors > own || core.disk_size >= FAST_LINK,
            _ => false,
        }
    }

    /// Moves the block of attributes, which others may share.
    fn move_attributes(
        &mut self,
        core: &mut InodeCore,
        moved: &mut HashMap<Pblk, Pblk>,
    ) -> Result<bool> {
        let old = core.file_acl;
        if old == Pblk::ZERO || !self.must_move(&one(old)) {
            return Ok(false);
        }
        if let Some(new) = moved.get(&old) {
            core.file_acl = *new;
            return Ok(true);
        }
        let within = self.anywhere(!self.format.wide_blocks);
        let new = self.take_whole(1, &within)?;
        let new = Pblk::new(new.ok_or(Error::NoRoom("the blocks of attributes"))?);
        let mut bytes = self.block(old.get())?;
        seal_block(self.format.csum_seed, new, &mut bytes);
        self.put(new.get(), &bytes)?;
        self.give_up(one(old))?;
        self.blocks_moved += 1;
        moved.insert(old, new);
        core.file_acl = new;
        Ok(true)
    }

    /// The blocks of a file's data, in file order, holes left out.
    pub(crate) fn data_of(&self, ino: Ino, core: &InodeCore) -> Result<Vec<u64>> {
        if core.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(Vec::new());
        }
        match core.flags.contains(InodeFlags::EXTENTS) {
            true => {
                let tree = self.tree(ino, core)?;
                Ok(tree.extents.iter().flat_map(blocks_of).collect())
            }
            false => self.pointed(core),
        }
    }

    pub(crate) fn is_orphan_file(&self, ino: Ino) -> bool {
        self.old.features.has_compat(Compat::ORPHAN_FILE)
            && self.raw.orphan_file_inum.get() == ino.get()
    }

    /// Seals the blocks of the orphan file, which hold no orphans, for where they are.
    pub(crate) fn seal_orphan_file(&self, ino: Ino) -> Result<()> {
        let core = self.inode(ino)?;
        let seed = self.seed(ino, &core);
        for block in self.data_of(ino, &core)? {
            let mut bytes = vec![0; self.block_bytes()];
            orphan::init(seed, Pblk::new(block), &mut bytes);
            self.put(block, &bytes)?;
        }
        Ok(())
    }
}
