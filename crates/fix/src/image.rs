//! The private copy of a volume that is repaired: its structures, read and stored one by one.
//!
//! # Invariants
//! Every structure that is stored is sealed. Nothing reaches the device below.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::csum::Crc32c;
use extant_disk::dirent::DirFormat;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::inode::{InodeFormat, RawInode};
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_units::{DevOff, Group, Ino, Pblk};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};

/// A device with its changes in memory.
pub(crate) type Overlay = Arc<CowDevice<Arc<dyn BlockDevice>>>;

/// The superblock's bytes on `dev`.
pub(crate) fn super_bytes(dev: &dyn BlockDevice) -> Result<[u8; SUPERBLOCK_SIZE]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if dev.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(extant_check::Error::TooShort.into());
    }
    dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    Ok(bytes)
}

/// Changes the superblock on `dev`, seals it and makes it durable.
pub(crate) fn edit_super(
    dev: &dyn BlockDevice,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let old = super_bytes(dev)?;
    let Some(mut raw) = RawSuperblock::copy_from(&old) else {
        return Err(Error::Unreadable("a superblock of another length".into()));
    };
    change(&mut raw);
    raw.seal();
    if raw.as_bytes() != old {
        dev.write_durable(DevOff::new(SUPERBLOCK_OFFSET), raw.as_bytes())?;
    }
    Ok(())
}

/// The copy and its layout.
pub(crate) struct Image {
    dev: Overlay,
    pub(crate) sb: Superblock,
    geometry: Geometry,
    checksum: GroupChecksum,
    pub(crate) format: InodeFormat,
    pub(crate) seed: Option<Crc32c>,
}

impl Image {
    /// Reads the superblock.
    pub(crate) fn open(dev: &Overlay) -> Result<Image> {
        let sb = Superblock::parse(&super_bytes(dev)?)?;
        sb.check_device_len(dev.len())?;
        let features = sb.features();
        let seed = features.metadata_csum().then(|| sb.checksum_seed());
        let format = InodeFormat {
            inode_size: match sb.is_revision_0() {
                true => 128,
                false => sb.raw().inode_size.get(),
            },
            block_size: sb.block_size(),
            huge_file: features.has_ro_compat(RoCompat::HUGE_FILE),
            wide_blocks: features.has_incompat(Incompat::SIXTY_FOUR_BIT),
            large_dir: features.has_incompat(Incompat::LARGEDIR),
            csum_seed: seed,
        };
        Ok(Image {
            dev: Arc::clone(dev),
            geometry: Geometry::of(&sb),
            checksum: GroupChecksum::of(&sb),
            format,
            seed,
            sb,
        })
    }

    /// The copy.
    pub(crate) fn device(&self) -> &Overlay {
        &self.dev
    }

    /// The offset of a block of the volume.
    pub(crate) fn at(&self, pblk: Pblk) -> Result<DevOff> {
        let inside = pblk.get() < self.sb.blocks_count().get();
        let at = self.sb.block_size().dev_off(pblk).filter(|_| inside);
        at.ok_or_else(|| Error::Unreadable(format!("block {pblk} lies past the end")))
    }

    /// The bytes of a block.
    pub(crate) fn block(&self, pblk: Pblk) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.sb.block_size().bytes()];
        self.dev.read_at(self.at(pblk)?, &mut bytes)?;
        Ok(bytes)
    }

    /// Changes a block; `change` seals it. Without a value from it nothing is stored.
    pub(crate) fn edit<T>(
        &self,
        pblk: Pblk,
        change: impl FnOnce(&mut [u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut bytes = self.block(pblk)?;
        let changed = change(&mut bytes);
        if changed.is_some() {
            self.dev.write_at(self.at(pblk)?, &bytes)?;
        }
        Ok(changed)
    }

    /// Stores a whole block.
    pub(crate) fn put(&self, pblk: Pblk, bytes: &[u8]) -> Result<()> {
        assert_eq!(
            bytes.len(),
            self.sb.block_size().bytes(),
            "a block is stored whole"
        );
        Ok(self.dev.write_at(self.at(pblk)?, bytes)?)
    }

    /// Changes the superblock.
    pub(crate) fn edit_super(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        edit_super(&self.dev, change)?;
        let sb = Superblock::parse(&super_bytes(&self.dev)?)?;
        // Nothing is harmed: this is the private copy.
        assert_eq!(
            (sb.blocks_count(), sb.inodes_count(), sb.features()),
            (
                self.sb.blocks_count(),
                self.sb.inodes_count(),
                self.sb.features()
            ),
            "a repair changes neither size nor features"
        );
        self.sb = sb;
        Ok(())
    }

    /// The sizes and counts, and the blocks that follow from them.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The block that holds the descriptor of a group, and the byte where it begins.
    fn desc_place(&self, group: Group) -> (Pblk, usize) {
        assert!(group.get() < self.sb.group_count(), "a group of the volume");
        let per_block = self.geometry.descs_per_block();
        let block = self.geometry.desc_block(group.get() / per_block);
        let at = (group.get() % per_block) as usize * self.sb.desc_size();
        (Pblk::new(block), at)
    }

    /// Changes a descriptor.
    pub(crate) fn edit_desc(
        &self,
        group: Group,
        change: impl FnOnce(&mut GroupDesc, &GroupChecksum, usize),
    ) -> Result<()> {
        let size = self.sb.desc_size();
        let (pblk, at) = self.desc_place(group);
        let changed = self.edit(pblk, |bytes| {
            debug_assert!(at + size <= bytes.len(), "a descriptor lies in one block");
            let bytes = bytes.get_mut(at..at + size)?;
            let mut desc = GroupDesc::parse(bytes, group, &GroupChecksum::None).ok()?;
            change(&mut desc, &self.checksum, size);
            desc.store(bytes, group, &self.checksum);
            Some(())
        })?;
        changed.ok_or_else(|| Error::Unreadable(format!("descriptor of group {group}")))
    }

    /// A descriptor, whatever its checksum.
    pub(crate) fn desc(&self, group: Group) -> Result<GroupDesc> {
        let mut found = GroupDesc::default();
        let size = self.sb.desc_size();
        let (pblk, at) = self.desc_place(group);
        let bytes = self.block(pblk)?;
        if let Some(bytes) = bytes.get(at..at + size)
            && let Ok(desc) = GroupDesc::parse(bytes, group, &GroupChecksum::None)
        {
            found = desc;
        }
        Ok(found)
    }

    /// Blocks of a group's inode table.
    pub(crate) fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.sb.inodes_per_group()) * u64::from(self.format.inode_size);
        self.sb.block_size().blocks_for(bytes).get()
    }

    /// The block that holds the record of an inode, and the byte where it begins.
    fn place_of(&self, ino: Ino) -> Result<(Pblk, usize)> {
        let (per_group, bs) = (self.sb.inodes_per_group(), self.sb.block_size().bytes());
        let (group, index) = ((ino.get() - 1) / per_group, (ino.get() - 1) % per_group);
        if group >= self.sb.group_count() {
            return Err(Error::Unreadable(format!("inode {ino} does not exist")));
        }
        let table = self.desc(Group::new(group))?.inode_table;
        let byte = index as usize * self.format.record_size();
        let pblk = table.checked_add((byte / bs) as u64);
        let pblk = pblk.ok_or_else(|| Error::Unreadable(format!("table of group {group}")))?;
        debug_assert!(
            byte % bs + self.format.record_size() <= bs,
            "a record lies in one block"
        );
        Ok((pblk, byte % bs))
    }

    /// Changes the record of an inode, and seals it.
    pub(crate) fn edit_inode(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Result<()> {
        let (pblk, at) = self.place_of(ino)?;
        let changed = self.edit(pblk, |bytes| {
            let record = bytes.get_mut(at..at + self.format.record_size())?;
            change(record)?;
            self.format.seal(ino, record);
            Some(())
        })?;
        changed.ok_or_else(|| Error::Unreadable(format!("inode {ino}")))
    }

    /// The record of an inode.
    pub(crate) fn inode_record(&self, ino: Ino) -> Result<Vec<u8>> {
        let (pblk, at) = self.place_of(ino)?;
        let block = self.block(pblk)?;
        let record = block.get(at..at + self.format.record_size());
        let missing = || Error::Unreadable(format!("inode {ino}"));
        record.map(<[u8]>::to_vec).ok_or_else(missing)
    }

    /// The checksum seed of what an inode owns.
    pub(crate) fn owner_seed(&self, ino: Ino) -> Result<Option<Crc32c>> {
        let record = self.inode_record(ino)?;
        let generation = RawInode::of(&record).map_or(0, |raw| raw.generation.get());
        Ok(self.format.inode_seed(ino, generation))
    }

    /// The layout of a directory's blocks.
    pub(crate) fn dir_format(&self, dir: Ino) -> Result<DirFormat> {
        Ok(DirFormat {
            block_size: self.sb.block_size(),
            file_type: self.sb.features().has_incompat(Incompat::FILETYPE),
            max_ino: self.sb.inodes_count(),
            seed: self.owner_seed(dir)?,
            folded: false, // the names that it adds have no case
            hashes: false,
        })
    }
}
