//! A bound for reading all files of an image.
//!
//! Blocks have one owner, so all files together have no more data than the volume has blocks. Maps
//! of a damaged image can claim the same blocks again and again, and a small image would be copied
//! without an end.

use std::collections::HashSet;

use extant_disk::features::RoCompat;

use super::volume::Volume;
use crate::Result;

/// Data that may still be read of an image, for a walk that reads each of its files once.
#[derive(Clone, Debug, Default)]
pub struct DataBudget {
    all: u64,
    left: u64,
    /// Files share blocks, so each has all of them.
    shared: bool,
    /// Files with several names, which a walk may read by each.
    counted: HashSet<u64>,
    /// What is left to the current file, if it was counted before.
    own: Option<u64>,
}

impl DataBudget {
    /// Bytes that are no bound: of files that are in no image.
    pub fn unbounded() -> Self {
        Self {
            all: u64::MAX,
            shared: true,
            own: Some(u64::MAX),
            ..Self::default()
        }
    }

    /// The data that the files of `volume` can have.
    ///
    /// # Errors
    /// Those of [`Volume::statfs`].
    pub fn of(volume: &Volume) -> Result<Self> {
        let stat = volume.statfs()?;
        // A limit: more than 2^64 bytes is none.
        let all = stat.blocks.saturating_mul(u64::from(stat.block_size));
        let features = &volume.fs().layout.features;
        Ok(Self {
            all,
            left: all,
            shared: features.has_ro_compat(RoCompat::SHARED_BLOCKS),
            ..Self::default()
        })
    }

    /// Begins a file: the next [`DataBudget::take`] is of its data.
    pub fn begin(&mut self, inode: u64, links: u64) {
        let again = links > 1 && !self.counted.insert(inode);
        self.own = (self.shared || again).then_some(self.all);
    }

    /// Takes `bytes` of data of the current file; `false` if the image cannot have so much.
    #[must_use]
    pub fn take(&mut self, bytes: u64) -> bool {
        let left = self.own.as_mut().unwrap_or(&mut self.left);
        let rest = left.checked_sub(bytes);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_what_a_volume_has() {
        let mut budget = DataBudget {
            all: 100,
            left: 100,
            ..DataBudget::default()
        };
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
        assert!(unbounded.take(1 << 62));
    }
}
