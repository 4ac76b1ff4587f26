//! The location of the log: the runs of device blocks that make up the journal, and its device.

use std::fmt;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::damage::JournalDamage;
use extant_units::{Blocks, Pblk};

use crate::error::JournalError;

/// The runs of device blocks that make up the journal, in log order. Block 0 is the journal's
/// superblock, but on a device of its own.
#[derive(Clone, Debug)]
pub struct LogMap {
    /// In log order; none is empty.
    runs: Vec<Run>,
    /// The same runs as (first block, block after the last), in the order of the device.
    spans: Vec<(Pblk, Pblk)>,
    len: u64,
    /// The log block with the journal's superblock.
    superblock: u32,
    /// The device, if it is not that of the file system.
    device: Option<LogDevice>,
}

/// The device of an external journal.
#[derive(Clone)]
struct LogDevice(Arc<dyn BlockDevice>);

impl fmt::Debug for LogDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogDevice").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The log block that the run begins with.
    index: u64,
    start: Pblk,
    len: u32,
}

impl LogMap {
    /// The log made of `runs`: (first device block, length in blocks), in log order.
    pub fn new(runs: Vec<(Pblk, u32)>) -> Self {
        let mut len = 0;
        let runs: Vec<Run> = runs
            .into_iter()
            .filter(|&(_, run_len)| run_len > 0)
            .map(|(start, run_len)| {
                let index = len;
                len += u64::from(run_len);
                Run {
                    index,
                    start,
                    len: run_len,
                }
            })
            .collect();
        let mut spans: Vec<(Pblk, Pblk)> = runs
            .iter()
            // A run past the largest block number ends there, and so past any device.
            .map(|run| (run.start, run.start.saturating_add(run.len.into())))
            .collect();
        spans.sort_unstable();
        Self {
            runs,
            spans,
            len,
            superblock: 0,
            device: None,
        }
    }

    /// The log that is all of `device`, `blocks` blocks, behind the superblock of an external
    /// journal. Log blocks have the numbers of the device's blocks; the journal's superblock is
    /// block `superblock`.
    pub fn on_device(device: Arc<dyn BlockDevice>, blocks: u32, superblock: u32) -> Self {
        Self {
            superblock,
            device: Some(LogDevice(device)),
            ..Self::new(vec![(Pblk::ZERO, blocks)])
        }
    }

    /// The device of the log of the file system on `home`.
    pub(crate) fn device<'a>(&'a self, home: &'a dyn BlockDevice) -> &'a dyn BlockDevice {
        self.device.as_ref().map_or(home, |device| &*device.0)
    }

    /// Returns whether the log has a device of its own.
    pub(crate) fn is_external(&self) -> bool {
        self.device.is_some()
    }

    /// The device block of the journal's superblock.
    pub(crate) fn superblock(&self) -> Option<Pblk> {
        self.block(self.superblock)
    }

    /// The log's length in blocks.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the log has no blocks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device block of log block `index`, `None` past the end.
    pub fn block(&self, index: u32) -> Option<Pblk> {
        let index = u64::from(index);
        let after = self.runs.partition_point(|run| run.index <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let inside = index - run.index;
        if inside >= u64::from(run.len) {
            return None;
        }
        run.start.checked_add(inside)
    }

    /// Returns whether block `p` of the file system's device belongs to the log.
    pub fn contains(&self, p: Pblk) -> bool {
        if self.is_external() {
            return false;
        }
        let after = self.spans.partition_point(|&(start, _)| start <= p);
        after
            .checked_sub(1)
            .and_then(|at| self.spans.get(at))
            .is_some_and(|&(_, end)| p < end)
    }

    /// Checks that the runs lie on the device and do not overlap.
    pub(crate) fn check(&self, device: Blocks) -> Result<(), JournalError> {
        let outside = self.spans.iter().find(|(_, end)| end.get() > device.get());
        if let Some(&(start, end)) = outside {
            return Err(JournalDamage::OutsideDevice { start, end, device }.into());
        }
        let overlap = self
            .spans
            .iter()
            .zip(self.spans.iter().skip(1))
            .find(|((_, end), (next, _))| end > next);
        match overlap {
            None => Ok(()),
            Some((_, &(block, _))) => Err(JournalDamage::RepeatedBlock { block }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> LogMap {
        LogMap::new(vec![
            (Pblk::new(100), 3),
            (Pblk::new(9), 0),
            (Pblk::new(50), 2),
        ])
    }

    #[test]
    fn log_blocks_are_found_across_runs() {
        let map = map();
        let blocks: Vec<Option<u64>> = (0..6).map(|i| map.block(i).map(Pblk::get)).collect();
        let expected = [Some(100), Some(101), Some(102), Some(50), Some(51), None];
        assert_eq!(blocks, expected);
        assert_eq!(map.len(), 5);
        assert_eq!(LogMap::new(vec![]).block(0), None);
        assert!(LogMap::new(vec![]).is_empty());
        assert!(!LogMap::new(vec![(Pblk::new(5), 1)]).is_empty());
        assert!(map.contains(Pblk::new(51)));
        for outside in [9, 49, 52, 99, 103] {
            assert!(!map.contains(Pblk::new(outside)));
        }
    }

    #[test]
    fn runs_off_the_device_or_over_each_other_are_refused() {
        assert!(map().check(Blocks::new(103)).is_ok());
        assert!(map().check(Blocks::new(102)).is_err());
        let twice = LogMap::new(vec![(Pblk::new(5), 4), (Pblk::new(8), 1)]);
        let error = twice.check(Blocks::new(100)).unwrap_err();
        assert_eq!(error.to_string(), "corrupt journal: block 8 is in it twice");
        let far = LogMap::new(vec![(Pblk::MAX, 4)]);
        assert!(far.check(Blocks::new(u64::MAX - 1)).is_err());
    }
}
