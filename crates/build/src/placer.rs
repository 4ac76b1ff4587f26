//! Puts the entries of sources into the tree.
//!
//! # Invariants
//! - Names never leave the tree: `..` in one is refused, links are followed within the tree, at
//!   most [`MAX_LINKS`] on a way, and what they lead to cannot be above the root.
//! - A source removes (by OCI's whiteouts) files of sources before it only.

use std::collections::VecDeque;

use extant_disk::dirent::MAX_NAME_LEN;
use extant_disk::file_kind::FileKind;

use crate::error::{Error, Result};
use crate::tree::{Node, NodeId, Tree};

/// Links followed on the way to one name, as in Linux.
const MAX_LINKS: usize = 40;
/// The longest path of a name in a source, and of what a link says, in bytes.
pub(crate) const MAX_PATH: usize = 4095;
/// Prefix of the names of removed files in layers of container images.
const WHITEOUT: &[u8] = b".wh.";
/// The most directories that are noted because something else replaced them.
const MOST_REPLACED: usize = 1000;
/// The name that removes all that earlier layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Power of a source over entries of earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Nothing is earlier.
    Nothing,
    /// A source over others: whiteouts remove, files replace; a link to a directory will do for
    /// one.
    Source,
    /// A layer of a container image: as a source, but a directory replaces a link.
    Layer,
}

/// Puts entries of one source into the tree.
pub(crate) struct Placer<'a> {
    pub(crate) tree: &'a mut Tree,
    /// The source's number.
    pub(crate) layer: u16,
    pub(crate) over: Over,
    /// Directories of earlier sources that something else replaced.
    pub(crate) replaced: Vec<String>,
    /// For directories that no source has.
    pub(crate) implied: Node,
    /// The last directory that was reached, and the path that led to it.
    last: Option<(Vec<u8>, NodeId)>,
}

/// The names of a path, without those that mean nothing.
pub(crate) fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let parts = path.split(|&byte| byte == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".")
}

/// The last name of a path, and the path above it; `None` for the root.
fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = parts(path).next_back()?;
    let mut above = path;
    while !above.ends_with(name) {
        above = &above[..above.len() - 1];
    }
    Some((name, &above[..above.len() - name.len()]))
}

/// A path for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    const MOST: usize = 200;
    let text = String::from_utf8_lossy(path.get(..MOST).unwrap_or(path)).into_owned();
    if path.len() > MOST {
        return format!("{text}... ({} bytes)", path.len());
    }
    text
}

/// Checks a path of a source, and what a link in it says.
///
/// # Errors
/// A path that no volume can have, or that leads out of it.
fn check(path: &[u8]) -> Result<()> {
    let at = |what: String| Err(Error::at(shown(path), what));
    if path.len() > MAX_PATH {
        return at(format!("a path of more than {MAX_PATH} bytes"));
    }
    if path.contains(&0) {
        return at("a name with a zero byte in it".to_owned());
    }
    for part in parts(path) {
        if part == b".." {
            return at("a name with \"..\" in it".to_owned());
        }
        if part.len() > MAX_NAME_LEN {
            return at(format!("a name of more than {MAX_NAME_LEN} bytes"));
        }
    }
    Ok(())
}

impl<'a> Placer<'a> {
    pub(crate) fn new(tree: &'a mut Tree, layer: u16, over: Over, implied: Node) -> Self {
        Self {
            tree,
            layer,
            over,
            replaced: Vec::new(),
            implied,
            last: None,
        }
    }

    /// Puts `node` at `path`. Returns where it went; `None` where the path removes something.
    ///
    /// # Errors
    /// A path that leads nowhere, or something in the way.
    pub(crate) fn put(&mut self, path: &[u8], node: Node) -> Result<Option<NodeId>> {
        check(path)?;
        let Some((name, above)) = split_last(path) else {
            if !node.is_dir() {
                return Err(Error::at(shown(path), "the root is a directory"));
            }
            self.describe(NodeId::ROOT, &node);
            return Ok(Some(NodeId::ROOT));
        };
        let dir = self.reach(above, path)?;
        if self.over != Over::Nothing && name.starts_with(WHITEOUT) {
            self.white_out(dir, name, path)?;
            return Ok(None);
        }
        self.put_in(dir, name, node, path).map(Some)
    }

    /// Puts `node` into `dir`. `path` is for messages.
    ///
    /// # Errors
    /// Something in the way.
    pub(crate) fn put_in(
        &mut self,
        dir: NodeId,
        name: &[u8],
        node: Node,
        path: &[u8],
    ) -> Result<NodeId> {
        if let Some(old) = self.tree.lookup(dir, name) {
            if let Some(merged) = self.merge(dir, name, old, &node, path)? {
                return Ok(merged);
            }
            self.remove(dir, name);
        }
        let added = self.tree.add(node)?;
        self.tree.link(dir, name, added, self.layer)?;
        Ok(added)
    }

    /// Merges `node` into `old`, which has its name, if both are directories. Returns the one that
    /// stays; `None` if `old` has to go.
    fn merge(
        &mut self,
        dir: NodeId,
        name: &[u8],
        old: NodeId,
        node: &Node,
        path: &[u8],
    ) -> Result<Option<NodeId>> {
        let was = self.tree.node(old).kind();
        if node.is_dir() && was == FileKind::Directory {
            self.describe(old, node);
            self.tree.touch(old, self.layer);
            return Ok(Some(old));
        }
        let replaces = self.replaces(dir, name);
        if node.is_dir() && was == FileKind::Symlink && !(replaces && self.over == Over::Layer) {
            // A link to a directory will do for one.
            let there = self.walk(path, path, false)?;
            let there = there.ok_or_else(|| Error::at(shown(path), "a link is in its way"))?;
            self.describe(there, node);
            return Ok(Some(there));
        }
        if (was == FileKind::Directory || node.is_dir()) && !replaces {
            return Err(Error::at(shown(path), "something else is in its way"));
        }
        if was == FileKind::Directory {
            self.note_replaced(path);
        }
        Ok(None)
    }

    /// Notes that something else takes the place of a directory: among layers it is meant to.
    fn note_replaced(&mut self, path: &[u8]) {
        if self.over == Over::Source && self.replaced.len() < MOST_REPLACED {
            self.replaced.push(shown(path));
        }
    }

    /// Returns whether a name in `dir` is of an earlier source, which this one may replace.
    fn replaces(&self, dir: NodeId, name: &[u8]) -> bool {
        let earlier = self.tree.layer_of(dir, name) != Some(self.layer);
        self.over != Over::Nothing && earlier
    }

    fn remove(&mut self, dir: NodeId, name: &[u8]) {
        self.tree.unlink(dir, name);
        self.last = None;
    }

    /// The node that `path` leads to; a link at its end is not followed.
    ///
    /// # Errors
    /// A path that no volume has, or through what is no directory.
    pub(crate) fn find(&mut self, path: &[u8]) -> Result<Option<NodeId>> {
        check(path)?;
        let Some((name, above)) = split_last(path) else {
            return Ok(Some(NodeId::ROOT));
        };
        let dir = self.walk(above, path, false)?;
        Ok(dir.and_then(|dir| self.tree.lookup(dir, name)))
    }

    /// Gives `to` what `node` says beside its contents.
    fn describe(&mut self, to: NodeId, node: &Node) {
        let to = self.tree.node_mut(to);
        (to.uid, to.gid, to.mode) = (node.uid, node.gid, node.mode);
        (to.mtime, to.atime, to.attrs) = (node.mtime, node.atime, node.attrs);
        to.implied = false;
    }

    /// Lets `path` lead to what `target` leads to.
    ///
    /// # Errors
    /// There is nothing to link to, or something is in the way.
    pub(crate) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        check(path)?;
        check(target)?;
        let at = |what: &str| Error::at(shown(path), format!("{what} {}", shown(target)));
        let Some((name, above)) = split_last(target) else {
            return Err(at("a hard link to a directory:"));
        };
        let dir = self.walk(above, target, false)?;
        let original = dir.and_then(|dir| self.tree.lookup(dir, name));
        let original = original.ok_or_else(|| at("a hard link to what is not there:"))?;
        if self.tree.node(original).is_dir() {
            return Err(at("a hard link to a directory:"));
        }
        self.add_name(path, original)
    }

    /// Lets `path` lead to `node`, which is no directory.
    ///
    /// # Errors
    /// A path that leads nowhere, or something in the way.
    pub(crate) fn add_name(&mut self, path: &[u8], node: NodeId) -> Result<()> {
        check(path)?;
        let Some((name, above)) = split_last(path) else {
            return Err(Error::at(shown(path), "the root is a directory"));
        };
        let dir = self.reach(above, path)?;
        self.replace(dir, name, node, path)
    }

    /// Lets `name` in `dir` lead to `node` instead of what is there.
    fn replace(&mut self, dir: NodeId, name: &[u8], node: NodeId, path: &[u8]) -> Result<()> {
        if let Some(old) = self.tree.lookup(dir, name) {
            if old == node {
                return Ok(());
            }
            if self.tree.node(old).is_dir() {
                if !self.replaces(dir, name) {
                    return Err(Error::at(shown(path), "something else is in its way"));
                }
                self.note_replaced(path);
            }
            self.remove(dir, name);
            // It may have been below.
            if self.tree.node(node).links == 0 {
                return Err(Error::at(shown(path), "a hard link to what it replaces"));
            }
        }
        self.tree.link(dir, name, node, self.layer)
    }

    fn white_out(&mut self, dir: NodeId, name: &[u8], path: &[u8]) -> Result<()> {
        if name == OPAQUE {
            self.last = None;
            return self.tree.unlink_older(dir, self.layer);
        }
        let hidden = &name[WHITEOUT.len()..];
        if hidden.starts_with(WHITEOUT) {
            // A note of the program that made the layer.
            return Ok(());
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::at(shown(path), "a whiteout of nothing"));
        }
        let Some(old) = self.tree.lookup(dir, hidden) else {
            return Ok(());
        };
        if self.tree.layer_of(dir, hidden) != Some(self.layer) {
            self.remove(dir, hidden);
        } else if self.tree.node(old).is_dir() {
            self.last = None;
            return self.tree.unlink_older(old, self.layer);
        }
        Ok(())
    }

    /// The directory that `above` leads to, made where it is not there. `path` is for messages.
    fn reach(&mut self, above: &[u8], path: &[u8]) -> Result<NodeId> {
        if let Some((last, dir)) = &self.last
            && *last == above
        {
            return Ok(*dir);
        }
        let dir = self.walk(above, path, true)?;
        let dir =
            dir.ok_or_else(|| Error::at(shown(path), "a part of its path is no directory"))?;
        self.last = Some((above.to_vec(), dir));
        Ok(dir)
    }

    /// Goes down the names of `way` from the root, through links. What is not there is made, or
    /// ends it with `None`. `path` is for messages.
    fn walk(&mut self, way: &[u8], path: &[u8], make: bool) -> Result<Option<NodeId>> {
        let mut left: VecDeque<Vec<u8>> = parts(way).map(<[u8]>::to_vec).collect();
        let mut at = NodeId::ROOT;
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == b".." {
                at = self.tree.parent(at);
                continue;
            }
            let Some(next) = self.tree.lookup(at, &name) else {
                if !make {
                    return Ok(None);
                }
                // `check` has seen the names of the path, not those of a link's target.
                if name.len() > MAX_NAME_LEN {
                    let what = format!("a name of more than {MAX_NAME_LEN} bytes");
                    return Err(Error::at(shown(path), what));
                }
                let made = self.tree.add(self.implied.clone())?;
                self.tree.link(at, &name, made, self.layer)?;
                at = made;
                continue;
            };
            let node = self.tree.node(next);
            match node.kind() {
                FileKind::Directory => {
                    at = next;
                    if make {
                        self.tree.touch(at, self.layer);
                    }
                }
                FileKind::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::at(shown(path), "too many links on its path"));
                    }
                    let target = self.tree.link_target(node).to_vec();
                    if target.starts_with(b"/") {
                        at = NodeId::ROOT;
                    }
                    let said: Vec<&[u8]> = parts(&target).collect();
                    self.tree.effort.spend(1 + said.len() as u64)?;
                    for part in said.into_iter().rev() {
                        left.push_front(part.to_vec());
                    }
                }
                _ => {
                    let what = "a part of its path is no directory";
                    return Err(Error::at(shown(path), what));
                }
            }
        }
        Ok(Some(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::AttrStore;
    use crate::effort::Effort;

    fn node(kind: FileKind) -> Node {
        Node {
            mode: kind.mode_bits() | 0o755,
            ..Node::default()
        }
    }

    fn tree() -> Tree {
        Tree::new(node(FileKind::Directory), AttrStore::new(96, 4096))
    }

    /// A placer of layer `layer`, in whose tree `d` is a directory.
    fn placer(tree: &mut Tree, layer: u16) -> Placer<'_> {
        let mut placer = Placer::new(tree, layer, Over::Layer, node(FileKind::Directory));
        placer.put(b"d", node(FileKind::Directory)).unwrap();
        placer
    }

    #[test]
    fn ways_through_links_are_bounded_in_all() {
        let mut tree = tree();
        tree.effort = Effort::of(100_000);
        let mut placer = placer(&mut tree, 0);
        // Each leads over 1000 names and to the one before.
        let mut last = "d".to_owned();
        for number in 0..20 {
            let target = format!("{}{last}", "d/../".repeat(500));
            let text = placer.tree.store_text(target.as_bytes()).unwrap();
            let link = Node {
                data: u64::from(text.raw()),
                ..node(FileKind::Symlink)
            };
            last = format!("l{number}");
            placer.put(last.as_bytes(), link).unwrap();
        }
        let mut put = |number: u32| {
            // Two directories in turn: the last one that was reached is known.
            let below = if number.is_multiple_of(2) { "" } else { "x/" };
            let path = format!("{last}/{below}{number}");
            placer.put(path.as_bytes(), node(FileKind::Regular))
        };
        for number in 0..4 {
            put(number).unwrap();
        }
        let said = put(4).unwrap_err().to_string();
        assert!(said.contains("links and whiteouts"), "{said}");
    }

    #[test]
    fn whiteouts_of_whole_directories_are_bounded_in_all() {
        let mut tree = tree();
        placer(&mut tree, 0);
        let mut placer = placer(&mut tree, 1);
        for number in 0..100 {
            let path = format!("d/{number}");
            placer
                .put(path.as_bytes(), node(FileKind::Regular))
                .unwrap();
        }
        placer.tree.effort = Effort::of(1000);
        let mut opaque = || placer.put(b"d/.wh..wh..opq", node(FileKind::Regular));
        for _ in 0..10 {
            opaque().unwrap();
        }
        let said = opaque().unwrap_err().to_string();
        assert!(said.contains("links and whiteouts"), "{said}");
    }
}
