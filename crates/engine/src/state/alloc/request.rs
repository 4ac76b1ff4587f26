//! Requests to the allocators.

use extant_units::{Blocks, Ino, Pblk};

/// A contiguous run of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// First block.
    pub(crate) start: Pblk,
    /// How many.
    pub(crate) len: Blocks,
}

impl Run {
    /// No block.
    pub(crate) const NONE: Self = Self {
        start: Pblk::ZERO,
        len: Blocks::ZERO,
    };
}

/// A request for blocks. Start from [`AllocRequest::new`] and set what differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AllocRequest {
    /// First block wanted: best right behind the extent before it.
    pub(crate) goal: Pblk,
    /// The most blocks that are of use.
    pub(crate) want: Blocks,
    /// The fewest. With fewer, the request fails with [`crate::Error::NoSpace`].
    pub(crate) min: Blocks,
    /// The blocks become metadata (extent nodes, directories, attributes).
    pub(crate) metadata: bool,
    /// The caller may use root's reserve.
    pub(crate) privileged: bool,
    /// A [`Reservation`](super::Reservation) covers the blocks. The caller consumes it for as many
    /// as it got.
    pub(crate) reserved: bool,
    /// The request may use the pool that keeps writeback and conversion going on a full volume.
    pub(crate) pool: bool,
    /// The block numbers must fit 32 bits: block maps hold no longer ones.
    pub(crate) narrow: bool,
    /// The growing file that asks. Blocks behind the run are held for its next request, so that
    /// concurrent writers do not interleave. `None` for everything that does not grow.
    pub(crate) stream: Option<Ino>,
}

impl AllocRequest {
    /// A request of an ordinary caller for `want` data blocks near `goal`, at least one.
    pub(crate) const fn new(goal: Pblk, want: Blocks) -> Self {
        Self {
            goal,
            want,
            min: Blocks::ONE,
            metadata: false,
            privileged: false,
            reserved: false,
            pool: false,
            narrow: false,
            stream: None,
        }
    }
}

/// A request for an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeRequest {
    /// The directory that will hold the first name.
    pub(crate) parent: Ino,
    /// The inode will be a directory.
    pub(crate) directory: bool,
    /// The parent is the root or has the flag `TOPDIR`: a directory below it goes far from its
    /// siblings.
    pub(crate) top_level: bool,
}
