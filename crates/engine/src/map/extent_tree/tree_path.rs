//! The path from the root to a leaf.

use std::ops::Deref;

use extant_disk::extent::{Expect, Extent, MAX_DEPTH, Node, ROOT_BYTES};
use extant_units::{Lblk, Pblk};

use super::node_store::Nodes;
use crate::types::error::Result;

/// A node's bytes, in the inode or in a block.
enum NodeBytes<B> {
    /// The inode's.
    Root([u8; ROOT_BYTES]),
    /// A block's.
    Block(B),
}

impl<B: Deref<Target = [u8]>> Deref for NodeBytes<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Root(bytes) => bytes,
            Self::Block(bytes) => bytes,
        }
    }
}

/// One node of a path, as it was during the descent. It agrees with its parent.
pub(super) struct TreeLevel<B> {
    /// Its block; `None` for the root.
    pub(super) pblk: Option<Pblk>,
    /// Contents according to its parent.
    pub(super) expect: Expect,
    /// Index nodes: the entry that the path follows.
    pub(super) at: usize,
    bytes: NodeBytes<B>,
}

impl<B: Deref<Target = [u8]>> TreeLevel<B> {
    /// The root, with all of its entries checked.
    pub(super) fn root<N: Nodes<Bytes = B>>(nodes: &N) -> Result<Self> {
        let root = nodes.root();
        Node::check_root(&root, |start, len| nodes.usable(start, len))
            .map_err(|why| nodes.damaged(None, why))?;
        Ok(Self {
            pblk: None,
            expect: Expect::ROOT,
            at: 0,
            bytes: NodeBytes::Root(root),
        })
    }

    /// The node.
    pub(super) fn node<N: Nodes<Bytes = B>>(&self, nodes: &N) -> Result<Node<'_>> {
        Node::open(&self.bytes).map_err(|why| nodes.damaged(self.pblk, why))
    }

    /// The child that entry `self.at` names; `None` below a leaf.
    pub(super) fn child<N: Nodes<Bytes = B>>(&self, nodes: &N) -> Result<Option<Self>> {
        let node = self.node(nodes)?;
        let Some(depth) = node.depth().checked_sub(1) else {
            return Ok(None);
        };
        let Some(index) = node.index(self.at) else {
            return Ok(None);
        };
        let child = Self {
            pblk: Some(index.child),
            expect: Expect {
                depth: Some(depth),
                first: Some(index.lblk),
                end: node.next_start(self.at, self.expect.end),
            },
            at: 0,
            bytes: NodeBytes::Block(nodes.node(index.child)?),
        };
        child
            .node(nodes)?
            .agrees(&child.expect)
            .map_err(|why| nodes.damaged(child.pblk, why))?;
        Ok(Some(child))
    }
}

/// The nodes from the root (first) to the leaf (last) that holds, or would hold, a file block.
pub(super) struct TreePath<B> {
    levels: Vec<TreeLevel<B>>,
    leaf: Leaf,
}

/// The decoded leaf at the end of a path.
pub(super) struct Leaf {
    /// The file block at which the next leaf starts: no extent may reach past it.
    pub(super) end: u64,
    /// Its entries.
    pub(super) extents: Vec<Extent>,
}

impl Leaf {
    /// The index at which an extent that starts at `lblk` belongs: entries before it start at or
    /// before `lblk`.
    pub(super) fn position(&self, lblk: Lblk) -> usize {
        self.extents.partition_point(|e| e.lblk <= lblk)
    }
}

impl<B: Deref<Target = [u8]>> TreePath<B> {
    /// Descends to the leaf for `lblk`: the last that starts at or before it, else the first of
    /// all.
    pub(super) fn to<N: Nodes<Bytes = B>>(nodes: &N, lblk: Lblk) -> Result<Self> {
        let mut levels = Vec::with_capacity(usize::from(MAX_DEPTH) + 1);
        let mut level = TreeLevel::root(nodes)?;
        // A child's depth is one less than its parent's: at most MAX_DEPTH rounds.
        loop {
            let node = level.node(nodes)?;
            // Before all of them: the first.
            level.at = node.find(lblk).unwrap_or(0);
            let Some(child) = level.child(nodes)? else {
                let extents = level.node(nodes)?.extents().collect();
                let leaf = Leaf {
                    end: level.expect.end,
                    extents,
                };
                levels.push(level);
                debug_assert!(levels.len() <= usize::from(MAX_DEPTH) + 1, "depths fall");
                return Ok(Self { levels, leaf });
            };
            levels.push(level);
            level = child;
        }
    }

    /// Its nodes, the root first. Never empty.
    pub(super) fn levels(&self) -> &[TreeLevel<B>] {
        &self.levels
    }

    /// The leaf's index in [`TreePath::levels`].
    pub(super) fn bottom(&self) -> usize {
        self.levels.len() - 1
    }

    /// The leaf's entries.
    pub(super) fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// The block of the leaf, or of the node closest above it; `None` if the root is all there is.
    pub(super) fn nearest_block(&self) -> Option<Pblk> {
        self.levels.iter().rev().find_map(|level| level.pblk)
    }
}
