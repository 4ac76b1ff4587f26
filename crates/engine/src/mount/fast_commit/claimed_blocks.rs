//! The blocks that the records of a log claim for files.
//!
//! Those that are free are taken before anything else is allocated, so that no node of a map and no
//! block of a directory gets one. Those that no file has in the end are freed again.

use std::collections::BTreeMap;

use extant_jbd2::Handle;
use extant_units::{Blocks, Pblk};

use crate::alloc;
use crate::state::alloc::Run;
use crate::types::error::Result;
use crate::volume::{Fs, credits};

/// Blocks that were free, and that no file has yet: first block and end of each run.
#[derive(Default)]
pub(super) struct ClaimedBlocks(BTreeMap<u64, u64>);

impl ClaimedBlocks {
    /// Takes what is free of `run`, which lies in the volume and in no system zone. Starts a
    /// handle.
    ///
    /// # Errors
    /// A bitmap that is damaged or cannot be read.
    pub(super) fn claim(&mut self, fs: &Fs, run: Run) -> Result<()> {
        let mut h = fs.start(credits::remove_extent(&fs.layout))?;
        for taken in alloc::take_free(fs, &mut h, run)? {
            let start = taken.start.get();
            self.0.insert(start, start + taken.len.get());
        }
        Ok(())
    }

    /// Gives `run` to a file: what is claimed, and what became free since. False if some of it has
    /// an owner.
    ///
    /// # Errors
    /// As [`ClaimedBlocks::claim`].
    pub(super) fn give(&mut self, fs: &Fs, h: &mut Handle, run: Run) -> Result<bool> {
        let (start, end) = (run.start.get(), run.start.get() + run.len.get());
        let mut missing = run.len.get() - self.remove(start, end);
        if missing > 0 {
            // What was claimed is in use, so this finds the rest only.
            for taken in alloc::take_free(fs, h, run)? {
                missing = missing.saturating_sub(taken.len.get());
            }
        }
        Ok(missing == 0)
    }

    /// Removes what is claimed of `start..end`. Returns how many blocks.
    fn remove(&mut self, start: u64, end: u64) -> u64 {
        let meeting: Vec<(u64, u64)> = self
            .0
            .range(..end)
            .rev()
            .take_while(|&(_, &last)| last > start)
            .map(|(&first, &last)| (first, last))
            .collect();
        let mut removed = 0;
        for (first, last) in meeting {
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, start);
            }
            if last > end {
                self.0.insert(end, last);
            }
            removed += last.min(end) - first.max(start);
        }
        removed
    }

    /// Frees what is left.
    ///
    /// # Errors
    /// As [`ClaimedBlocks::claim`].
    pub(super) fn release(self, fs: &Fs) -> Result<()> {
        for (first, last) in self.0 {
            let run = Run {
                start: Pblk::new(first),
                len: Blocks::new(last - first),
            };
            let mut h = fs.start(credits::remove_extent(&fs.layout))?;
            alloc::free_blocks(fs, &mut h, run, false)?;
        }
        Ok(())
    }
}
