//! The resize inode: what it leads to once descriptors have taken some of its blocks, or once more
//! groups begin with a copy of the superblock.
//!
//! Its double indirect block leads to the blocks that are reserved behind the descriptor table.
//! Each of these leads to its copies in the groups that begin with one.

use extant_disk::features::Compat;
use extant_jbd2::Handle;
use extant_units::{Blocks, Group, Ino, Pblk};

use crate::inode::{self, HeldRecord};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The resize inode's number.
const RESIZE: u32 = 7;
/// The place of the double indirect block among an inode's pointers, in bytes.
const DOUBLE_INDIRECT: usize = 13 * 4;

/// The resize inode of a volume that has one, before and after a step of a grow.
pub(super) struct ResizeInode {
    ino: Ino,
    double: Pblk,
    /// Blocks of the descriptor table afterwards.
    desc_blocks: u32,
    /// Reserved blocks afterwards.
    reserved: u32,
    /// Groups with a copy afterwards.
    copies: Vec<u32>,
    /// There are more of them.
    more_copies: bool,
}

impl ResizeInode {
    /// Plans the resize inode of a volume that has so many groups and blocks of descriptors, each
    /// before and afterwards. `None` if it stays as it is, or if there is none.
    ///
    /// # Errors
    /// The inode is damaged.
    pub(super) fn find(
        fs: &Fs,
        groups: (u32, u32),
        desc_blocks: (u32, u32),
        reserved: u32,
    ) -> Result<Option<Self>> {
        let layout = &fs.layout;
        if !layout.features.has_compat(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let copies =
            |groups: u32| (1..groups).filter(|group| layout.has_superblock(Group::new(*group)));
        let more_copies = copies(groups.0).count() != copies(groups.1).count();
        if !more_copies && desc_blocks.0 == desc_blocks.1 {
            return Ok(None);
        }
        let ino = Ino::new(RESIZE).ok_or(Error::Invalid)?;
        let damaged = || Error::corrupt(Location::Inode(ino), "the resize inode leads nowhere");
        let core = inode::read_core(fs, ino)?;
        let word = core.i_block.get(DOUBLE_INDIRECT..DOUBLE_INDIRECT + 4);
        let word: [u8; 4] = word
            .and_then(|word| word.try_into().ok())
            .ok_or_else(damaged)?;
        let double = Pblk::new(u32::from_le_bytes(word).into());
        if !layout.contains(double, Blocks::ONE) || !fs.zones.may_map(None, double, Blocks::ONE) {
            return Err(damaged());
        }
        Ok(Some(Self {
            ino,
            double,
            desc_blocks: desc_blocks.1,
            reserved,
            copies: copies(groups.1).collect(),
            more_copies,
        }))
    }

    /// Blocks that [`ResizeInode::store`] changes.
    pub(super) fn credits(&self) -> u32 {
        2 + if self.more_copies { self.reserved } else { 0 }
    }

    /// Stores it under `h`.
    ///
    /// # Errors
    /// Its blocks cannot be read, or the journal has stopped.
    pub(super) fn store(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        let layout = &fs.layout;
        let first = layout.descriptor_start.plus(self.desc_blocks.into());
        let per_group = u64::from(layout.blocks_per_group);
        let slots = layout.block_size.bytes() / 4;
        let mut leads_to = vec![0; slots];
        for at in 0..self.reserved {
            let block = first.plus(at.into());
            let slot = (self.desc_blocks + at) as usize % slots.max(1);
            if let Some(slot) = leads_to.get_mut(slot) {
                *slot = block.get();
            }
            if self.more_copies {
                let copy = |group: &u32| block.get() + u64::from(*group) * per_group;
                let copies: Vec<u64> = self.copies.iter().map(copy).collect();
                store_numbers(fs, h, block, &copies)?;
            }
        }
        store_numbers(fs, h, self.double, &leads_to)?;
        let mut core = inode::read_core(fs, self.ino)?;
        let copies = self.copies.len().min(slots) as u64;
        let blocks = 1 + u64::from(self.reserved) * (1 + copies);
        core.sectors = blocks * (layout.block_size.bytes_u64() / 512);
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
