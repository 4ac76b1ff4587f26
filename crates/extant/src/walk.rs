//! From paths to inodes.
//!
//! A path is one of the file system, not of the host: it begins at the root of the file system,
//! with or without a slash, and so does the target of an absolute symbolic link. `..` of the root
//! is the root.
//!
//! A path that memory knows from end to end is found without a walk: see
//! [`Volume::find_cached`].

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_engine::{Attr, Error, FileKind, Node, Result, Volume};

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
        /// The path, or a symbolic link at its end, ends in a slash or a dot.
        must_be_dir: bool,
    },
}

/// Names from the root on.
type Trail<'p> = Vec<Cow<'p, [u8]>>;

/// A walk over the components of a path, name by name.
struct Walk<'v, 'p> {
    volume: &'v Volume,
    dir: Node,
    rest: VecDeque<Cow<'p, [u8]>>,
    /// The path, or a symbolic link at its end, ends in a slash or a dot: it means a directory.
    must_be_dir: bool,
    /// The end of the path is for a file that may be created.
    creates: bool,
    /// With `creates`: the path, or a symbolic link at its end, ends in a slash.
    slash: bool,
    links: u32,
    /// The names from the root to `dir`, if they are asked for.
    trail: Option<Trail<'p>>,
}

/// Follows `path`; a symbolic link at its end only if `follow`.
pub(crate) fn walk(volume: &Volume, path: &Path, follow: bool) -> Result<Target> {
    let bytes = checked(path)?;
    walk_names(volume, components(bytes), follow, means_dir(bytes))
}

/// As [`walk`], to the end of the path for a file that is created if nothing is there.
///
/// # Errors
/// [`Error::IsDir`] for a path, or a symbolic link at its end, that ends in a slash: what is there
/// does not matter.
pub(crate) fn walk_to_create(volume: &Volume, path: &Path, follow: bool) -> Result<Target> {
    let bytes = checked(path)?;
    let slash = bytes.ends_with(b"/");
    if !slash && let Some(node) = volume.find_cached(components(bytes), follow)? {
        return arrived(node, means_dir(bytes));
    }
    let mut walk = Walk::new(volume, components(bytes), means_dir(bytes))?;
    walk.creates = true;
    walk.slash = slash;
    Ok(walk.run(follow)?.0)
}

/// The inode that `path` leads to.
pub(crate) fn resolve(volume: &Volume, path: &Path, follow: bool) -> Result<Node> {
    found(walk(volume, path, follow)?)
}

/// The path to what `path` leads to, without links, `.` and `..`.
pub(crate) fn canonical(volume: &Volume, path: &Path) -> Result<PathBuf> {
    let bytes = checked(path)?;
    let mut walk = Walk::new(volume, components(bytes), means_dir(bytes))?;
    walk.trail = Some(Vec::new());
    let (target, trail) = walk.run(true)?;
    found(target)?;
    let names = trail.expect("a walk keeps the trail that it was given");
    let mut whole = PathBuf::from("/");
    whole.extend(names.iter().map(|name| OsStr::from_bytes(name)));
    Ok(whole)
}

/// The attributes of what `path` leads to.
pub(crate) fn attributes(volume: &Volume, path: &Path, follow: bool) -> Result<Attr> {
    let bytes = checked(path)?;
    // A path that ends in a slash needs a look at the kind on the way.
    if !means_dir(bytes) {
        let known = volume.stat_cached(components(bytes), follow)?;
        if let Some(attr) = known {
            return Ok(attr);
        }
    }
    volume.getattr(&resolve(volume, path, follow)?)
}

/// The directory that `names` lead to.
pub(crate) fn directory<'p>(
    volume: &Volume,
    names: impl Iterator<Item = &'p [u8]> + Clone,
) -> Result<Node> {
    found(walk_names(volume, names, true, true)?)
}

fn found(target: Target) -> Result<Node> {
    match target {
        Target::Found(node) => Ok(node),
        Target::Missing { .. } => Err(Error::NotFound),
    }
}

fn walk_names<'p>(
    volume: &Volume,
    names: impl Iterator<Item = &'p [u8]> + Clone,
    follow: bool,
    must_be_dir: bool,
) -> Result<Target> {
    if let Some(node) = volume.find_cached(names.clone(), follow || must_be_dir)? {
        return arrived(node, must_be_dir);
    }
    let walk = Walk::new(volume, names, must_be_dir)?;
    Ok(walk.run(follow)?.0)
}

fn arrived(node: Node, must_be_dir: bool) -> Result<Target> {
    if must_be_dir && node.kind() != FileKind::Directory {
        return Err(Error::NotDir);
    }
    Ok(Target::Found(node))
}

impl<'v, 'p> Walk<'v, 'p> {
    fn new(
        volume: &'v Volume,
        names: impl Iterator<Item = &'p [u8]>,
        must_be_dir: bool,
    ) -> Result<Self> {
        Ok(Walk {
            volume,
            dir: volume.root()?,
            rest: names.map(Cow::Borrowed).collect(),
            must_be_dir,
            creates: false,
            slash: false,
            links: 0,
            trail: None,
        })
    }

    /// Walks to the end of the names; returns the trail as well, if one is kept.
    fn run(mut self, follow: bool) -> Result<(Target, Option<Trail<'p>>)> {
        while let Some(name) = self.rest.pop_front() {
            let last = self.rest.is_empty();
            if self.dir.kind() != FileKind::Directory {
                return Err(Error::NotDir);
            }
            if last && self.creates && self.slash && *name != *b".." {
                return Err(Error::IsDir);
            }
            let node = match self.volume.lookup(&self.dir, &name) {
                Ok(node) => node,
                Err(Error::NotFound) if last => {
                    let missing = Target::Missing {
                        dir: self.dir,
                        name: name.into_owned(),
                        must_be_dir: self.must_be_dir,
                    };
                    return Ok((missing, self.trail));
                }
                Err(error) => return Err(error),
            };
            if node.kind() == FileKind::Symlink && (!last || follow || self.must_be_dir) {
                self.enter_link(&node, last)?;
                continue;
            }
            self.dir = node;
            if let Some(trail) = &mut self.trail {
                match &*name {
                    b".." => drop(trail.pop()),
                    _ => trail.push(name),
                }
            }
        }
        Ok((arrived(self.dir, self.must_be_dir)?, self.trail))
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
            self.trail.iter_mut().for_each(Vec::clear);
        }
        self.must_be_dir |= last && means_dir(&target);
        self.slash |= last && target.ends_with(b"/");
        let rest: usize = self.rest.iter().map(|name| name.len() + 1).sum();
        if target.len() + rest > MAX_PATH {
            return Err(Error::NameTooLong);
        }
        for name in components(&target).rev() {
            self.rest.push_front(Cow::Owned(name.to_vec()));
        }
        Ok(())
    }
}

/// Returns whether a path means a directory by the way it ends.
fn means_dir(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

pub(crate) fn checked(path: &Path) -> Result<&[u8]> {
    let bytes = path.as_os_str().as_bytes();
    match bytes.len() {
        0 => Err(Error::NotFound),
        1..=MAX_PATH => Ok(bytes),
        _ => Err(Error::NameTooLong),
    }
}

pub(crate) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    path.split(|&b| b == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}
