//! From paths to inodes.
//!
//! A path is one of the file system, not of the host: it begins at the root of the file system,
//! with or without a slash, and so does the target of an absolute symbolic link. `..` of the root
//! is the root.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant_engine::{Error, FileKind, Node, Result, Volume};

/// The most symbolic links followed on one path: `MAXSYMLINKS` of Linux.
const MAX_LINKS: u32 = 40;
/// The longest path, and the longest expansion of links, in bytes: `PATH_MAX` less its NUL.
const MAX_PATH: usize = 4095;

/// The end of a path.
pub(crate) enum Target {
    /// An inode.
    Found(Node),
    /// A name that does not exist, in a directory that does.
    Missing {
        /// The directory.
        dir: Node,
        /// The name.
        name: Vec<u8>,
    },
}

/// A walk over the components of a path.
struct Walk<'a> {
    volume: &'a Volume,
    dir: Node,
    rest: VecDeque<Vec<u8>>,
    /// The path ends in a slash: it means a directory.
    must_be_dir: bool,
    links: u32,
}

/// Follows `path`; a symbolic link at its end only if `follow`.
pub(crate) fn walk(volume: &Volume, path: &Path, follow: bool) -> Result<Target> {
    Walk::new(volume, path)?.run(follow)
}

/// The inode that `path` leads to.
pub(crate) fn resolve(volume: &Volume, path: &Path, follow: bool) -> Result<Node> {
    match walk(volume, path, follow)? {
        Target::Found(node) => Ok(node),
        Target::Missing { .. } => Err(Error::NotFound),
    }
}

/// The directory that holds the last component of `path`, and that component: for calls that create
/// or remove a name.
///
/// # Errors
/// [`Error::Invalid`] for paths that end in no name (`/`, `..`); else those of following the path.
pub(crate) fn resolve_parent(volume: &Volume, path: &Path) -> Result<(Node, Vec<u8>)> {
    let mut walk = Walk::new(volume, path)?;
    let name = walk
        .rest
        .pop_back()
        .filter(|name| name != b".." && name != b".")
        .ok_or(Error::Invalid)?;
    walk.must_be_dir = true;
    match walk.run(true)? {
        Target::Found(dir) => Ok((dir, name)),
        Target::Missing { .. } => Err(Error::NotFound),
    }
}

impl<'a> Walk<'a> {
    fn new(volume: &'a Volume, path: &Path) -> Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(Error::NotFound);
        }
        if bytes.len() > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        Ok(Self {
            volume,
            dir: volume.root()?,
            rest: components(bytes).collect(),
            must_be_dir: bytes.ends_with(b"/") || bytes.ends_with(b"/."),
            links: 0,
        })
    }

    fn run(mut self, follow: bool) -> Result<Target> {
        while let Some(name) = self.rest.pop_front() {
            let last = self.rest.is_empty();
            if self.dir.kind() != FileKind::Directory {
                return Err(Error::NotDir);
            }
            let node = match self.volume.lookup(&self.dir, &name) {
                Ok(node) => node,
                Err(Error::NotFound) if last => {
                    return Ok(Target::Missing {
                        dir: self.dir,
                        name,
                    });
                }
                Err(error) => return Err(error),
            };
            if node.kind() == FileKind::Symlink && (!last || follow || self.must_be_dir) {
                self.enter_link(&node, last)?;
            } else {
                self.dir = node;
            }
        }
        if self.must_be_dir && self.dir.kind() != FileKind::Directory {
            return Err(Error::NotDir);
        }
        Ok(Target::Found(self.dir))
    }

    /// Replaces the name of a link by the components of its target.
    fn enter_link(&mut self, link: &Node, last: bool) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Error::TooManySymlinks);
        }
        let target = self.volume.readlink(link)?;
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.starts_with(b"/") {
            self.dir = self.volume.root()?;
        }
        self.must_be_dir |= last && target.ends_with(b"/");
        let rest: usize = self.rest.iter().map(|name| name.len() + 1).sum();
        if target.len() + rest > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        for name in components(&target).collect::<Vec<_>>().into_iter().rev() {
            self.rest.push_front(name);
        }
        Ok(())
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let names = path
        .split(|&b| b == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec)
}
