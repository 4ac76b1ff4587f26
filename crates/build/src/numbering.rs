//! Inode numbers: directory by directory, in the order in which a directory is listed.

use extant_archive::Timestamp;
use extant_disk::file_kind::FileKind;
use extant_units::exact_u32;

use crate::directory::{DirLayout, LOST_FOUND};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::tree::{NameId, Node, NodeId, Tree};

/// `EXT4_LINK_MAX`: the most names of a file, and the most subdirectories that are counted.
const MAX_LINKS: u32 = 65_000;
/// The inode of the root directory.
const ROOT_INO: u32 = 2;

/// The nodes of the volume by their inodes.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    /// The directories, the root first, in the order of their blocks.
    pub(crate) dirs: Vec<NodeId>,
    /// The nodes of the inodes from `first` on.
    pub(crate) nodes: Vec<NodeId>,
    /// The first inode behind those of an empty volume.
    pub(crate) first: u32,
    pub(crate) lost_found: Option<NodeId>,
}

impl Numbering {
    /// The last inode in use.
    pub(crate) fn last(&self) -> u32 {
        self.first - 1 + exact_u32(self.nodes.len() as u64)
    }

    /// The node of inode `ino`.
    pub(crate) fn node(&self, ino: u32) -> Option<NodeId> {
        match ino {
            ROOT_INO => Some(NodeId::ROOT),
            LOST_FOUND => self.lost_found,
            _ => {
                let at = ino.checked_sub(self.first)?;
                self.nodes.get(at as usize).copied()
            }
        }
    }
}

/// Makes sure that the root has a directory for lost files, owned as the options say.
///
/// # Errors
/// Something else has its name.
pub(crate) fn add_lost_found(tree: &mut Tree, layer: u16, options: &Options) -> Result<()> {
    const NAME: &[u8] = b"lost+found";
    match tree.lookup(NodeId::ROOT, NAME) {
        Some(known) if tree.node(known).is_dir() => Ok(()),
        Some(_) => Err(Error::at("/lost+found", "it has to be a directory")),
        None => {
            let mut node = Node {
                mode: FileKind::Directory.mode_bits() | 0o700,
                implied: true,
                ..Node::default()
            };
            options.adapt(&mut node);
            let made = tree.add(node)?;
            tree.link(NodeId::ROOT, NAME, made, layer)
        }
    }
}

/// Gives directories that no source has the time of the volume.
pub(crate) fn date_implied(tree: &mut Tree, secs: u64) {
    let time = Timestamp {
        // A time past the largest that a node has stops there.
        secs: i64::try_from(secs).unwrap_or(i64::MAX),
        nanos: 0,
    };
    let ids = tree.node_ids();
    for id in ids {
        let node = tree.node_mut(id);
        if node.implied {
            (node.mtime, node.atime) = (time, time);
        }
    }
}

/// Numbers all nodes, from `first` on, and counts their links. Directories are sorted by that.
///
/// # Errors
/// More links than ext4 counts.
pub(crate) fn number(
    tree: &mut Tree,
    dirs: &DirLayout,
    first: u32,
    uncounted: bool,
) -> Result<Numbering> {
    for id in tree.node_ids() {
        tree.node_mut(id).ino = 0;
    }
    tree.node_mut(NodeId::ROOT).ino = ROOT_INO;
    let lost_found = tree.lookup(NodeId::ROOT, b"lost+found");
    if let Some(lost_found) = lost_found {
        tree.node_mut(lost_found).ino = LOST_FOUND;
    }
    let mut numbering = Numbering {
        first,
        lost_found,
        ..Numbering::default()
    };
    let mut next = first;
    let mut pending = vec![NodeId::ROOT];
    while let Some(dir) = pending.pop() {
        numbering.dirs.push(dir);
        let from = pending.len();
        let mut links = 2;
        dirs.sort(tree, dir);
        let names: Vec<NameId> = tree.children(dir).collect();
        for name in names {
            let id = tree.target(name);
            let node = tree.node_mut(id);
            if node.is_dir() {
                links += 1;
                pending.push(id);
            } else if node.links > MAX_LINKS {
                let what = format!("{} names: ext4 counts {MAX_LINKS}", node.links);
                return Err(Error::at(tree.path(id), what));
            }
            let node = tree.node_mut(id);
            if node.ino == 0 {
                debug_assert!(next > LOST_FOUND, "the format's own inodes are others");
                node.ino = next;
                next += 1;
                numbering.nodes.push(id);
            }
        }
        pending[from..].reverse();
        if links >= MAX_LINKS {
            if !uncounted {
                let what = "more subdirectories than are counted without dir_nlink";
                return Err(Error::at(tree.path(dir), what));
            }
            links = 1;
        }
        tree.node_mut(dir).links = links;
    }
    assert_eq!(
        numbering.last() + 1,
        next,
        "each inode from the first on has a node"
    );
    Ok(numbering)
}
