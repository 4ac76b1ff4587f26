//! The store of a tree's nodes.

use std::ops::Deref;

use extant_disk::extent::{ExtentError, NodeMut, ROOT_BYTES, Slot};
use extant_units::{BlockSize, Pblk};

use crate::types::error::{Error, Result};

/// Read access to nodes.
pub(in crate::map) trait Nodes {
    /// A block's bytes: a snapshot.
    type Bytes: Deref<Target = [u8]>;

    /// The file system's block size.
    fn block_size(&self) -> BlockSize;

    /// The root: the inode's `i_block`.
    fn root(&self) -> [u8; ROOT_BYTES];

    /// A node's block, checked by itself (checksum, header, order of entries, usable physical
    /// blocks).
    fn node(&self, at: Pblk) -> Result<Self::Bytes>;

    /// Returns whether the file may own these blocks. For the root, which no block read checks.
    fn usable(&self, start: Pblk, len: u32) -> bool;

    /// The error for damage in the node at `at`, or in the root.
    fn damaged(&self, at: Option<Pblk>, why: ExtentError) -> Error;
}

/// Write access to nodes, under one handle.
pub(in crate::map) trait NodesMut: Nodes {
    /// Replaces the root.
    fn set_root(&mut self, root: &[u8; ROOT_BYTES]) -> Result<()>;

    /// Changes a node in place and sets its checksum.
    fn edit(
        &mut self,
        at: Pblk,
        change: impl FnOnce(&mut NodeMut<'_>) -> Result<(), ExtentError>,
    ) -> Result<()>;

    /// Fills the block `at`, from [`NodesMut::allocate`], with a node of full capacity.
    fn create(&mut self, at: Pblk, depth: u16, entries: &[Slot]) -> Result<()>;

    /// Allocates `count` blocks for nodes near `goal`: all or none.
    fn allocate(&mut self, goal: Option<Pblk>, count: usize) -> Result<Vec<Pblk>>;

    /// Frees the block of a node that the tree does not have any more. A failure loses the block,
    /// and no more: the change of the tree stands, and what is known of it has to follow.
    fn release(&mut self, at: Pblk);
}
