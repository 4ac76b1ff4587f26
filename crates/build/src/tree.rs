//! The tree of a volume to be: names and nodes, compact.
//!
//! A node becomes an inode, a name becomes an entry of a directory; several names may lead to one
//! node. Numbers stand for both, and for strings, so that a file costs about 120 bytes and its
//! name.
//!
//! # Invariants
//! - A pair of directory and name has one slot in `names`, dead or alive: what is removed and comes
//!   again takes the same slot. Lookups stay short however often an archive repeats a name.
//! - The slot of a directory's node is never used again: dead names below it lead nowhere.
//! - There are at most [`MAX_ENTRIES`] names, and as many nodes.

use std::hash::{BuildHasher, RandomState};

use extant_archive::Timestamp;
use extant_disk::file_kind::FileKind;
use extant_units::{Ino, exact_u32};

use crate::attrs::{AttrStore, SetId};
use crate::effort::Effort;
use crate::error::{Error, Result};
pub(crate) use crate::ids::{NameId, NodeId};
use crate::parts::Parts;
use crate::text::{TextId, Texts};

/// The most names that a volume is built of.
pub(crate) const MAX_ENTRIES: usize = 1 << 24;
/// A number that stands for none.
const NONE: u32 = u32::MAX;

/// A node of the tree, which becomes an inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// The location of the content: a position in an archive, a file of a folder, the text of a
    /// link, the numbers of a device. Its meaning follows from the kind and from `origin`.
    pub(crate) data: u64,
    /// Bytes of a file or a link; of a directory once it is planned.
    pub(crate) size: u64,
    /// The first block of the data, once it is placed.
    pub(crate) start: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) atime: Timestamp,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Names that lead to it; of a directory once it is planned: with those of its subdirectories.
    pub(crate) links: u32,
    /// The inode, once it is numbered.
    pub(crate) ino: u32,
    /// The first name in a directory.
    pub(crate) child: u32,
    /// A name that leads to it.
    pub(crate) name: u32,
    pub(crate) attrs: SetId,
    pub(crate) mode: u16,
    /// The source that has the content.
    pub(crate) origin: u16,
    /// A directory that no source has: something is below it.
    pub(crate) implied: bool,
}

impl Node {
    /// Its kind. Sources make no node of a kind that ext4 does not know.
    pub(crate) fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).expect("a node has a kind")
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
struct Name {
    parent: u32,
    /// The node that it leads to; [`NONE`] where it was removed.
    node: u32,
    text: TextId,
    next: u32,
    /// The source that gave it last.
    layer: u16,
}

/// A slot of the table of names.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// The name's number; [`NONE`] in an empty slot.
    name: u32,
}

impl Slot {
    const EMPTY: Self = Self {
        hash: 0,
        name: NONE,
    };
}

/// The tree.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Nodes that lost their last name and are no directories.
    unused: Vec<u32>,
    names: Vec<Name>,
    texts: Texts,
    /// Names by their hashes, of which each slot has a part: other names are passed by unread.
    table: Vec<Slot>,
    hasher: RandomState,
    pub(crate) attrs: AttrStore,
    /// The parts of files with holes.
    pub(crate) parts: Parts,
    /// The work that walks through links and removals may still cost.
    pub(crate) effort: Effort,
}

impl Tree {
    /// A tree of a root directory.
    pub(crate) fn new(root: Node, attrs: AttrStore) -> Self {
        Self {
            nodes: vec![Node {
                child: NONE,
                name: NONE,
                ..root
            }],
            unused: Vec::new(),
            names: Vec::new(),
            texts: Texts::default(),
            table: vec![Slot::EMPTY; 1024],
            hasher: RandomState::new(),
            attrs,
            parts: Parts::default(),
            effort: Effort::default(),
        }
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// The inode of a node. Call it after the numbering.
    pub(crate) fn ino(&self, id: NodeId) -> Ino {
        Ino::new(self.node(id).ino).expect("a node is numbered before its inode is asked for")
    }

    /// The target of a symbolic link.
    pub(crate) fn link_target(&self, node: &Node) -> &[u8] {
        self.text(TextId::from_raw(exact_u32(node.data)))
    }

    /// All nodes that names lead to, and the root.
    pub(crate) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..exact_u32(self.nodes.len() as u64)).map(NodeId)
    }

    /// Keeps a string.
    ///
    /// # Errors
    /// There is no room for more.
    pub(crate) fn store_text(&mut self, text: &[u8]) -> Result<TextId> {
        let stored = self.texts.push(text);
        stored.ok_or_else(|| Error::Options("names take more than 4 GiB".to_owned()))
    }

    pub(crate) fn text(&self, id: TextId) -> &[u8] {
        self.texts.get(id)
    }

    /// A new node that no name leads to yet.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn add(&mut self, node: Node) -> Result<NodeId> {
        let node = Node {
            child: NONE,
            name: NONE,
            links: 0,
            ..node
        };
        if !node.is_dir()
            && let Some(at) = self.unused.pop()
        {
            self.nodes[at as usize] = node;
            return Ok(NodeId(at));
        }
        if self.nodes.len() >= MAX_ENTRIES {
            return Err(too_many());
        }
        let id = NodeId(exact_u32(self.nodes.len() as u64));
        self.nodes.push(node);
        Ok(id)
    }

    /// The node that `name` in `dir` leads to.
    pub(crate) fn lookup(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let (_, found) = self.probe(dir, name);
        let node = self.names.get(found.name as usize)?.node;
        (node != NONE).then_some(NodeId(node))
    }

    /// The source that gave the name that leads to directory `dir`, or to `name` in it.
    pub(crate) fn layer_of(&self, dir: NodeId, name: &[u8]) -> Option<u16> {
        let (_, found) = self.probe(dir, name);
        Some(self.names.get(found.name as usize)?.layer)
    }

    /// The slot of the table where a name is, or would be, and its content.
    fn probe(&self, dir: NodeId, name: &[u8]) -> (usize, Slot) {
        let hash = self.hash(dir, name);
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let found = self.table[slot];
            if found.name == NONE {
                return (slot, Slot { hash, name: NONE });
            }
            if found.hash == hash {
                let known = &self.names[found.name as usize];
                if known.parent == dir.0 && self.texts.get(known.text) == name {
                    return (slot, found);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    fn hash(&self, dir: NodeId, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one((dir.0, name));
        exact_u32(hash & 0xFFFF_FFFF)
    }

    /// The names that it can still take.
    pub(crate) fn room(&self) -> usize {
        MAX_ENTRIES.saturating_sub(self.names.len())
    }

    /// Lets `name` in `dir` lead to `node`. It leads to nothing so far.
    ///
    /// # Errors
    /// There are too many names.
    pub(crate) fn link(
        &mut self,
        dir: NodeId,
        name: &[u8],
        node: NodeId,
        layer: u16,
    ) -> Result<()> {
        let at = match self.probe(dir, name) {
            (slot, Slot { hash, name: NONE }) => self.new_name(dir, name, (slot, hash))?,
            (_, found) => found.name,
        };
        let slot = &mut self.names[at as usize];
        debug_assert_eq!(slot.node, NONE, "what was there is removed first");
        (slot.node, slot.layer) = (node.0, layer);
        let node = &mut self.nodes[node.0 as usize];
        node.links += 1;
        node.name = at;
        Ok(())
    }

    fn new_name(&mut self, dir: NodeId, name: &[u8], (slot, hash): (usize, u32)) -> Result<u32> {
        if self.names.len() >= MAX_ENTRIES {
            return Err(too_many());
        }
        let text = self.store_text(name)?;
        let at = exact_u32(self.names.len() as u64);
        let parent = &mut self.nodes[dir.0 as usize];
        self.names.push(Name {
            parent: dir.0,
            node: NONE,
            text,
            next: parent.child,
            layer: 0,
        });
        parent.child = at;
        self.table[slot] = Slot { hash, name: at };
        if self.names.len() * 3 > self.table.len() * 2 {
            self.grow();
        }
        Ok(at)
    }

    fn grow(&mut self) {
        let size = self.table.len() * 2;
        let before = std::mem::replace(&mut self.table, vec![Slot::EMPTY; size]);
        let mask = size - 1;
        for known in before.into_iter().filter(|slot| slot.name != NONE) {
            let mut slot = known.hash as usize & mask;
            while self.table[slot].name != NONE {
                slot = (slot + 1) & mask;
            }
            self.table[slot] = known;
        }
    }

    /// Marks the name that leads to directory `dir` as given by `layer` too.
    pub(crate) fn touch(&mut self, dir: NodeId, layer: u16) {
        let name = self.nodes[dir.0 as usize].name;
        if let Some(name) = self.names.get_mut(name as usize) {
            name.layer = layer;
        }
    }

    /// Removes `name` from `dir`, with all that is below it.
    pub(crate) fn unlink(&mut self, dir: NodeId, name: &[u8]) {
        let (_, found) = self.probe(dir, name);
        if found.name == NONE {
            return;
        }
        let mut dead = vec![found.name];
        while let Some(at) = dead.pop() {
            let slot = &mut self.names[at as usize];
            let node = std::mem::replace(&mut slot.node, NONE);
            if node == NONE {
                continue;
            }
            let gone = &mut self.nodes[node as usize];
            gone.links -= 1;
            if gone.is_dir() {
                dead.extend(self.name_ids(NodeId(node)).map(|name| name.0));
            } else if gone.links == 0 {
                self.parts.remove(NodeId(node));
                self.unused.push(node);
            }
        }
    }

    /// Removes what sources before `layer` put into `dir`.
    ///
    /// # Errors
    /// The sources asked for too much of this.
    pub(crate) fn unlink_older(&mut self, dir: NodeId, layer: u16) -> Result<()> {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            let names: Vec<NameId> = self.name_ids(dir).collect();
            for name in names {
                self.effort.spend(1)?;
                let Name { layer: own, .. } = self.names[name.0 as usize];
                let node = self.target(name);
                if node.0 == NONE {
                    continue;
                }
                if own < layer {
                    let text = self.name_text(name).to_vec();
                    self.unlink(dir, &text);
                } else if self.node(node).is_dir() {
                    dirs.push(node);
                }
            }
        }
        Ok(())
    }

    /// The slots of names in `dir`, dead ones among them.
    fn name_ids(&self, dir: NodeId) -> impl Iterator<Item = NameId> {
        let first = self.nodes[dir.0 as usize].child;
        let some = |at: u32| (at != NONE).then_some(NameId(at));
        std::iter::successors(some(first), move |name| {
            some(self.names[name.0 as usize].next)
        })
    }

    /// The names in `dir`, in no order that means anything before [`Tree::arrange`] gives one.
    pub(crate) fn children(&self, dir: NodeId) -> impl Iterator<Item = NameId> {
        self.name_ids(dir)
            .filter(|name| self.names[name.0 as usize].node != NONE)
    }

    /// Puts the names in `dir` into another order: `names` are all of [`Tree::children`]. Call it
    /// once the tree is complete: what was removed is forgotten.
    pub(crate) fn arrange(&mut self, dir: NodeId, names: impl DoubleEndedIterator<Item = NameId>) {
        let mut next = NONE;
        for name in names.rev() {
            self.names[name.0 as usize].next = next;
            next = name.0;
        }
        self.nodes[dir.0 as usize].child = next;
    }

    /// The bytes of a name.
    pub(crate) fn name_text(&self, name: NameId) -> &[u8] {
        self.texts.get(self.names[name.0 as usize].text)
    }

    /// The node that a name of [`Tree::children`] leads to.
    pub(crate) fn target(&self, name: NameId) -> NodeId {
        NodeId(self.names[name.0 as usize].node)
    }

    /// The directory that a node is in, by the name that it got last; the root's is itself.
    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        let name = self.nodes[node.0 as usize].name;
        let name = self.names.get(name as usize);
        NodeId(name.map_or(NodeId::ROOT.0, |name| name.parent))
    }

    /// The path of a node, for messages.
    pub(crate) fn path(&self, node: NodeId) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while let Some(name) = self.names.get(self.nodes[at.0 as usize].name as usize) {
            names.push(String::from_utf8_lossy(self.texts.get(name.text)));
            at = NodeId(name.parent);
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
}

/// The error where names are more than [`Tree::room`].
pub(crate) fn too_many() -> Error {
    Error::Options(format!("the sources have more than {MAX_ENTRIES} entries"))
}
