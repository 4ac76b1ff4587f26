//! Requests to resize, and their results.

use extant_check::CheckOptions;

/// The size that a volume shall have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// At most so many bytes: whole blocks, and a last group that is worth its metadata.
    Bytes(u64),
    /// The least that holds what the volume holds.
    Least,
}

/// How to resize.
#[derive(Clone, Copy, Default)]
pub struct ResizeOptions<'a> {
    /// How the checks before and after run. Their progress is that of the resize.
    pub check: CheckOptions<'a>,
}

/// The result of a resize.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks before.
    pub blocks_before: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Blocks that were moved.
    pub blocks_moved: u64,
    /// Inodes that have another number now.
    pub inodes_moved: u64,
}

impl Report {
    /// Bytes of the volume now.
    pub fn bytes(&self) -> u64 {
        self.blocks * self.block_size
    }
}
