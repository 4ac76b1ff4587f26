//! A bound for reading all files of an image.
//!
//! Blocks have one owner, so all files together have no more data than the volume has blocks. Maps
//! of a damaged image can claim the same blocks again and again, and a small image would be copied
//! without an end.
//!
//! Two kinds of images have more: files that share blocks (`shared_blocks`), and files with several
//! names, where a walk reads them by each. Their flags and link counts are the image's own words,
//! so each of both has a limit in all as well: [`SHARED`] and [`NAMED`] times the volume.

use std::collections::HashSet;

use extant_disk::features::RoCompat;

use super::volume::Volume;
use crate::Result;

/// Volumes of data that all files have together where they share blocks.
const SHARED: u64 = 16;
/// Volumes of data that are read by further names of files: snapshots made of hard links have each
/// file hundreds of times.
const NAMED: u64 = 1024;

/// Data that may still be read of an image, for a walk that reads each of its files once.
#[derive(Clone, Debug, Default)]
pub struct DataBudget {
    /// A file has at most so much.
    all: u64,
    left: u64,
    /// The same for files that were counted before.
    left_to_names: u64,
    /// Files with several names, which a walk may read by each.
    counted: HashSet<u64>,
    /// Bytes left to the current file.
    own: u64,
    /// It was counted before.
    again: bool,
}

impl DataBudget {
    /// Bytes that are no bound: of files that are in no image.
    pub fn unbounded() -> Self {
        Self::new(u64::MAX, 1)
    }

    /// The data of files that have `all` bytes, each of which is in up to `times` of them.
    fn new(all: u64, times: u64) -> Self {
        // Limits: more than 2^64 bytes is none.
        Self {
            all,
            left: all.saturating_mul(times),
            left_to_names: all.saturating_mul(NAMED),
            own: all,
            ..Self::default()
        }
    }

    /// The data that the files of `volume` can have.
    ///
    /// # Errors
    /// Those of [`Volume::statfs`].
    pub fn of(volume: &Volume) -> Result<Self> {
        let stat = volume.statfs()?;
        let all = stat.blocks.saturating_mul(u64::from(stat.block_size));
        let features = &volume.fs().layout.features;
        let shared = features.has_ro_compat(RoCompat::SHARED_BLOCKS);
        Ok(Self::new(all, if shared { SHARED } else { 1 }))
    }

    /// Begins a file: the next [`DataBudget::take`] is of its data.
    pub fn begin(&mut self, inode: u64, links: u64) {
        self.again = links > 1 && !self.counted.insert(inode);
        self.own = self.all;
    }

    /// Takes `bytes` of data of the current file; `false` if the image cannot have so much.
    #[must_use]
    pub fn take(&mut self, bytes: u64) -> bool {
        if self.all == u64::MAX {
            // Nothing is counted: a file whose length is not known takes all that there can be.
            return true;
        }
        let left = match self.again {
            true => &mut self.left_to_names,
            false => &mut self.left,
        };
        let (Some(own), Some(rest)) = (self.own.checked_sub(bytes), left.checked_sub(bytes)) else {
            return false;
        };
        (self.own, *left) = (own, rest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_what_a_volume_has() {
        let mut budget = DataBudget::new(100, 1);
        for (inode, links, bytes, fits) in [
            (1, 1, 60, true),
            (2, 1, 41, false),
            (2, 2, 40, true),
            // By another name, a file has what it had.
            (2, 2, 40, true),
            (2, 2, 101, false),
            (3, 1, 1, false),
        ] {
            budget.begin(inode, links);
            assert_eq!(budget.take(bytes), fits, "{inode} {bytes}");
        }
        let mut unbounded = DataBudget::unbounded();
        assert!(unbounded.take(u64::MAX) && unbounded.take(u64::MAX));
    }

    #[test]
    fn what_an_image_says_of_itself_lifts_no_limit() {
        let files = |budget: &mut DataBudget, inode: fn(u64) -> u64, links| {
            let fits = |number: &u64| {
                budget.begin(inode(*number), links);
                budget.take(100)
            };
            (0..10_000).take_while(fits).count() as u64
        };
        let mut budget = DataBudget::new(100, SHARED);
        assert_eq!(files(&mut budget, |number| number, 1), SHARED);
        budget.begin(1, 1);
        assert!(!budget.take(1), "another file has nothing of its own");
        // The first by its name, and those that follow.
        let mut budget = DataBudget::new(100, 1);
        assert_eq!(files(&mut budget, |_| 7, u64::MAX), 1 + NAMED);
    }
}
