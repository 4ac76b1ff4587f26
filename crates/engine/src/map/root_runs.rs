//! The blocks of a file whose extent tree is its root alone.

use extant_disk::extent::Node;
use extant_units::Blocks;

use super::disk_nodes::{DiskNodes, has_extents};
use super::extent_tree::Nodes as _;
use super::locked_map::SharedMap;
use super::removal::is_metadata;
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::volume::Fs;

/// The blocks of `inode`, four runs at most, if they are data that no journal knows and the root of
/// an extent tree leads to all of them. `None` as well if the root is damaged, and where space is
/// allocated in clusters.
pub(crate) fn root_runs(fs: &Fs, inode: &Inode) -> Option<Vec<Run>> {
    // Two extents may share a cluster.
    if !has_extents(inode) || is_metadata(fs, inode) || fs.layout.has_clusters() {
        return None;
    }
    let map = SharedMap::lock(inode);
    let root = inode.core.read().i_block;
    let nodes = DiskNodes::of(fs, &map, root);
    let node = Node::check_root(&root, |start, len| nodes.usable(start, len)).ok()?;
    let runs = node.extents().map(|extent| Run {
        start: extent.pblk,
        len: Blocks::new(u64::from(extent.len)),
    });
    (node.depth() == 0).then(|| runs.collect())
}
