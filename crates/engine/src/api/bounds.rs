//! The bounds of a volume's calls: the largest file, and requests to end early.

use super::node::Node;
use super::volume::Volume;
use crate::file;

impl Volume {
    /// The largest file in bytes, by the block size and by the kind of the map: 2^32 - 1 blocks
    /// with extents; what its tree of indirect blocks reaches in a block map; without `huge_file`
    /// what the count of its sectors holds. A write that starts there, or a size beyond, fails with
    /// [`crate::Error::FileTooBig`]; a write that reaches past it is cut.
    ///
    /// A front end with a cache above (a kernel) refuses at the call what would fail at writeback.
    /// Takes no lock that an operation holds for long.
    pub fn max_file_size(&self, node: &Node) -> u64 {
        file::max_size(self.fs(), node.inode())
    }

    /// Ends long operations on all threads, now and from now on: for a mount that is to end soon
    /// (SIGTERM). Searches of more than a few blocks of a directory, listings and walks through
    /// files' maps fail with [`crate::Error::Interrupted`] at the next block. Removals that span
    /// transactions fail at the end of the running one; what is left of the file then is an orphan,
    /// which the next mount frees. Short operations go on, and so do syncs and [`Volume::unmount`].
    ///
    /// For one request there is [`crate::Interrupt`].
    pub fn interrupt_all(&self) {
        self.fs().interrupt_all();
    }
}
