//! The blocks of directories: names in the order of their hashes, packed, and an index over them.
//!
//! A directory that fits one block is linear, as in Linux; a larger one has an index, where the
//! volume's features allow it. Block 0 is the root, then the nodes, then the leaves.

use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_hash::{DirHash, DirHasher};
use extant_disk::dirent::{DirFormat, FileType, rec_len_for};
use extant_disk::file_kind::FileKind;
use extant_disk::htree::IndexKind;
use extant_units::{Lblk, exact_u32};

use crate::error::{Error, Result};
use crate::tree::{NameId, NodeId, Tree};

/// How directories are laid out on a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirLayout {
    pub(crate) hasher: DirHasher,
    /// Set if large directories have an index.
    pub(crate) indexed: bool,
}

/// The blocks of one directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Blocks of names.
    leaves: u64,
    /// Nodes between the root and the leaves.
    nodes: u64,
    pub(crate) indexed: bool,
}

impl Shape {
    /// All blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.leaves + self.nodes + u64::from(self.indexed)
    }
}

impl DirLayout {
    /// Puts the names in `dir` into the order of their hashes.
    pub(crate) fn sort(&self, tree: &mut Tree, dir: NodeId) {
        let hashed = |name| (self.hasher.hash(tree.name_text(name)), name);
        let mut sorted: Vec<(DirHash, NameId)> = tree.children(dir).map(hashed).collect();
        sorted.sort_unstable_by(|one, other| {
            let hashes = one.0.cmp(&other.0);
            hashes.then_with(|| tree.name_text(one.1).cmp(tree.name_text(other.1)))
        });
        tree.arrange(dir, sorted.into_iter().map(|(_, name)| name));
    }

    /// The blocks that `names`, in the order of [`DirLayout::sort`], need in the directory `dir`.
    ///
    /// # Errors
    /// More names than an index of two levels holds.
    pub(crate) fn shape(
        &self,
        tree: &Tree,
        dir: NodeId,
        format: &DirFormat,
        names: &[NameId],
    ) -> Result<Shape> {
        let linear = leaves(tree, format, names, dots_len()).count() as u64;
        let is_lost_found = tree.node(dir).ino == LOST_FOUND;
        if linear <= 1 || !self.indexed || is_lost_found {
            return Ok(Shape {
                leaves: linear.max(1),
                nodes: 0,
                indexed: false,
            });
        }
        let leaves = leaves(tree, format, names, 0).count() as u64;
        let root = format.index_limit(IndexKind::Root) as u64;
        let node = format.index_limit(IndexKind::Node) as u64;
        let nodes = if leaves <= root {
            0
        } else {
            leaves.div_ceil(node)
        };
        if nodes > root {
            let what = "more names than the index of a directory holds: larger blocks hold more";
            return Err(Error::at(tree.path(dir), what));
        }
        Ok(Shape {
            leaves,
            nodes,
            indexed: true,
        })
    }

    /// Gives the blocks of `dir`, which is sorted, to `put`, by their number in the directory.
    /// `blocks` is how many it has: more than it needs are empty.
    ///
    /// # Errors
    /// Those of `put`.
    pub(crate) fn write(
        &self,
        tree: &Tree,
        dir: NodeId,
        format: &DirFormat,
        blocks: u64,
        put: &mut dyn FnMut(u64, &[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let names: Vec<NameId> = tree.children(dir).collect();
        let shape = self
            .shape(tree, dir, format, &names)
            .map_err(std::io::Error::other)?;
        let dots = (tree.ino(dir), tree.ino(tree.parent(dir)));
        let mut block = vec![0; format.block_size.bytes()];
        assert!(
            shape.blocks() <= blocks,
            "the directory has the blocks of its names"
        );
        if !shape.indexed {
            return write_linear(tree, dir, format, blocks, put);
        }
        let major = |name: &NameId| self.hasher.hash(tree.name_text(*name)).major;
        let first = 1 + shape.nodes;
        let mut table = Vec::new();
        let mut last = None;
        for (at, chunk) in (first..).zip(leaves(tree, format, &names, 0)) {
            debug_assert!(!chunk.is_empty(), "a leaf has names");
            let entries = chunk.iter().map(|name| entry(tree, *name));
            format.pack(&mut block, entries);
            put(at, &block)?;
            let hash = chunk.first().map_or(0, major);
            let key = if at == first {
                0
            } else {
                hash | u32::from(last == Some(hash))
            };
            last = chunk.last().map(major);
            table.push((key, lblk(at)));
        }
        assert_eq!(
            table.len() as u64,
            shape.leaves,
            "the leaves that were planned"
        );
        let levels = u8::from(shape.nodes > 0);
        if shape.nodes > 0 {
            table = write_nodes(&table, format, put)?;
            assert_eq!(
                table.len() as u64,
                shape.nodes,
                "the nodes that were planned"
            );
        }
        assert!(
            table.len() <= format.index_limit(IndexKind::Root),
            "the root has room for what is below"
        );
        let version = self.hasher.algorithm().version();
        put(0, &format.new_root(dots, version, levels, &table))
    }
}

/// A function that gets blocks of a directory, by their numbers in it.
type PutBlock<'a> = dyn FnMut(u64, &[u8]) -> std::io::Result<()> + 'a;

/// Gives the blocks of a directory without an index to `put`.
fn write_linear(
    tree: &Tree,
    dir: NodeId,
    format: &DirFormat,
    blocks: u64,
    put: &mut PutBlock<'_>,
) -> std::io::Result<()> {
    let dot = |name, ino| NewEntry {
        name,
        ino,
        file_type: FileType::Directory,
        hash: None,
    };
    let names: Vec<NameId> = tree.children(dir).collect();
    let mut block = vec![0; format.block_size.bytes()];
    let mut first = vec![
        dot(&b"."[..], tree.ino(dir)),
        dot(b"..", tree.ino(tree.parent(dir))),
    ];
    let mut chunks = leaves(tree, format, &names, dots_len());
    for at in 0..blocks {
        // The blocks past the last name's are empty leaves.
        let chunk = chunks.next().unwrap_or_default();
        let entries = chunk.iter().map(|name| entry(tree, *name));
        let dots = std::mem::take(&mut first).into_iter();
        format.pack(&mut block, dots.chain(entries));
        put(at, &block)?;
    }
    assert!(chunks.next().is_none(), "each name is in a block");
    Ok(())
}

/// Gives the nodes above `leaves` to `put`. Returns what leads to them.
fn write_nodes(
    leaves: &[(u32, Lblk)],
    format: &DirFormat,
    put: &mut PutBlock<'_>,
) -> std::io::Result<Vec<(u32, Lblk)>> {
    let mut above = Vec::new();
    for (at, part) in (1..).zip(leaves.chunks(format.index_limit(IndexKind::Node))) {
        put(at, &format.new_node(part))?;
        above.push((part.first().map_or(0, |(key, _)| *key), lblk(at)));
    }
    Ok(above)
}

/// The inode of lost+found.
pub(crate) const LOST_FOUND: u32 = 11;

/// Bytes of "." and "..".
fn dots_len() -> usize {
    rec_len_for(1) + rec_len_for(2)
}

fn lblk(at: u64) -> Lblk {
    Lblk::new(exact_u32(at))
}

fn entry(tree: &Tree, name: NameId) -> NewEntry<'_> {
    let id = tree.target(name);
    NewEntry {
        name: tree.name_text(name),
        ino: tree.ino(id),
        file_type: match tree.node(id).kind() {
            FileKind::Regular => FileType::Regular,
            FileKind::Directory => FileType::Directory,
            FileKind::Symlink => FileType::Symlink,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharDevice,
            FileKind::Fifo => FileType::Fifo,
            FileKind::Socket => FileType::Socket,
        },
        hash: None,
    }
}

/// Names by the blocks that they fill; the first block has `before` bytes of something else.
fn leaves<'a>(
    tree: &'a Tree,
    format: &DirFormat,
    names: &'a [NameId],
    before: usize,
) -> impl Iterator<Item = &'a [NameId]> + use<'a> {
    let end = format.entries_end();
    let mut rest = names;
    let mut used = before;
    let mut first = before > 0;
    std::iter::from_fn(move || {
        if rest.is_empty() && !std::mem::take(&mut first) {
            return None;
        }
        first = false;
        let mut count = 0;
        for name in rest {
            used += rec_len_for(tree.name_text(*name).len());
            if used > end {
                break;
            }
            count += 1;
        }
        debug_assert!(
            count > 0 || rest.is_empty() || before > 0,
            "a name fits a block"
        );
        let (chunk, left) = rest.split_at(count);
        (rest, used) = (left, 0);
        Some(chunk)
    })
}
