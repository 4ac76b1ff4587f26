//! Knowledge that targets have of a mounted image, and the questions that they ask of its nodes.

use std::collections::HashSet;

use extant::{Error, ExtentState, FileKind, Node, Result, SeekTarget, Volume};

/// The most nodes visited, names read of a directory, bytes read of a file. An honest image may be
/// larger than a fuzzer has patience for.
const NODES: usize = 300;
const NAMES: usize = 1000;
/// The most names looked up in one directory.
const LOOKUPS: usize = 60;
const BYTES: u64 = 128 << 10;
/// The most runs of data looked for in a file.
const RUNS: usize = 24;

/// Nodes and names that were found.
pub(super) struct World<'a> {
    volume: &'a Volume,
    nodes: Vec<Node>,
    names: Vec<(Node, Vec<u8>)>,
    seen: HashSet<u32>,
    /// The first failure so far.
    pub(super) failed: Option<Error>,
}

impl<'a> World<'a> {
    /// A world of which only the root is known.
    pub(super) fn new(volume: &'a Volume) -> World<'a> {
        let mut world = World {
            volume,
            nodes: Vec::new(),
            names: Vec::new(),
            seen: HashSet::new(),
            failed: None,
        };
        let root = volume.root();
        world.take(root);
        world
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Every entry that was found, and the directory that it is in.
    pub(super) fn names(&self) -> &[(Node, Vec<u8>)] {
        &self.names
    }

    pub(super) fn directories(&self) -> Vec<Node> {
        let dirs = self.nodes.iter();
        dirs.filter(|node| node.kind() == FileKind::Directory)
            .cloned()
            .collect()
    }

    /// Notes a failure, or a node unless it is known.
    fn take(&mut self, found: Result<Node>) {
        match found {
            Ok(node) if self.nodes.len() < NODES => {
                if self.seen.insert(node.ino().get()) {
                    self.nodes.push(node);
                }
            }
            Ok(_) => {}
            Err(error) => self.failed = self.failed.take().or(Some(error)),
        }
    }

    /// Finds all that the root leads to.
    pub(super) fn walk(&mut self) {
        let mut next = 0;
        while let Some(node) = self.nodes.get(next).cloned() {
            next += 1;
            if node.kind() != FileKind::Directory {
                continue;
            }
            let mut names = Vec::new();
            let listed = self.volume.readdir(&node, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                names.len() < NAMES
            });
            if let Err(error) = listed {
                self.take(Err(error));
            }
            let step = names.len().div_ceil(LOOKUPS).max(1);
            for name in names.into_iter().step_by(step) {
                let found = self.volume.lookup(&node, &name);
                self.take(found);
                if self.names.len() < NAMES {
                    self.names.push((node.clone(), name));
                }
            }
        }
    }
}

/// Everything that can be asked of a node without changing it; the first failure, after all was
/// asked.
pub(super) fn ask_all(volume: &Volume, node: &Node) -> Result<()> {
    let attr = volume.getattr(node)?;
    let mut result = volume.flags(node).map(drop);
    result = result.and(volume.xflags(node).map(drop));
    result = result.and(attributes(volume, node));
    match node.kind() {
        // Encrypted ones have no contents without their key.
        FileKind::Regular => match content(volume, node, attr.size) {
            Err(Error::NoKey) => result,
            contents => result.and(contents),
        },
        FileKind::Symlink => result.and(volume.readlink(node).map(drop)),
        FileKind::Directory => result.and(volume.lookup(node, b"..").map(drop)),
        _ => result,
    }
}

/// Every attribute of a node.
pub(super) fn attributes(volume: &Volume, node: &Node) -> Result<()> {
    for name in volume.listxattr(node)? {
        volume.getxattr(node, &name)?;
    }
    Ok(())
}

/// Reads a file's beginning, its end, and where it says that it has data.
pub(super) fn content(volume: &Volume, node: &Node, size: u64) -> Result<()> {
    let mut buf = vec![0; 8 << 10];
    let (mut at, mut left) = (0, BYTES);
    while at < size && left > 0 {
        match volume.read(node, at, &mut buf)? as u64 {
            0 => break,
            read => {
                at += read;
                left = left.saturating_sub(read);
            }
        }
    }
    volume.read(node, size.saturating_sub(100), &mut buf)?;
    volume.read_uncached(node, size / 2, &mut buf)?;
    let mut at = 0;
    for _ in 0..RUNS {
        at = match volume.seek(node, SeekTarget::Data(at)) {
            Ok(at) => at,
            Err(Error::NoSuchAddress) => break,
            Err(error) => return Err(error),
        };
        volume.read(node, at, &mut buf)?;
        at = match volume.seek(node, SeekTarget::Hole(at)) {
            Ok(end) if end > at => end,
            // Unwritten space is data while it is cached, and this much cache holds little.
            Ok(end) if end == at && is_unwritten(volume, node, at) => at + 1,
            Ok(end) => panic!("a hole at {end} where data began at {at}"),
            Err(error) => return Err(error),
        };
        if at >= size {
            break;
        }
    }
    Ok(())
}

fn is_unwritten(volume: &Volume, node: &Node, at: u64) -> bool {
    let first = volume.map(node, at).next();
    first.is_some_and(|extent| extent.is_ok_and(|extent| extent.state == ExtentState::Unwritten))
}
