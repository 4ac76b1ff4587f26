//! The orphan file: slots for inode numbers in a fixed number of blocks.
//!
//! # Invariants
//! A block's count is at most the number of its free slots, so a claim always finds a slot.
//!
//! # Concurrency
//! Threads start at different blocks, so they rarely meet. Each block has a count of free slots,
//! which a thread claims before it touches the block. The block's own lock decides about the slot.

use extant_sync::atomic::{AtomicUsize, Ordering};
use extant_sync::hash::RandomState;
use extant_sync::thread;
use std::hash::BuildHasher;

use extant_disk::damage::{OrphanDamage, OrphanError};
use extant_disk::orphan;
use extant_jbd2::{Block, Handle};
use extant_units::{Ino, Lblk, Pblk, at_most_u32, index};

use crate::map;
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::state::orphans::{OrphanBlock, OrphanFile};
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

impl OrphanFile {
    /// Finds, reads and checks all blocks of the file.
    pub(super) fn open(fs: &Fs, inode: &Inode) -> Result<Self> {
        let result = Self::load(fs, inode);
        if let Err(error) = &result {
            fs.fault.report(fs, error);
        }
        result
    }

    fn load(fs: &Fs, inode: &Inode) -> Result<Self> {
        let size = inode.core.read().disk_size;
        let count = fs.layout.block_size.blocks_for(size).get();
        if count == 0 || count > orphan::MAX_BLOCKS {
            return Err(Error::corrupt(
                Location::Orphans,
                OrphanDamage::FileSize { blocks: count },
            ));
        }
        let mut file = Self {
            ino: inode.ino,
            seed: inode.csum_seed(fs),
            blocks: Vec::new(),
            slots: orphan::slots_per_block(fs.layout.block_size),
            hasher: RandomState::new(),
        };
        let mut next = 0_u32;
        while u64::from(next) < count {
            let left = at_most_u32(count) - next;
            let run = map::lookup(fs, inode, Lblk::new(next), left)?;
            let MapState::Written(start) = run.state else {
                return Err(Error::corrupt(Location::Orphans, OrphanDamage::Hole));
            };
            debug_assert!((1..=left).contains(&run.len), "{run:?} for {left} blocks");
            fs.cache.readahead(start, run.len);
            for i in 0..run.len {
                let pblk = start.plus(i.into());
                let block = file.read(fs, pblk)?;
                let taken = orphan::orphans(&block.data())
                    .map_err(|error| damaged(pblk, error))?
                    .count();
                debug_assert!(taken <= file.slots, "{taken} of {} slots", file.slots);
                file.blocks.push(OrphanBlock {
                    pblk,
                    free: AtomicUsize::new(file.slots - taken),
                    hint: AtomicUsize::new(0),
                });
            }
            next += run.len;
        }
        Ok(file)
    }

    fn read(&self, fs: &Fs, pblk: Pblk) -> Result<Block> {
        let key = CheckKind::OrphanFile.of_inode(self.ino);
        fs.cache.read(pblk, key, |bytes| {
            orphan::check(self.seed, pblk, bytes).map_err(|error| damaged(pblk, error))
        })
    }

    /// Adds `ino`. Returns block and slot, or `None` if all are taken.
    pub(super) fn add(&self, fs: &Fs, h: &mut Handle, ino: Ino) -> Result<Option<(usize, usize)>> {
        let count = self.blocks.len();
        let spread = self.hasher.hash_one(thread::current().id());
        let first = index(spread % count.max(1) as u64);
        for step in 0..count {
            let at = (first + step) % count;
            let Some(block) = self.blocks.get(at) else {
                continue;
            };
            let claimed = block
                .free
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            if claimed.is_err() {
                continue;
            }
            match self.fill(fs, h, block, ino) {
                Ok(Some(slot)) => return Ok(Some((at, slot))),
                Ok(None) => {}
                Err(error) => {
                    block.free.fetch_add(1, Ordering::AcqRel);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn fill(
        &self,
        fs: &Fs,
        h: &mut Handle,
        block: &OrphanBlock,
        ino: Ino,
    ) -> Result<Option<usize>> {
        let buffer = self.read(fs, block.pblk)?;
        let slot = h.modify(&buffer, |bytes| {
            let slot = orphan::free_slot(bytes, block.hint.load(Ordering::Relaxed))?;
            orphan::set_slot(self.seed, block.pblk, bytes, slot, Some(ino)).then_some(slot)
        })?;
        if let Some(slot) = slot {
            debug_assert!(slot < self.slots, "slot {slot} of {}", self.slots);
            block.hint.store(slot + 1, Ordering::Relaxed);
        }
        Ok(slot)
    }

    /// Frees a slot.
    pub(super) fn remove(&self, fs: &Fs, h: &mut Handle, block: usize, slot: usize) -> Result<()> {
        let Some(block) = self.blocks.get(block) else {
            return Err(Error::corrupt(Location::Orphans, OrphanDamage::NoBlock));
        };
        let buffer = self.read(fs, block.pblk)?;
        h.modify(&buffer, |bytes| {
            orphan::set_slot(self.seed, block.pblk, bytes, slot, None)
        })?;
        block.hint.store(slot, Ordering::Relaxed);
        let before = block.free.fetch_add(1, Ordering::AcqRel);
        debug_assert!(before < self.slots, "{before} slots were free");
        Ok(())
    }

    /// All entries: block, slot, inode number.
    pub(super) fn entries(&self, fs: &Fs) -> Result<Vec<(usize, usize, Ino)>> {
        let mut all = Vec::new();
        for (at, block) in self.blocks.iter().enumerate() {
            let data = self.read(fs, block.pblk)?.data();
            let orphans = orphan::orphans(&data).map_err(|error| damaged(block.pblk, error))?;
            all.extend(orphans.map(|(slot, ino)| (at, slot, ino)));
        }
        Ok(all)
    }
}

fn damaged(block: Pblk, error: OrphanError) -> Error {
    Error::corrupt(Location::Orphans, OrphanDamage::Block { block, error })
}
