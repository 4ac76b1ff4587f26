//! Free space, and who is told of it.

use std::ops::Range;

use super::filesystem::Filesystem;
use super::volume::Volume;
use crate::{Result, alloc};

impl Volume {
    /// Tells the device of the free blocks in the bytes `range` of the volume, in runs of at least `minimum` bytes: fstrim(8)'s
    /// work. Returns how many bytes that were. A group that was trimmed as a whole, and in which nothing was freed since, is not
    /// trimmed again.
    ///
    /// # Errors
    /// As the ioctl `FITRIM`: [`crate::Error::Invalid`] if the range begins behind the end of the volume or is shorter than a block, or
    /// if `minimum` is more than a group of blocks has; [`crate::Error::ReadOnly`]; what the device answers.
    pub fn trim(&self, range: Range<u64>, minimum: u64) -> Result<u64> {
        alloc::trim(self.fs(), range, minimum)
    }
}

impl Filesystem {
    /// The same for all free blocks: see [`Volume::trim`].
    ///
    /// # Errors
    /// As [`Volume::trim`].
    pub fn trim(&self) -> Result<u64> {
        self.volume().trim(0..u64::MAX, 0)
    }
}
