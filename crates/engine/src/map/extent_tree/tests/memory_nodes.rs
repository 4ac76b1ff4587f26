//! A store of nodes in memory, and a full check of the tree in it.

use std::collections::{BTreeMap, BTreeSet};

use extant_disk::csum::Crc32c;
use extant_disk::extent::{
    Extent, ExtentError, Node, NodeMut, ROOT_BYTES, ROOT_CAPACITY, Slot, block_capacity,
    set_checksum,
};
use extant_units::{BlockSize, Ino, Pblk};

use super::super::{Nodes, NodesMut, walk};
use crate::types::error::{Error, Location, Result};

/// Blocks for nodes start here; data lies below.
const FIRST_NODE: u64 = 1 << 40;

pub(super) struct MemoryNodes {
    pub(super) root: [u8; ROOT_BYTES],
    pub(super) blocks: BTreeMap<Pblk, Vec<u8>>,
    block_size: BlockSize,
    seed: Option<Crc32c>,
    next: u64,
    /// Allocations that still succeed.
    pub(super) room: usize,
    /// The most nodes that one step changed.
    pub(super) touched: BTreeSet<Pblk>,
}

impl MemoryNodes {
    pub(super) fn new(block_size: BlockSize, csum: bool) -> Self {
        let mut root = [0; ROOT_BYTES];
        NodeMut::init(&mut root, 0, ROOT_CAPACITY).unwrap();
        Self {
            root,
            blocks: BTreeMap::new(),
            block_size,
            seed: csum.then_some(Crc32c::from_raw(77)),
            next: FIRST_NODE,
            room: usize::MAX,
            touched: BTreeSet::new(),
        }
    }

    /// Does not hand out again what `other` has.
    pub(super) fn skip_addresses_of(&mut self, other: &Self) {
        self.next = other.next;
    }

    pub(super) fn depth(&self) -> u16 {
        Node::open(&self.root).unwrap().depth()
    }

    pub(super) fn extents(&self) -> Vec<Extent> {
        walk(self, extant_units::Lblk::ZERO)
            .collect::<Result<_>>()
            .unwrap()
    }

    /// Every node is reachable, none but the root is empty, keys are exact, the depth is the least
    /// for a root with a single child.
    pub(super) fn validate(&self) {
        let mut seen = BTreeSet::new();
        let root = Node::check_root(&self.root, |_, _| true).unwrap();
        assert!(root.depth() > 0 || root.len() <= 4);
        let mut last = None;
        self.validate_below(&root, None, &mut seen, &mut last);
        let all: BTreeSet<Pblk> = self.blocks.keys().copied().collect();
        assert_eq!(
            seen, all,
            "every node is in the tree once, and every block is a node"
        );
    }

    fn validate_below(
        &self,
        node: &Node<'_>,
        first: Option<extant_units::Lblk>,
        seen: &mut BTreeSet<Pblk>,
        last: &mut Option<Extent>,
    ) {
        assert!(
            first.is_none() || node.lblk(0) == first,
            "a key that is not exact"
        );
        for extent in node.extents() {
            assert!(last.is_none_or(|last| last.end() <= u64::from(extent.lblk.get())));
            *last = Some(extent);
        }
        for i in 0..node.len() {
            let Some(index) = node.index(i) else { break };
            assert!(seen.insert(index.child));
            let bytes = self.node(index.child).unwrap();
            let child = Node::open(&bytes).unwrap();
            assert_eq!(child.depth() + 1, node.depth());
            assert!(!child.is_empty());
            self.validate_below(&child, Some(index.lblk), seen, last);
        }
    }
}

impl Nodes for MemoryNodes {
    type Bytes = Vec<u8>;

    fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn root(&self) -> [u8; ROOT_BYTES] {
        self.root
    }

    fn node(&self, at: Pblk) -> Result<Vec<u8>> {
        let block = self
            .blocks
            .get(&at)
            .ok_or(Error::Io("no such block".into()))?;
        Node::check_block(block, self.block_size, self.seed, |p, len| {
            self.usable(p, len)
        })
        .map_err(|why| self.damaged(Some(at), why))?;
        Ok(block.clone())
    }

    fn usable(&self, start: Pblk, _len: u32) -> bool {
        start.get() != 0
    }

    fn damaged(&self, at: Option<Pblk>, why: ExtentError) -> Error {
        let location = at.map_or(Location::Inode(Ino::ROOT), |at| {
            Location::ExtentNode(Ino::ROOT, at)
        });
        Error::corrupt(location, why)
    }
}

impl NodesMut for MemoryNodes {
    fn set_root(&mut self, root: &[u8; ROOT_BYTES]) -> Result<()> {
        self.root = *root;
        Ok(())
    }

    fn edit(
        &mut self,
        at: Pblk,
        change: impl FnOnce(&mut NodeMut<'_>) -> Result<(), ExtentError>,
    ) -> Result<()> {
        let seed = self.seed;
        self.touched.insert(at);
        let block = self.blocks.get_mut(&at).expect("an edited node exists");
        let edit = || {
            change(&mut NodeMut::open(block)?)?;
            seed.map_or(Ok(()), |seed| set_checksum(block, seed))
        };
        edit().map_err(|why| self.damaged(Some(at), why))
    }

    fn create(&mut self, at: Pblk, depth: u16, entries: &[Slot]) -> Result<()> {
        self.touched.insert(at);
        let mut block = vec![0; self.block_size.bytes()];
        NodeMut::init(&mut block, depth, block_capacity(self.block_size))
            .and_then(|mut node| node.insert(0, entries))
            .unwrap();
        if let Some(seed) = self.seed {
            set_checksum(&mut block, seed).unwrap();
        }
        assert!(self.blocks.insert(at, block).is_none());
        Ok(())
    }

    fn allocate(&mut self, _goal: Option<Pblk>, count: usize) -> Result<Vec<Pblk>> {
        self.room = self.room.checked_sub(count).ok_or(Error::NoSpace)?;
        Ok((0..count)
            .map(|_| {
                self.next += 1;
                Pblk::new(self.next)
            })
            .collect())
    }

    fn release(&mut self, at: Pblk) {
        self.touched.insert(at);
        assert!(self.blocks.remove(&at).is_some(), "released twice");
    }
}
