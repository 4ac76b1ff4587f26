//! Where files lie on the device, and changing that while they are in use.

use super::node::Node;
use super::volume::Volume;
use std::ops::Range;

use crate::Result;
use crate::file;
use crate::types::Cred;
use crate::types::Defragmented;

impl Volume {
    /// Gives a file or directory with a block map, as ext2 and ext3 make them, an extent tree: its data stays where it is. One
    /// transaction; a crash shows the one or the other. Nothing to do for what has extents. `chattr +e` on a mount does the same.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] on a volume without the feature `extent`, for links and special files, and for a map that is
    /// larger than a transaction; [`crate::Error::NotPermitted`] for immutable files; [`crate::Error::Busy`] for a file that goes on
    /// being changed through views; [`crate::Error::NoSpace`]. The file is as it was then.
    pub fn convert_to_extents(&self, node: &Node) -> Result<()> {
        file::convert_to_extents(self.fs(), node.inode())
    }

    /// Gives a file's data the fewest runs of blocks that free space allows, longest first, while it is in use: no more than a piece of some MiB
    /// is kept from writers at a time, and readers wait for a change of the map only. A crash leaves each piece in its old place
    /// or in the new one. `progress` is told how many bytes of how many have been dealt with.
    ///
    /// Nothing moves if the data cannot lie in fewer runs than it does. Where less space is free than the file has, it is done part by
    /// part.
    ///
    /// # Errors
    /// [`crate::Error::NotSupported`] for files with block maps, encrypted or journalled data; [`crate::Error::Invalid`] and
    /// [`crate::Error::IsDir`] for what is no file; [`crate::Error::NotPermitted`] for immutable files; [`crate::Error::NoSpace`];
    /// [`crate::Error::Busy`] for a file that goes on being changed through views; failures of the device. What was moved stays moved, and
    /// no data is lost.
    pub fn defragment(
        &self,
        node: &Node,
        cred: &Cred,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Defragmented> {
        file::defragment(self.fs(), node.inode(), cred, &mut progress)
    }

    /// Exchanges the blocks of the bytes `range` of `orig`, whole blocks, with those from byte `donor_pos` of `donor` on, where both have some: what
    /// `orig` shows stays, and `donor` shows the same there. Returns how many bytes were exchanged. (`EXT4_IOC_MOVE_EXT`.)
    ///
    /// # Errors
    /// As the ioctl: [`crate::Error::Invalid`] for one file twice, what is no file, empty, or on another volume, a donor with
    /// set-id bits, a range that is empty after it was cut at the ends of both, or that begins at another place of its page than the
    /// donor's; [`crate::Error::NotPermitted`] for an immutable or append-only donor; [`crate::Error::NotSupported`] for block maps,
    /// encrypted or journalled data; [`crate::Error::NoAttribute`] ("no data available") if nothing has blocks from there on; the rest as
    /// [`Volume::defragment`]. Files whose data is moved over ranges are not refused.
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
