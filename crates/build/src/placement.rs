//! The blocks of each node.
//!
//! In the order in which they are taken: directories, long links, blocks of attributes, then the
//! data of files in their order, each in one run where one is long enough.

use std::collections::HashMap;
use std::ops::Range;

use extant_disk::extent::{Extent, node_count};
use extant_disk::file_kind::FileKind;
use extant_disk::xattr::XATTR_REFCOUNT_MAX;
use extant_mkfs::{Formats, Layout};
use extant_units::BlockSize;

use crate::attrs::SetId;
use crate::directory::DirLayout;
use crate::error::Result;
use crate::extents::{count, extents, in_clusters, logical};
use crate::numbering::Numbering;
use crate::room::Room;
use crate::tree::{NameId, NodeId, Tree};

/// A block of attributes that several inodes share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttrBlock {
    /// The first inode that uses it; the set's next block has the inodes from its own first on.
    pub(crate) first_ino: u32,
    pub(crate) users: u32,
    pub(crate) block: u64,
}

/// The blocks of all nodes; those in one run have it in `Node::start`.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Blocks of a cluster.
    cluster: u64,
    /// Nodes whose blocks are in several runs.
    divided: HashMap<NodeId, Vec<Range<u64>>>,
    /// Blocks of extent trees, of the nodes that have some.
    maps: HashMap<NodeId, Vec<u64>>,
    pub(crate) attrs: HashMap<SetId, Vec<AttrBlock>>,
    pub(crate) taken: Vec<Range<u64>>,
    /// Free blocks that are left.
    pub(crate) left: u64,
}

impl Placement {
    fn in_clusters_of(cluster: u64) -> Self {
        Self {
            cluster,
            divided: HashMap::new(),
            maps: HashMap::new(),
            attrs: HashMap::new(),
            taken: Vec::new(),
            left: 0,
        }
    }

    /// Blocks that a node takes for its data: those of its clusters.
    pub(crate) fn data_blocks(&self, tree: &Tree, id: NodeId, bs: u64) -> u64 {
        count(&in_clusters(&logical(tree, id, bs), self.cluster))
    }

    /// Blocks that a node takes which has so many other blocks: each has a cluster.
    pub(crate) fn single_blocks(&self, blocks: u64) -> u64 {
        blocks * self.cluster
    }

    /// The extents of a node.
    pub(crate) fn extents(&self, tree: &Tree, id: NodeId, bs: u64) -> Vec<Extent> {
        let physical = self.runs(tree, id, self.data_blocks(tree, id, bs));
        extents(&logical(tree, id, bs), &physical, self.cluster)
    }

    /// The runs of a node's blocks.
    pub(crate) fn runs(&self, tree: &Tree, id: NodeId, blocks: u64) -> Vec<Range<u64>> {
        match self.divided.get(&id) {
            Some(runs) => runs.clone(),
            None => {
                let start = tree.node(id).start;
                std::iter::once(start..start + blocks).collect()
            }
        }
    }

    /// The blocks of a node's extent tree.
    pub(crate) fn map(&self, id: NodeId) -> &[u64] {
        self.maps.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Takes the blocks of one node, behind those that are `there` already.
    fn allocate(
        &mut self,
        tree: &mut Tree,
        room: &mut Room,
        id: NodeId,
        blocks: u64,
        there: &[Range<u64>],
    ) -> Option<()> {
        let has = count(there);
        assert!(has <= blocks, "a directory has room for what is there");
        let more = blocks - has;
        if there.is_empty()
            && let Some(start) = room.take(more)
        {
            tree.node_mut(id).start = start;
            return Some(());
        }
        let mut runs = there.to_vec();
        if more > 0 {
            match room.take(more) {
                Some(start) => runs.push(start..start + more),
                None => runs.extend(room.take_divided(more)?),
            }
        }
        debug_assert_eq!(count(&runs), blocks, "in as many blocks as it needs");
        let before = self.divided.insert(id, runs);
        assert_eq!(before, None, "a node gets its blocks once");
        Some(())
    }

    /// The block of attributes of inode `ino`, which has `set`.
    pub(crate) fn attr_block(&self, set: SetId, ino: u32) -> Option<u64> {
        let blocks = self.attrs.get(&set)?;
        let after = blocks.partition_point(|block| block.first_ino <= ino);
        Some(blocks.get(after.checked_sub(1)?)?.block)
    }
}

/// Places everything.
pub(crate) struct Placing<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) numbering: &'a Numbering,
    /// The files with data, in their order.
    pub(crate) files: &'a [NodeId],
    pub(crate) layout: &'a Layout,
    pub(crate) block_size: BlockSize,
}

impl Placing<'_> {
    /// The placement of all; `None` where the volume is too small.
    pub(crate) fn all(self) -> Option<Placement> {
        let mut room = Room::of(self.layout.free_runs());
        let geometry = self.layout.geometry();
        let mut placement = Placement::in_clusters_of(geometry.cluster_blocks());
        let bs = self.block_size.bytes_u64();
        for &id in &self.numbering.dirs {
            let blocks = placement.data_blocks(self.tree, id, bs);
            let there = if id == NodeId::ROOT {
                self.layout.root_runs()
            } else if Some(id) == self.numbering.lost_found {
                self.layout.lost_found_runs()
            } else {
                &[]
            };
            let whole = there.iter().map(|run| geometry.whole_clusters(run));
            let there: Vec<_> = whole.collect();
            placement.allocate(self.tree, &mut room, id, blocks, &there)?;
        }
        for &id in &self.numbering.nodes {
            if self.tree.node(id).kind() == FileKind::Symlink {
                let blocks = placement.data_blocks(self.tree, id, bs);
                placement.allocate(self.tree, &mut room, id, blocks, &[])?;
            }
        }
        self.attributes(&mut room, &mut placement)?;
        for &id in self.files {
            let blocks = placement.data_blocks(self.tree, id, bs);
            placement.allocate(self.tree, &mut room, id, blocks, &[])?;
        }
        self.maps(&mut room, &mut placement)?;
        // Nothing is written yet. No source leads here: the blocks are chosen by this plan.
        assert_eq!(
            count(room.taken()) + room.left(),
            self.layout.free_blocks(),
            "blocks are given out or left"
        );
        placement.taken = room.taken().to_vec();
        placement.left = room.left();
        Some(placement)
    }

    /// A block for each set of attributes that has one, and another where too many share it.
    fn attributes(&self, room: &mut Room, placement: &mut Placement) -> Option<()> {
        for ino in 2..=self.numbering.last() {
            let Some(id) = self.numbering.node(ino) else {
                continue;
            };
            let set = self.tree.node(id).attrs;
            if self.tree.attrs.get(set).block.is_empty() {
                continue;
            }
            let blocks = placement.attrs.entry(set).or_default();
            match blocks.last_mut() {
                Some(last) if last.users < XATTR_REFCOUNT_MAX => last.users += 1,
                _ => blocks.push(AttrBlock {
                    first_ino: ino,
                    users: 1,
                    block: room.take(placement.cluster)?,
                }),
            }
        }
        Some(())
    }

    /// Blocks for the trees of those whose extents have no room in the inode.
    fn maps(&self, room: &mut Room, placement: &mut Placement) -> Option<()> {
        let bs = self.block_size.bytes_u64();
        for &id in self.files.iter().chain(&self.numbering.dirs) {
            let runs = logical(self.tree, id, bs);
            let blocks = count(&runs);
            if runs.len() < 2 && !placement.divided.contains_key(&id) && blocks <= SHORT {
                continue;
            }
            let extents = placement.extents(self.tree, id, bs);
            let needed = node_count(extents.len(), self.block_size);
            let nodes: Option<Vec<u64>> =
                (0..needed).map(|_| room.take(placement.cluster)).collect();
            let nodes = nodes?;
            if !nodes.is_empty() {
                placement.maps.insert(id, nodes);
            }
        }
        Some(())
    }
}

/// Blocks in one run whose extents have room in the inode.
const SHORT: u64 = 4 << 15;

/// Gives each directory the size that its names need. Returns blocks that are needed beside those
/// of an empty volume, at least.
///
/// # Errors
/// A directory with too many names.
pub(crate) fn measure(
    tree: &mut Tree,
    numbering: &Numbering,
    dirs: &DirLayout,
    formats: &Formats,
    layout: &Layout,
) -> Result<u64> {
    let bs = formats.inode.block_size.bytes_u64();
    let geometry = layout.geometry();
    let mut blocks = 0;
    for &dir in &numbering.dirs {
        let names: Vec<NameId> = tree.children(dir).collect();
        let shape = dirs.shape(tree, dir, &formats.directory(tree.ino(dir)), &names)?;
        let there = if dir == NodeId::ROOT {
            count(layout.root_runs())
        } else if Some(dir) == numbering.lost_found {
            count(layout.lost_found_runs())
        } else {
            0
        };
        let all = shape.blocks().max(there);
        debug_assert!(all > 0, "a directory has a block");
        tree.node_mut(dir).size = all * bs;
        blocks += geometry.in_whole_clusters(all) - geometry.in_whole_clusters(there);
    }
    for &id in &numbering.nodes {
        if tree.node(id).is_dir() {
            continue;
        }
        let runs = logical(tree, id, bs);
        blocks += count(&in_clusters(&runs, geometry.cluster_blocks()));
    }
    Ok(blocks)
}
