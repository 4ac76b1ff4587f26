//! Requests to a file's map, and its answers.

use extant_units::{Lblk, Pblk};

/// The state of a range of a file's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapState {
    /// Nothing: reads as zeros.
    Hole,
    /// Space is reserved, nothing allocated yet: only the page cache has the data.
    Delayed,
    /// Data, from this block on.
    Written(Pblk),
    /// Allocated from this block on, reads as zeros.
    Unwritten(Pblk),
}

/// A range of a file's blocks in one state and, if it is allocated, in one run on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockMapping {
    /// First file block: the requested one.
    pub(crate) lblk: Lblk,
    /// Blocks, at least one.
    pub(crate) len: u32,
    /// State of all of them.
    pub(crate) state: MapState,
    /// The call made this range: [`crate::map::allocate`] or [`crate::map::reserve_delayed`]
    /// found a hole or a delayed range.
    pub(crate) new: bool,
    /// The cookie when the mapping was true. The mapping may be used as long as
    /// [`crate::state::map::KnownBlocks::cookie`] is the same for its state.
    pub(crate) seq: u64,
}

/// Blocks that a write asks space for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteSpan {
    /// The first.
    pub(crate) lblk: Lblk,
    /// Blocks to reserve, at least one, if there is a hole.
    pub(crate) len: u32,
    /// Blocks that the writer has locked, `len` or more: blocks that have space are returned up to
    /// there.
    pub(crate) locked: u32,
}

impl WriteSpan {
    /// `len` blocks, and no others.
    pub(crate) fn exact(lblk: Lblk, len: u32) -> Self {
        Self {
            lblk,
            len,
            locked: len,
        }
    }
}

/// The mode of [`crate::map::allocate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AllocateMode {
    /// Enter the blocks as unwritten (file data before its I/O) rather than written (directories).
    pub(crate) unwritten: bool,
    /// Only where the range is delayed (writeback): a hole is returned as a hole, since a
    /// truncation was first.
    pub(crate) only_delayed: bool,
    /// The blocks hold metadata: directory blocks, symlink targets.
    pub(crate) metadata: bool,
    /// May use the space reserved for root.
    pub(crate) privileged: bool,
    /// The first block that is wanted: taken if it is free, without a window for the file's next
    /// blocks.
    pub(crate) goal: Option<Pblk>,
}
