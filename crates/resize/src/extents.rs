//! Extent trees: read as a list, moved, and stored anew.

use std::ops::Range;

use extant_disk::csum::Crc32c;
use extant_disk::extent::{Expect, Extent, ExtentError, Node, ROOT_BYTES, node_count, store_tree};
use extant_disk::inode::InodeCore;
use extant_units::{BlockSize, Ino, Lblk, Pblk, at_most_u32};

use crate::error::{Error, Result};
use crate::volume::Volume;

/// A tree as a list: its extents in file order, and the blocks of its nodes.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) extents: Vec<Extent>,
    pub(crate) nodes: Vec<Pblk>,
}

/// The error for a tree that is not as the check has found it.
fn broken(ino: Ino, error: ExtentError) -> Error {
    Error::unreadable(format_args!("inode {ino}: {error}"))
}

impl Volume {
    /// Reads the tree of an inode.
    pub(crate) fn tree(&self, ino: Ino, core: &InodeCore) -> Result<Tree> {
        self.tree_under(ino, core, self.seed(ino, core))
    }

    /// The same, with the seed of the checksums of its nodes; `None` does not look at them.
    pub(crate) fn tree_under(
        &self,
        ino: Ino,
        core: &InodeCore,
        seed: Option<Crc32c>,
    ) -> Result<Tree> {
        let bad = |error| broken(ino, error);
        let mut tree = Tree::default();
        let root = Node::check_root(&core.i_block, |_, _| true).map_err(bad)?;
        let mut pending = children(&root, Expect::ROOT.end, &mut tree);
        while let Some((child, expect)) = pending.pop() {
            // The check has walked this tree: it has no cycle, and its blocks are the volume's.
            let block = self.block(child.get())?;
            let bs = self.old.block_size;
            let node = Node::check_block(&block, bs, seed, |_, _| true).map_err(bad)?;
            node.agrees(&expect).map_err(bad)?;
            tree.nodes.push(child);
            pending.extend(children(&node, expect.end, &mut tree));
        }
        tree.extents.sort_unstable_by_key(|extent| extent.lblk);
        Ok(tree)
    }

    /// Moves what of a file's tree must move. Returns whether anything did.
    pub(crate) fn move_tree(&mut self, ino: Ino, core: &mut InodeCore) -> Result<bool> {
        let mut tree = self.tree(ino, core)?;
        let moves = |run: &Range<u64>| self.must_move(run);
        let data = tree.extents.iter().any(|extent| moves(&blocks_of(extent)));
        if !data && !tree.nodes.iter().any(|node| moves(&one(*node))) {
            return Ok(false);
        }
        let mut extents: Vec<Extent> = Vec::with_capacity(tree.extents.len());
        let mut last = None;
        for extent in std::mem::take(&mut tree.extents) {
            for piece in self.move_extent(&extent, &mut last)? {
                match extents.last_mut() {
                    Some(last) if last.merges_with(&piece) => last.len += piece.len,
                    _ => extents.push(piece),
                }
            }
        }
        debug_assert!(
            extents.is_sorted_by(|one, next| one.end() <= u64::from(next.lblk.get())),
            "in file order"
        );
        tree.extents = extents;
        self.store_tree(ino, core, &tree)?;
        Ok(true)
    }

    /// Moves what of an extent must move: the pieces that become of it, in file order. `last` is
    /// the last cluster of the file that has moved, which the extent may have a part of.
    fn move_extent(
        &mut self,
        extent: &Extent,
        last: &mut Option<MovedCluster>,
    ) -> Result<Vec<Extent>> {
        let run = blocks_of(extent);
        let parts: Vec<Range<u64>> = self.vacated(&run).collect();
        let mut pieces = Vec::new();
        let mut add = |from: u64, len: u64, pblk: u64| {
            let skip = at_most_u32(from - run.start);
            pieces.push(Extent {
                lblk: Lblk::new(extent.lblk.get() + skip),
                len: at_most_u32(len),
                pblk: Pblk::new(pblk),
                unwritten: extent.unwritten,
            });
        };
        let mut at = run.start;
        for part in parts {
            if at < part.start {
                add(at, part.start - at, at);
            }
            at = part.start;
            while at < part.end {
                let to = self.destination(at..part.end, last)?;
                let len = to.end - to.start;
                // Blocks that were never written need no copy.
                match extent.unwritten {
                    true => self.blocks_moved += len,
                    false => self.copy(at, to.start, len)?,
                }
                add(at, len, to.start);
                at += len;
            }
        }
        if at < run.end {
            add(at, run.end - at, at);
        }
        let len: u32 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, extent.len, "the pieces are all of the extent");
        Ok(pieces)
    }

    /// Gives a file other blocks for the first of `run`: in the cluster that the file's last one
    /// has become, or in free clusters, for which those of `run` are given up.
    fn destination(
        &mut self,
        run: Range<u64>,
        last: &mut Option<MovedCluster>,
    ) -> Result<Range<u64>> {
        let (first, inside) = (
            self.old.cluster_start(run.start),
            self.old.offset_in_cluster(run.start),
        );
        let cluster = self.old.cluster_blocks();
        if let Some(moved) = last.as_ref().filter(|moved| moved.from == first) {
            let to = moved.to + inside;
            let len = (run.end - run.start).min(cluster - inside);
            return Ok(to..to + len);
        }
        let within = self.anywhere(false);
        let wanted = self.old.in_whole_clusters(run.end - first);
        let taken = self.take_run(wanted, &within)?;
        let taken = taken.ok_or(Error::NoRoom("the blocks of files"))?;
        let len = taken.end - taken.start;
        self.give_up(first..first + len)?;
        *last = Some(MovedCluster {
            from: first + len - cluster,
            to: taken.end - cluster,
        });
        let start = taken.start + inside;
        Ok(start..taken.end.min(start + (run.end - run.start)))
    }

    /// Stores a tree of an inode, and its number of blocks. Nodes stay where they may.
    pub(crate) fn store_tree(&mut self, ino: Ino, core: &mut InodeCore, tree: &Tree) -> Result<()> {
        let nodes = node_count(tree.extents.len(), self.old.block_size);
        let before = tree.nodes.len();
        let mut blocks_of_nodes = Vec::with_capacity(nodes);
        for node in &tree.nodes {
            match blocks_of_nodes.len() < nodes && !self.must_move(&one(*node)) {
                true => blocks_of_nodes.push(*node),
                false => self.give_up(one(*node))?,
            }
        }
        while blocks_of_nodes.len() < nodes {
            let within = self.anywhere(false);
            let block = self.take_whole(1, &within)?;
            blocks_of_nodes.push(Pblk::new(block.ok_or(Error::NoRoom("the maps of files"))?));
        }
        let seed = self.seed(ino, core);
        // Each node has a cluster to itself.
        let (nodes_now, nodes_before) = (
            nodes as u64 * self.old.cluster_blocks(),
            before as u64 * self.old.cluster_blocks(),
        );
        let per_block = self.block_bytes() as u64 / 512;
        core.sectors = core.sectors + nodes_now * per_block - nodes_before * per_block;
        let stored = store_tree(&tree.extents, &blocks_of_nodes, self.old.block_size, seed);
        let (root, blocks) = stored.map_err(|error| broken(ino, error))?;
        assert_eq!(blocks.len(), nodes, "each node that was counted is stored");
        self.blocks_added += i128::from(nodes_now) - i128::from(nodes_before);
        for (at, bytes) in blocks {
            self.put(at.get(), &bytes)?;
        }
        core.i_block = root;
        Ok(())
    }

    /// The root that maps a file to `runs`, from its first block on, without nodes.
    pub(crate) fn flat_root(
        runs: &[Range<u64>],
        bs: BlockSize,
    ) -> Result<[u8; ROOT_BYTES], ExtentError> {
        let mut lblk = 0;
        let mut extents = Vec::new();
        for run in runs {
            let len = at_most_u32(run.end - run.start);
            extents.push(Extent {
                lblk: Lblk::new(lblk),
                len,
                pblk: Pblk::new(run.start),
                unwritten: false,
            });
            lblk += len;
        }
        store_tree(&extents, &[], bs, None).map(|(root, _)| root)
    }

    /// Frees the clusters of blocks that were moved, where the new volume has no other use for
    /// them.
    pub(crate) fn give_up(&mut self, run: Range<u64>) -> Result<()> {
        let run = self.old.whole_clusters(&run);
        let mut at = run.start;
        for part in self.vacated(&run).collect::<Vec<_>>() {
            self.release(at..part.start.max(at))?;
            at = part.end;
        }
        self.release(at.min(run.end)..run.end)
    }
}

/// A cluster of a file that has moved, by its first block, and the one that it has become.
struct MovedCluster {
    from: u64,
    to: u64,
}

/// The blocks of an extent.
pub(crate) fn blocks_of(extent: &Extent) -> Range<u64> {
    extent.pblk.get()..extent.pblk.get() + u64::from(extent.len)
}

/// A run of one block.
pub(crate) fn one(block: Pblk) -> Range<u64> {
    block.get()..block.get() + 1
}

/// Takes in the extents of a node, or returns its children.
fn children(node: &Node<'_>, end: u64, tree: &mut Tree) -> Vec<(Pblk, Expect)> {
    if node.depth() == 0 {
        tree.extents.extend(node.extents());
        return Vec::new();
    }
    let mut all = Vec::with_capacity(node.len());
    for at in 0..node.len() {
        if let Some(index) = node.index(at) {
            let expect = Expect {
                depth: node.depth().checked_sub(1),
                first: Some(index.lblk),
                end: node.next_start(at, end),
            };
            all.push((index.child, expect));
        }
    }
    all
}
