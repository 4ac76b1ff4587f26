//! Walking a tree inside of an image, directories before what is in them.
//!
//! # Invariants
//! - A directory is entered once. A second name of one is damage: how an image is linked up, the
//!   image decides, and a graph of such names has more paths than a walk could ever end.
//! - Each step is one lookup in a directory that is at hand; no path is followed from the root
//!   again.
//! - Memory: no recursion; the names that wait on all levels together take [`NAMES`] bytes and
//!   those of one directory at most.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::sides::DirNames;
use extant::{Attr, Error, FileKind, Filesystem, Ino, Node};

use crate::failure::{At, Failure};
use crate::operand::ImagePath;

/// Bytes of names above which outer directories give theirs back.
const NAMES: usize = 32 << 20;
/// Longest path, in bytes: `PATH_MAX` less its NUL.
const MAX_PATH: usize = 4095;

/// Something found on a walk.
pub(crate) struct Step<'a> {
    /// Its path.
    pub(crate) path: &'a Path,
    /// Its name; the last component, or the path that was given.
    pub(crate) name: &'a OsStr,
    /// Itself; a link is not followed.
    pub(crate) node: &'a Node,
    /// Its attributes.
    pub(crate) attr: Attr,
    above: &'a [WalkedDir],
}

impl Step<'_> {
    /// Directories above it on this walk.
    pub(crate) fn depth(&self) -> usize {
        self.above.len()
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.kind == FileKind::Directory
    }

    pub(crate) fn is_symlink(&self) -> bool {
        self.attr.kind == FileKind::Symlink
    }

    /// For each directory on the way but the first, and for itself, outermost first: whether it is
    /// the last in its directory.
    pub(crate) fn lasts(&self) -> impl ExactSizeIterator<Item = bool> {
        self.above.iter().map(|level| level.names.at_end())
    }
}

/// A directory being walked.
struct WalkedDir {
    /// Length of its path.
    len: usize,
    ino: Ino,
    names: DirNames,
}

/// A walk under way.
struct Walk<'a> {
    fs: &'a Filesystem,
    at: &'a ImagePath,
    path: Vec<u8>,
    stack: Vec<WalkedDir>,
    visited: HashSet<Ino>,
}

/// Calls `visit` for the path itself and everything below it, in the order of names; below a
/// directory only if `visit` says so. Failures go to `visit` too, and the walk goes on.
pub(crate) fn walk(
    fs: &Filesystem,
    at: &ImagePath,
    mut visit: impl FnMut(Result<Step<'_>, Failure>) -> bool,
) {
    let mut walk = Walk {
        fs,
        at,
        path: at.path.as_os_str().as_bytes().to_vec(),
        stack: Vec::new(),
        visited: HashSet::new(),
    };
    let top = fs.node(&at.path, false).at(at);
    walk.reach(top, at.path.as_os_str(), &mut visit);
    while let Some(level) = walk.stack.last_mut() {
        walk.path.truncate(level.len);
        let Some(name) = level.names.next() else {
            walk.stack.pop();
            continue;
        };
        let name = match name.at(walk.at.with_path(path(&walk.path))) {
            Ok(name) => name,
            Err(failure) => {
                visit(Err(failure));
                continue;
            }
        };
        if !walk.path.ends_with(b"/") {
            walk.path.push(b'/');
        }
        walk.path.extend_from_slice(name.as_bytes());
        let found = if walk.path.len() > MAX_PATH {
            Err(Error::NameTooLong)
        } else {
            fs.volume().lookup(level.names.dir(), name.as_bytes())
        };
        let found = found.at(walk.image_path());
        walk.reach(found, &name, &mut visit);
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Walk<'_> {
    fn image_path(&self) -> ImagePath {
        self.at.with_path(path(&self.path))
    }

    /// Shows what was found, and enters it if that is asked for.
    fn reach(
        &mut self,
        found: Result<Node, Failure>,
        name: &OsStr,
        visit: &mut impl FnMut(Result<Step<'_>, Failure>) -> bool,
    ) {
        let attr = |node: Node| {
            let attr = self.fs.volume().getattr(&node).at(self.image_path())?;
            Ok((node, attr))
        };
        let (node, attr) = match found.and_then(attr) {
            Ok(found) => found,
            Err(failure) => {
                visit(Err(failure));
                return;
            }
        };
        let go_on = visit(Ok(Step {
            path: path(&self.path),
            name,
            node: &node,
            attr,
            above: &self.stack,
        }));
        if go_on
            && attr.kind == FileKind::Directory
            && let Err(failure) = self.enter(node)
        {
            visit(Err(failure));
        }
    }

    fn enter(&mut self, dir: Node) -> Result<(), Failure> {
        let ino = dir.ino();
        if !self.visited.insert(ino) {
            let above = self.stack.iter().any(|level| level.ino == ino);
            let what = if above {
                "a directory that contains itself"
            } else {
                "a directory with a second name, entered by its first: damage"
            };
            return Err(Failure::at(self.image_path(), what));
        }
        let names = DirNames::of(self.fs.volume(), dir).at(self.image_path())?;
        let len = self.path.len();
        self.stack.push(WalkedDir { len, ino, names });
        self.make_room();
        Ok(())
    }

    fn make_room(&mut self) {
        let mut bytes: usize = self.stack.iter().map(|level| level.names.bytes()).sum();
        let Some((_, outer)) = self.stack.split_last_mut() else {
            return;
        };
        for level in outer {
            if bytes <= NAMES {
                return;
            }
            bytes -= level.names.bytes();
            level.names.shrink();
        }
    }
}

#[cfg(test)]
mod tests {
    use extant_testkit::{Image, Need, need};

    use super::*;

    #[test]
    fn each_step_is_one_lookup_however_deep() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        const LEVELS: u64 = 600;
        let image = Image::of_mib(16).make().unwrap();
        let mut options = Filesystem::options();
        let fs = options.write(true).open(image.path()).unwrap();
        let mut dir = fs.volume().root().unwrap();
        for _ in 0..LEVELS {
            dir = fs.volume().mkdir(&dir, b"d", 0o755, fs.cred()).unwrap();
        }
        let at = ImagePath {
            image: image.path().into(),
            path: "/".into(),
        };
        let lookups = || {
            let stats = fs.volume().stats();
            stats.iter().find(|(name, _)| *name == "lookups").unwrap().1
        };
        let (before, mut steps, mut deepest) = (lookups(), 0, 0);
        walk(&fs, &at, |step| {
            let step = step.unwrap();
            (steps, deepest) = (steps + 1, step.depth().max(deepest));
            true
        });
        // The root and lost+found, too.
        assert_eq!((steps, deepest), (LEVELS + 2, 600));
        assert_eq!(lookups() - before, LEVELS + 1);
    }
}
