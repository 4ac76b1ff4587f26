//! Block groups: descriptors, bitmaps, free maps; one lock per group.

use extant_units::{Ino, Pblk};

use crate::error::{Error, Place, Result};
use crate::layout::Layout;

/// Block groups.
#[derive(Default)]
pub(crate) struct GroupTable {}

/// Where an inode lies on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeLocation {
    /// The block of the inode table.
    pub(crate) block: Pblk,
    /// The inode's first byte in that block.
    pub(crate) offset: usize,
}

impl GroupTable {
    /// Where inode `ino` lies.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such inode.
    pub(crate) fn inode_location(&self, layout: &Layout, ino: Ino) -> Result<InodeLocation> {
        let _ = layout;
        Err(Error::corrupt(Place::Inode(ino), "no such inode"))
    }
}
