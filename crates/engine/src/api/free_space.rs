//! Space: telling the device what is free, copying without filling holes.

use std::ops::Range;

use super::node::Node;
use super::volume::Volume;
use crate::Cred;
use crate::Result;
use crate::alloc;
use crate::file;

impl Volume {
    /// Tells the device of the free blocks in the bytes `range` of the volume, in runs of at least
    /// `minimum` bytes, as fstrim(8) does. Returns how many bytes that were. A group that was
    /// trimmed as a whole, and in which nothing was freed since, is not trimmed again.
    ///
    /// # Errors
    /// As the ioctl `FITRIM`: [`crate::Error::Invalid`] if the range starts behind the end of the
    /// volume or is shorter than a block, or if `minimum` exceeds a group;
    /// [`crate::Error::ReadOnly`]; errors of the device.
    pub fn trim(&self, range: Range<u64>, minimum: u64) -> Result<u64> {
        alloc::trim(self.fs(), range, minimum)
    }

    /// Copies up to `len` bytes of `from`, from byte `pos` on, into `to` at byte `to_pos`. Returns
    /// how many: fewer where `from` ends, or if an error came after some. Holes stay holes and
    /// replace what was there.
    ///
    /// # Errors
    /// As copy_file_range(2): [`crate::Error::Invalid`] if both are the same file and the ranges
    /// overlap.
    pub fn copy_range(
        &self,
        (from, pos): (&Node, u64),
        (to, to_pos): (&Node, u64),
        len: u64,
        cred: &Cred,
    ) -> Result<u64> {
        let fs = self.fs();
        let from = file::Side {
            inode: from.inode(),
            open: from.open(fs),
            pos,
        };
        let to = file::Side {
            inode: to.inode(),
            open: to.open(fs),
            pos: to_pos,
        };
        file::copy_range(fs, &from, &to, len, cred)
    }
}
