//! Changing the location of a file's blocks while the file is in use.

use super::node::Node;
use super::volume::Volume;
use std::ops::Range;

use crate::Result;
use crate::file;
use crate::types::Cred;
use crate::types::Defragmented;

impl Volume {
    /// Converts the block map of a file or directory, as ext2 and ext3 make them, to an extent
    /// tree. The data stays in its location. One transaction: a crash shows one map or the other.
    /// Does nothing for files with extents. `chattr +e` on a mount does the same.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] on a volume without the feature `extent`, for links and
    /// special files, and for a map that is larger than a transaction;
    /// [`crate::Error::NotPermitted`] for immutable files; [`crate::Error::Busy`] for a file that
    /// is changed through views all the time; [`crate::Error::NoSpace`]. The file is unchanged
    /// then.
    pub fn convert_to_extents(&self, node: &Node) -> Result<()> {
        file::convert_to_extents(self.fs(), node.inode())
    }

    /// Moves a file's data into the fewest runs of blocks that free space allows, longest first,
    /// while the file is in use. A piece of some MiB at a time is locked against writers, and
    /// readers wait only while the map changes. A crash leaves each piece in its old location or in
    /// the new one. Calls `progress` with the bytes done and the bytes in all.
    ///
    /// Nothing moves if the data cannot lie in fewer runs than it does. If less space is free than
    /// the file needs, it is moved part by part.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for files with block maps, encrypted or journalled data;
    /// [`crate::Error::Invalid`] and [`crate::Error::IsDir`] for anything but a regular file;
    /// [`crate::Error::NotPermitted`] for immutable files; [`crate::Error::NoSpace`];
    /// [`crate::Error::Busy`] for a file that is changed through views all the time; failures of
    /// the device. What was moved stays moved, and no data is lost.
    pub fn defragment(
        &self,
        node: &Node,
        cred: &Cred,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Defragmented> {
        file::defragment(self.fs(), node.inode(), cred, &mut progress)
    }

    /// Exchanges the blocks of the bytes `range` of `orig`, whole blocks, with those from byte
    /// `donor_pos` of `donor` on, where both have blocks (`EXT4_IOC_MOVE_EXT`). The content of
    /// `orig` stays, and `donor` gets the same content there. Returns the number of bytes
    /// exchanged.
    ///
    /// # Errors
    /// As the ioctl: [`crate::Error::Invalid`] for one file twice, for anything but regular files,
    /// for an empty file or one on another volume, for a donor with set-id bits, for a range that
    /// is empty after it was cut at the ends of both, or that starts at another offset in its page
    /// than the donor's; [`crate::Error::NotPermitted`] for an immutable or append-only donor;
    /// [`crate::Error::NotSupported`] for block maps, encrypted or journalled data;
    /// [`crate::Error::NoAttribute`] ("no data available") if neither has blocks from there on; the
    /// rest as [`Volume::defragment`]. Files on the iomap path are not refused.
    pub fn move_extents(
        &self,
        orig: &Node,
        donor: &Node,
        range: Range<u64>,
        donor_pos: u64,
    ) -> Result<u64> {
        file::move_extents(self.fs(), orig.inode(), donor.inode(), range, donor_pos)
    }
}
