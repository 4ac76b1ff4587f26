//! The journal: the blocks of its log, and other ones for it.

use std::ops::Range;

use extant_disk::features::Incompat;
use extant_disk::inode::InodeFlags;
use extant_disk::jbd2::superblock::JournalSuperblock;
use extant_jbd2::{LogMap, inspect};
use extant_units::{Ino, Pblk, at_most_u32};

use crate::error::{Error, Result};
use crate::extents::one;
use crate::pointers::words;
use crate::volume::Volume;

/// Runs that an inode maps without a node.
const MOST_RUNS: usize = 4;
/// The longest of them.
const LONGEST: u64 = 1 << 15;

impl Volume {
    /// Finds the log, and moves it if it must move.
    pub(crate) fn move_log(&mut self) -> Result<()> {
        let Some(ino) = self.journal() else {
            return Ok(());
        };
        let runs = self.log_runs(ino)?;
        self.log = Some(map_of(&runs));
        if self
            .log_parts(ino, &runs)?
            .iter()
            .any(|run| self.must_move(run))
        {
            let len = runs.iter().map(|run| run.end - run.start).sum();
            self.relocate_log(len)?;
        }
        Ok(())
    }

    /// Gives the log `len` other blocks. Both volumes have it, so that a replay
    /// finds it whichever superblock it reads.
    pub(crate) fn relocate_log(&mut self, len: u64) -> Result<()> {
        let Some(ino) = self.journal() else {
            return Ok(());
        };
        if !self.new.features.has_incompat(Incompat::EXTENTS) {
            return Err(Error::Unsupported(
                "its journal has to move, which needs the feature extent",
            ));
        }
        if len > MOST_RUNS as u64 * LONGEST {
            return Err(Error::Unsupported(
                "its journal has to move, and has more than the 131072 blocks that can",
            ));
        }
        if self.old.cluster_blocks() > LONGEST {
            return Err(Error::Unsupported(
                "its journal has to move, which clusters of more than 32768 blocks do not allow",
            ));
        }
        let within = 0..self.old.blocks.min(self.new.blocks);
        let (mut runs, mut left) = (Vec::new(), len);
        while left > 0 {
            let run = self.take_run(left.min(LONGEST), &within)?;
            let run = run.filter(|_| runs.len() < MOST_RUNS);
            let run = run.ok_or(Error::NoRoom("the journal, in at most four pieces"))?;
            left -= run.end - run.start;
            runs.push(run);
        }
        assert_eq!(map_of(&runs).len(), len, "the runs have as many blocks");
        assert!(
            runs.iter().all(|run| run.end <= within.end),
            "both volumes have the log"
        );
        let before = self.log_runs(ino)?;
        let mut given_up = 0;
        for run in self.log_parts(ino, &before)? {
            let run = self.old.whole_clusters(&run);
            given_up += run.end - run.start;
            self.give_up(run)?;
        }
        let taken = self.old.in_whole_clusters(len);
        self.blocks_added += i128::from(taken) - i128::from(given_up);
        self.clear_log(&runs)?;
        let mut core = self.inode(ino)?;
        let root = Self::flat_root(&runs, self.old.block_size);
        core.i_block = root.map_err(Error::unreadable)?;
        core.flags |= InodeFlags::EXTENTS;
        core.sectors = taken * (self.block_bytes() as u64 / 512);
        core.disk_size = len * self.block_bytes() as u64;
        self.put_inode(ino, &core)?;
        // The superblock has a copy of the map, for repairs.
        for (slot, word) in self.raw.jnl_blocks.iter_mut().zip(words(&core.i_block)) {
            slot.set(word);
        }
        let size = core.disk_size.to_le_bytes();
        let [low, high] = [size.first_chunk::<4>(), size.last_chunk::<4>()];
        for (slot, half) in self.raw.jnl_blocks.iter_mut().skip(15).zip([high, low]) {
            slot.set(half.map_or(0, |half| u32::from_le_bytes(*half)));
        }
        self.log = Some(map_of(&runs));
        self.log_moved = true;
        Ok(())
    }

    /// Makes an empty log of blocks that the volume does not use: no block of it may look like a
    /// part of a transaction.
    fn clear_log(&self, runs: &[Range<u64>]) -> Result<()> {
        for run in runs {
            self.clear(run)?;
        }
        let Some(mut superblock) = self.log_super()? else {
            return Ok(());
        };
        superblock.set_len(at_most_u32(map_of(runs).len()));
        let mut bytes = superblock.to_bytes().to_vec();
        bytes.resize(self.block_bytes(), 0);
        match runs.first() {
            Some(first) => self.put(first.start, &bytes),
            None => Ok(()),
        }
    }

    /// The journal's superblock, of a log that is empty.
    pub(crate) fn log_super(&self) -> Result<Option<JournalSuperblock>> {
        let Some(ino) = self.journal() else {
            return Ok(None);
        };
        let old = self.old_log(ino)?;
        let superblock = inspect(self.dev.base(), self.old.block_size, &old)?;
        if superblock.start() != 0 {
            // The volume does not say so. A replay would bring old blocks back.
            return Err(Error::Unsupported(
                "its journal is not empty, though it says that nothing waits: e2fsck first",
            ));
        }
        Ok(Some(superblock))
    }

    /// The blocks of the log on the device.
    pub(crate) fn old_log(&self, ino: Ino) -> Result<LogMap> {
        let found = extant_check::find_log(self.dev.base().clone())?;
        found.ok_or_else(|| Error::unreadable(format_args!("journal in inode {ino}")))
    }

    /// The runs of the log's blocks, in its order.
    fn log_runs(&self, ino: Ino) -> Result<Vec<Range<u64>>> {
        let core = self.inode(ino)?;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in self.data_of(ino, &core)? {
            match runs.last_mut() {
                Some(last) if last.end == block => last.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        Ok(runs)
    }

    /// The same, and the blocks of its map.
    fn log_parts(&self, ino: Ino, runs: &[Range<u64>]) -> Result<Vec<Range<u64>>> {
        let core = self.inode(ino)?;
        let mut parts = runs.to_vec();
        match core.flags.contains(InodeFlags::EXTENTS) {
            true => parts.extend(self.tree(ino, &core)?.nodes.into_iter().map(one)),
            false => parts.extend(
                self.pointer_blocks(&core)?
                    .into_iter()
                    .map(Pblk::new)
                    .map(one),
            ),
        }
        Ok(parts)
    }
}

/// The log in `runs`.
fn map_of(runs: &[Range<u64>]) -> LogMap {
    let run = |run: &Range<u64>| (Pblk::new(run.start), at_most_u32(run.end - run.start));
    LogMap::new(runs.iter().map(run).collect())
}
