//! The resize inode: changing what it leads to once descriptors have taken some of its blocks, or
//! once more groups begin with a copy of the superblock.

use extant_disk::damage::ReservedDamage;
use extant_disk::features::Compat;
use extant_disk::geometry::Geometry;
use extant_jbd2::Handle;
use extant_units::{Blocks, Ino, Pblk};

use crate::inode::{self, HeldRecord};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The resize inode's number.
const RESIZE: u32 = 7;
/// Offset of the double indirect block among an inode's pointers, in bytes.
const DOUBLE_INDIRECT: usize = 13 * 4;

/// The resize inode of a volume that has one, before a step of a grow that changes it.
pub(super) struct ResizeInode {
    ino: Ino,
    double: Pblk,
    /// Set if there are more copies of the superblock afterwards.
    more_copies: bool,
}

impl ResizeInode {
    /// The resize inode, if the step from `old` to `new` changes it. `None` if it stays as it is,
    /// or if there is none.
    ///
    /// # Errors
    /// The inode is damaged.
    pub(super) fn find(fs: &Fs, old: &Geometry, new: &Geometry) -> Result<Option<Self>> {
        if !new.features.has_compat(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let more_copies = old.backup_groups().count() != new.backup_groups().count();
        if !more_copies && old.desc_blocks == new.desc_blocks {
            return Ok(None);
        }
        let ino = Ino::new(RESIZE).ok_or(Error::Invalid)?;
        let damaged = || Error::corrupt(Location::Inode(ino), ReservedDamage::ResizeOutside);
        let core = inode::read_core(fs, ino)?;
        let word = core.i_block.get(DOUBLE_INDIRECT..DOUBLE_INDIRECT + 4);
        let word: [u8; 4] = word
            .and_then(|word| word.try_into().ok())
            .ok_or_else(damaged)?;
        let double = Pblk::new(u32::from_le_bytes(word).into());
        if !fs.layout.contains(double, Blocks::ONE) || !fs.zones.may_map(None, double, Blocks::ONE)
        {
            return Err(damaged());
        }
        Ok(Some(Self {
            ino,
            double,
            more_copies,
        }))
    }

    /// Blocks that [`ResizeInode::store`] changes.
    pub(super) fn credits(&self, new: &Geometry) -> u32 {
        2 + if self.more_copies {
            new.reserved_gdt
        } else {
            0
        }
    }

    /// Stores it as that of `new` under `h`.
    ///
    /// # Errors
    /// Its blocks cannot be read, or the journal has stopped.
    pub(super) fn store(&self, fs: &Fs, h: &mut Handle, new: &Geometry) -> Result<()> {
        if self.more_copies {
            for block in new.reserved_descriptors() {
                store_numbers(fs, h, Pblk::new(block), &new.copies_of_reserved(block))?;
            }
        }
        store_numbers(fs, h, self.double, &new.resize_inode_map())?;
        let mut core = inode::read_core(fs, self.ino)?;
        core.sectors = new.resize_inode_blocks() * (new.block_size.bytes_u64() / 512);
        HeldRecord::of(fs, self.ino)?.store(fs, h, &core, false)
    }
}

/// Stores block numbers of 32 bits, as many as fit, and zeros behind them.
fn store_numbers(fs: &Fs, h: &mut Handle, at: Pblk, numbers: &[u64]) -> Result<()> {
    let block = fs.cache.read_unchecked(at)?;
    h.modify(&block, |bytes| {
        bytes.fill(0);
        for (slot, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            // Volumes with a resize inode have fewer than 2^32 blocks.
            slot.copy_from_slice(&u32::try_from(*number).unwrap_or(0).to_le_bytes());
        }
    })?;
    Ok(())
}
