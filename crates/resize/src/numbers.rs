//! Moving inodes out of groups that the new volume does not have: numbers, names and seeds.
//!
//! An inode's number stands in the entries that lead to it, in its own record's checksum, and in
//! those of its extent nodes and directory blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use extant_disk::bitmap;
use extant_disk::dirent::DirFormat;
use extant_disk::extent::set_checksum;
use extant_disk::features::{Compat, Incompat};
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::GroupFlags;
use extant_disk::htree::IndexKind;
use extant_disk::inline_data::{bytes_inside, put_inside};
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::xattr::Fit;
use extant_units::{Ino, index};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// Bytes of the entry ".", behind which the entry ".." begins.
const DOT: usize = 12;

/// The new number of each inode that has one.
type Moved = BTreeMap<Ino, Ino>;

impl Volume {
    /// Gives all inodes past the new end a number that the new volume has.
    pub(crate) fn move_inodes(&mut self) -> Result<()> {
        let mut moved = Moved::new();
        for group in self.new.groups..self.old.groups {
            for ino in self.inodes_of(group)? {
                let core = self.inode(ino)?;
                if core.flags.contains(InodeFlags::EA_INODE) {
                    return Err(Error::Unsupported(
                        "an inode with the value of an attribute (ea_inode) would be cut off: \
                         attributes keep the numbers of their values",
                    ));
                }
                let to = self.take_inode(core.mode)?;
                let record = self.record(ino)?;
                assert!(
                    to.get() <= self.new.inodes(),
                    "the new volume has inode {to}"
                );
                self.put_record(to, &record)?;
                let before = moved.insert(ino, to);
                assert_eq!(before, None, "inode {ino} moves once");
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        if self.old.features.has_compat(Compat::STABLE_INODES) {
            return Err(Error::STABLE_INODES);
        }
        for ino in moved.values() {
            self.reseal_nodes(*ino)?;
        }
        if let Some(orphans) = Ino::new(self.raw.orphan_file_inum.get())
            && let Some(to) = moved.get(&orphans)
        {
            self.raw.orphan_file_inum = to.get().into();
            self.seal_orphan_file(*to)?;
        }
        self.follow_quotas(&moved);
        self.rename(&moved)?;
        self.inodes_moved += moved.len() as u64;
        Ok(())
    }

    /// Takes a free inode of the new volume.
    fn take_inode(&mut self, mode: u16) -> Result<Ino> {
        let per_group = self.new.inodes_per_group;
        for group in 0..self.new.groups {
            let desc = *self.desc(group)?;
            if desc.free_inodes == 0 {
                continue;
            }
            let mut bits = match self.inode_bits.remove(&group) {
                Some(bits) => bits,
                None if desc.flags.contains(GroupFlags::INODE_UNINIT) => self.no_inodes(),
                None => self.block(desc.inode_bitmap.get())?,
            };
            let at = bitmap::next_clear(&bits, 0, per_group);
            if at < per_group {
                let before = bitmap::set(&mut bits, at);
                assert!(!before, "the number was free");
                let group_csum = self.new.features.group_csum();
                let desc = self.desc_mut(group)?;
                desc.free_inodes -= 1;
                desc.flags.remove(GroupFlags::INODE_UNINIT);
                if FileKind::from_mode(mode) == Some(FileKind::Directory) {
                    desc.used_dirs += 1;
                }
                if group_csum {
                    desc.itable_unused = desc.itable_unused.min(per_group - (at + 1));
                }
                self.inode_bits.insert(group, bits);
                let ino = Ino::new(group * per_group + at + 1);
                return ino.ok_or_else(|| Error::unreadable("inode 0"));
            }
            self.inode_bits.insert(group, bits);
        }
        Err(Error::NoRoom("the inodes"))
    }

    /// The inode bitmap of a group without inodes.
    pub(crate) fn no_inodes(&self) -> Vec<u8> {
        bitmap::of_free(self.new.block_size, self.new.inodes_per_group)
    }

    /// Seals the nodes of an inode's tree, whose record is under its new number.
    fn reseal_nodes(&self, ino: Ino) -> Result<()> {
        let core = self.inode(ino)?;
        let Some(seed) = self.seed(ino, &core) else {
            return Ok(());
        };
        if !core.flags.contains(InodeFlags::EXTENTS) || !self.has_map(&core) {
            return Ok(());
        }
        for node in self.tree_under(ino, &core, None)?.nodes {
            let mut bytes = self.block(node.get())?;
            let sealed = set_checksum(&mut bytes, seed);
            sealed.map_err(|error| Error::unreadable(format_args!("inode {ino}: {error}")))?;
            self.put(node.get(), &bytes)?;
        }
        Ok(())
    }

    /// Lets all entries lead to the new numbers, and seals the blocks of directories that moved.
    fn rename(&self, moved: &Moved) -> Result<()> {
        let to: BTreeSet<Ino> = moved.values().copied().collect();
        assert_eq!(to.len(), moved.len(), "no two inodes get one number");
        for group in 0..self.new.groups {
            for ino in self.inodes_of(group)? {
                self.rename_in(ino, to.contains(&ino), moved)?;
            }
        }
        Ok(())
    }

    /// The same in one directory.
    fn rename_in(&self, dir: Ino, is_moved: bool, moved: &Moved) -> Result<()> {
        let Some(core) = self.used_inode(dir)? else {
            return Ok(());
        };
        if FileKind::from_mode(core.mode) != Some(FileKind::Directory) {
            return Ok(());
        }
        let format = DirFormat {
            block_size: self.old.block_size,
            file_type: self.old.features.has_incompat(Incompat::FILETYPE),
            max_ino: self.old.inodes(),
            seed: self.seed(dir, &core),
            folded: core.flags.contains(InodeFlags::CASEFOLD),
            hashes: false,
        };
        if core.flags.contains(InodeFlags::INLINE_DATA) {
            return self.rename_inside(dir, core, &format, moved);
        }
        for (nth, block) in self.data_of(dir, &core)?.into_iter().enumerate() {
            let mut bytes = self.block(block)?;
            let before = bytes.clone();
            let index = index_kind(&format, &core, nth, &bytes);
            match index {
                Some(IndexKind::Node) => {}
                Some(IndexKind::Root) => {
                    retarget(&mut bytes, 0, moved);
                    retarget(&mut bytes, DOT, moved);
                }
                None => {
                    let records = format
                        .records(&bytes)
                        .map(|record| record.map(|r| r.offset));
                    let offsets: Result<Vec<usize>, _> = records.collect();
                    let bad = |error| Error::unreadable(format_args!("directory {dir}: {error}"));
                    for offset in offsets.map_err(bad)? {
                        retarget(&mut bytes, offset, moved);
                    }
                }
            }
            if bytes == before && !is_moved {
                continue;
            }
            match index {
                Some(kind) => {
                    let sealed = format.reseal_index(&mut bytes, kind);
                    let bad = |error| Error::unreadable(format_args!("directory {dir}: {error}"));
                    sealed.map_err(bad)?;
                }
                None => format.seal_leaf(&mut bytes),
            }
            self.put(block, &bytes)?;
        }
        Ok(())
    }
}

impl Volume {
    /// The same in a directory that has its entries inside of its inode.
    fn rename_inside(
        &self,
        dir: Ino,
        mut core: InodeCore,
        format: &DirFormat,
        moved: &Moved,
    ) -> Result<()> {
        let bad = |why: &dyn Display| Error::unreadable(format_args!("directory {dir}: {why}"));
        let bytes = bytes_inside(&core).map_err(|error| bad(&error))?;
        let old = bytes.ok_or_else(|| bad(&"no data inside"))?;
        let mut new = old.clone();
        let size = index(core.disk_size).min(new.len());
        let renumbered = format
            .inside()
            .renumber_inside(&mut new[..size], |ino| moved.get(&ino).copied());
        renumbered.map_err(|error| bad(&error))?;
        if new == old {
            return Ok(());
        }
        match put_inside(&mut core, &new).map_err(|error| bad(&error))? {
            Fit::Fits => self.put_inode(dir, &core),
            Fit::TooLarge => Err(bad(&"attributes that overlap")),
        }
    }
}

/// The kind of block `nth` of a directory, if it belongs to an index.
fn index_kind(format: &DirFormat, core: &InodeCore, nth: usize, bytes: &[u8]) -> Option<IndexKind> {
    match core.flags.contains(InodeFlags::INDEX) {
        true if nth == 0 => Some(IndexKind::Root),
        true if format.looks_like_node(bytes) => Some(IndexKind::Node),
        _ => None,
    }
}

/// Lets the entry at `offset` lead to the new number of its inode, if that has one.
fn retarget(bytes: &mut [u8], offset: usize, moved: &Moved) {
    let field = bytes
        .get_mut(offset..)
        .and_then(|rest| rest.first_chunk_mut::<4>());
    if let Some(field) = field
        && let Some(ino) = Ino::new(u32::from_le_bytes(*field))
        && let Some(to) = moved.get(&ino)
    {
        *field = to.get().to_le_bytes();
    }
}
