//! Where files lie on the device, and changing that while they are in use.

use super::node::Node;
use super::volume::Volume;
use crate::{Result, file};

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
}
