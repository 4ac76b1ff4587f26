//! Walking two trees at once, name by name.
//!
//! # Invariants
//! - No recursion. Directories far above are parked, see [`extant::sides`].
//! - A directory of an image is entered once: a second name of one is damage, and a graph of such
//!   names has more paths than a walk could end.
//!
//! # Errors
//! A file that cannot be read is reported, and the walk goes on with the next name.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant::FileKind;
use extant::build::Pattern;
use extant::sides::{FileTree, Found, Id, Names, Xattr};

use super::bytes::{Buffers, Sided};
use super::difference::{Difference, Side};
use super::linked::{Linked, Pairing};
use crate::failure::Failure;

/// Directories, from the innermost out, that stay open on each side: a process may have 1024
/// descriptors.
const OPEN_LEVELS: usize = 64;
/// The directory that mke2fs makes at the top of a file system.
const LOST_FOUND: &str = "lost+found";

/// The attributes and names that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompareRules<'r> {
    pub(crate) times: bool,
    pub(crate) owners: bool,
    pub(crate) xattrs: bool,
    /// Patterns of names that are left out.
    pub(crate) ignore: &'r [Pattern],
}

/// The receiver of the results of a comparison.
pub(crate) trait Report {
    /// A difference at `below`, a path below the top. Returns whether to go on.
    fn difference(&mut self, below: &Path, found: &Difference) -> bool;
    /// Reports a file that could not be read.
    fn failure(&mut self, failure: Failure);
}

/// One side: a tree, and where in it the comparison begins.
#[derive(Clone, Copy)]
pub(crate) struct Top<'c, 'a> {
    pub(crate) tree: &'c dyn FileTree<'a>,
    /// The image or archive with a colon, which messages have before a path.
    pub(crate) prefix: &'c str,
    pub(crate) path: &'c Path,
}

/// A comparison of two trees.
pub(crate) struct Comparison<'c, 'a> {
    left: Top<'c, 'a>,
    right: Top<'c, 'a>,
    rules: CompareRules<'c>,
    report: &'c mut dyn Report,
    buffers: Buffers,
    linked: Linked,
    entered: [HashSet<Id>; 2],
    /// The path of the walk below the top.
    below: PathBuf,
    ended: bool,
}

/// A directory of both sides.
struct DirPair<'a> {
    left: Found<'a>,
    right: Found<'a>,
    names: Merged,
}

/// The files of one path on both sides.
struct Pair<'a> {
    left: Found<'a>,
    right: Found<'a>,
}

impl<'c, 'a> Comparison<'c, 'a> {
    /// Compares what is at two paths.
    pub(crate) fn new(
        left: Top<'c, 'a>,
        right: Top<'c, 'a>,
        rules: CompareRules<'c>,
        report: &'c mut dyn Report,
    ) -> Self {
        Comparison {
            left,
            right,
            rules,
            report,
            buffers: Buffers::new(),
            linked: Linked::default(),
            entered: [HashSet::new(), HashSet::new()],
            below: PathBuf::new(),
            ended: false,
        }
    }

    /// Compares everything. A symbolic link at the top is followed.
    pub(crate) fn run(mut self) {
        let mut stack: Vec<DirPair<'a>> = Vec::new();
        let (left, right) = (self.top(Side::Left), self.top(Side::Right));
        if let (Some(left), Some(right)) = (left, right) {
            let level = self.compare(&Pair { left, right });
            self.push(&mut stack, level);
        }
        while let Some(level) = stack.last_mut().filter(|_| !self.ended) {
            let Some(named) = level.names.next() else {
                self.pop(&mut stack);
                continue;
            };
            let (name, only) = match named {
                Ok(named) => named,
                Err((side, error)) => {
                    self.fail(side, error);
                    continue;
                }
            };
            self.below.push(&name);
            let below = match self.is_ignored() {
                true => None,
                false => self.named(level, &name, only),
            };
            if !self.push(&mut stack, below) {
                self.below.pop();
            }
        }
    }

    fn top(&mut self, side: Side) -> Option<Found<'a>> {
        let Top { tree, path, .. } = self.side(side);
        let missing = || extant::Error::NotFound.into();
        let found = tree
            .item(path, true)
            .and_then(|found| found.ok_or_else(missing));
        self.note(side, found)
    }

    fn is_ignored(&self) -> bool {
        self.rules
            .ignore
            .iter()
            .any(|pattern| pattern.means(&self.below))
    }

    /// Compares what has one name. Returns the directory to enter, if it is one.
    fn named(
        &mut self,
        level: &DirPair<'a>,
        name: &OsStr,
        only: Option<Side>,
    ) -> Option<DirPair<'a>> {
        if let Some(side) = only {
            if !self.is_untouched_lost_found(level, side) {
                self.found(&Difference::Only(side));
            }
            return None;
        }
        let gone = || io::Error::other("removed while it was being compared");
        let find = |dir: &Found<'a>| dir.find(name)?.ok_or_else(gone);
        let left = self.note(Side::Left, find(&level.left))?;
        let right = self.note(Side::Right, find(&level.right))?;
        self.compare(&Pair { left, right })
    }

    /// Returns whether this is the empty directory that each new file system has.
    fn is_untouched_lost_found(&self, level: &DirPair<'a>, side: Side) -> bool {
        let Top { tree, path, .. } = self.side(side);
        if tree.is_live() || path.parent().is_some() || self.below != Path::new(LOST_FOUND) {
            return false;
        }
        let dir = match side {
            Side::Left => &level.left,
            Side::Right => &level.right,
        };
        let found = dir.find(OsStr::new(LOST_FOUND)).ok().flatten();
        let names = found
            .filter(|found| found.attributes().kind == FileKind::Directory)
            .and_then(|found| found.enter().ok()?.names().ok());
        names.is_some_and(|mut names| names.next().is_none())
    }

    fn compare(&mut self, pair: &Pair<'a>) -> Option<DirPair<'a>> {
        let (left, right) = (pair.left.attributes(), pair.right.attributes());
        if left.kind != right.kind {
            self.found(&Difference::Kind(left.kind, right.kind));
            return None;
        }
        let kind = left.kind;
        if kind != FileKind::Directory {
            match self.linked.meet(left, right, &self.below) {
                Pairing::Known => return None,
                Pairing::New => {}
                Pairing::Crossed(difference) => self.found(&difference),
            }
        }
        self.attributes(pair);
        if self.rules.xattrs {
            self.xattrs(pair);
        }
        match kind {
            FileKind::Directory => return self.enter(pair),
            FileKind::Regular => self.content(pair),
            FileKind::Symlink => self.target(pair),
            FileKind::BlockDevice | FileKind::CharDevice => {
                if left.rdev != right.rdev {
                    self.found(&Difference::Device(left.rdev, right.rdev));
                }
            }
            FileKind::Fifo | FileKind::Socket => {}
        }
        None
    }

    fn attributes(&mut self, pair: &Pair<'a>) {
        if pair.left.is_implied() || pair.right.is_implied() {
            return;
        }
        let (left, right) = (pair.left.attributes(), pair.right.attributes());
        // The permissions of a link have no meaning.
        if left.perm != right.perm && left.kind != FileKind::Symlink {
            self.found(&Difference::Mode(left.perm, right.perm));
        }
        if self.rules.owners && left.uid != right.uid {
            self.found(&Difference::Owner(left.uid, right.uid));
        }
        if self.rules.owners && left.gid != right.gid {
            self.found(&Difference::Group(left.gid, right.gid));
        }
        if self.rules.times && left.mtime != right.mtime {
            self.found(&Difference::Modified(left.mtime, right.mtime));
        }
    }

    fn xattrs(&mut self, pair: &Pair<'a>) {
        let left = self.note(Side::Left, pair.left.xattrs());
        let right = self.note(Side::Right, pair.right.xattrs());
        let (Some(mut left), Some(mut right)) = (left, right) else {
            return;
        };
        left.sort_unstable();
        right.sort_unstable();
        let value = |of: &[Xattr], name: &[u8]| {
            let at = of.binary_search_by(|(have, _)| have.as_slice().cmp(name));
            at.ok()
                .and_then(|at| of.get(at))
                .map(|(_, value)| value.clone())
        };
        for (name, ours) in &left {
            match value(&right, name) {
                None => self.found(&Difference::XattrOnly(Side::Left, name.clone())),
                Some(theirs) if theirs != *ours => self.found(&Difference::Xattr(name.clone())),
                Some(_) => {}
            }
        }
        for (name, _) in &right {
            if value(&left, name).is_none() {
                self.found(&Difference::XattrOnly(Side::Right, name.clone()));
            }
        }
    }

    fn content(&mut self, pair: &Pair<'a>) {
        let (left, right) = (pair.left.attributes(), pair.right.attributes());
        if left.size != right.size {
            self.found(&Difference::Size(left.size, right.size));
            return;
        }
        let ours = self.note(Side::Left, pair.left.open());
        let theirs = self.note(Side::Right, pair.right.open());
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            return;
        };
        match self.buffers.first_difference(&*ours, &*theirs, left.size) {
            Ok(None) => {}
            Ok(Some(at)) => self.found(&Difference::Content(at)),
            Err((side, error)) => self.fail(side, error),
        }
    }

    fn target(&mut self, pair: &Pair<'a>) {
        let left = self.note(Side::Left, pair.left.read_link());
        let right = self.note(Side::Right, pair.right.read_link());
        if let (Some(left), Some(right)) = (left, right)
            && left.as_os_str() != right.as_os_str()
        {
            let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
            self.found(&Difference::Target(bytes(&left), bytes(&right)));
        }
    }

    fn enter(&mut self, pair: &Pair<'a>) -> Option<DirPair<'a>> {
        for (side, found) in [(Side::Left, &pair.left), (Side::Right, &pair.right)] {
            let live = self.side(side).tree.is_live();
            let [left, right] = &mut self.entered;
            let entered = match side {
                Side::Left => left,
                Side::Right => right,
            };
            // On the host, a directory may be mounted at several places.
            if !live && !entered.insert(found.attributes().id) {
                let what = "a directory with a second name, compared by its first: damage";
                self.fail(side, io::Error::other(what));
                return None;
            }
        }
        let left = self.note(Side::Left, pair.left.enter())?;
        let right = self.note(Side::Right, pair.right.enter())?;
        let names = Merged {
            left: self.note(Side::Left, left.names())?.peekable(),
            right: self.note(Side::Right, right.names())?.peekable(),
            broken: false,
        };
        Some(DirPair { left, right, names })
    }

    fn push(&mut self, stack: &mut Vec<DirPair<'a>>, level: Option<DirPair<'a>>) -> bool {
        let Some(level) = level else {
            return false;
        };
        stack.push(level);
        let outer = stack.len().checked_sub(OPEN_LEVELS + 1);
        if let Some(level) = outer.and_then(|outer| stack.get(outer)) {
            level.left.park();
            level.right.park();
        }
        true
    }

    fn pop(&mut self, stack: &mut Vec<DirPair<'a>>) {
        let Some(level) = stack.pop() else {
            return;
        };
        let left = self.note(Side::Left, level.left.restore_parent());
        let right = self.note(Side::Right, level.right.restore_parent());
        if left.is_none() || right.is_none() {
            // No directory above is at hand any more. The innermost goes first: each holds the one
            // above.
            while stack.pop().is_some() {}
        }
        self.below.pop();
    }

    fn side(&self, side: Side) -> Top<'c, 'a> {
        match side {
            Side::Left => self.left,
            Side::Right => self.right,
        }
    }

    fn found(&mut self, difference: &Difference) {
        if !self.ended {
            self.ended = !self.report.difference(&self.below, difference);
        }
    }

    fn note<T>(&mut self, side: Side, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(side, error);
                None
            }
        }
    }

    fn fail(&mut self, side: Side, error: io::Error) {
        let Top { prefix, path, .. } = self.side(side);
        let path = match self.below.as_os_str().is_empty() {
            true => path.to_owned(),
            false => path.join(&self.below),
        };
        let location = format!("{prefix}{}", path.display());
        self.report.failure(Failure::at(location, error));
    }
}

/// The names of two directories in order, each with the side that alone has it.
struct Merged {
    left: Peekable<Names>,
    right: Peekable<Names>,
    /// One side could not be read to its end: what follows cannot be told from what is missing.
    broken: bool,
}

impl Iterator for Merged {
    type Item = Sided<(OsString, Option<Side>)>;

    fn next(&mut self) -> Option<Self::Item> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        if self.broken {
            return None;
        }
        let order = match (self.left.peek(), self.right.peek()) {
            (None, None) => return None,
            (Some(Err(_)), _) => Less,
            (_, Some(Err(_))) => Greater,
            (Some(_), None) => Less,
            (None, Some(_)) => Greater,
            (Some(Ok(left)), Some(Ok(right))) => left.cmp(right),
        };
        let (side, name) = match order {
            Less => (Side::Left, self.left.next()?),
            Greater => (Side::Right, self.right.next()?),
            Equal => {
                self.right.next();
                (Side::Left, self.left.next()?)
            }
        };
        self.broken = name.is_err();
        let only = (order != Equal).then_some(side);
        Some(name.map(|name| (name, only)).map_err(|error| (side, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(left: &[&str], right: &[&str]) -> Merged {
        let names = |names: &[&str]| -> Names {
            let names: Vec<_> = (names.iter())
                .map(|name| match *name {
                    "!" => Err(io::Error::other("unreadable")),
                    name => Ok(OsString::from(name)),
                })
                .collect();
            Box::new(names.into_iter())
        };
        Merged {
            left: names(left).peekable(),
            right: names(right).peekable(),
            broken: false,
        }
    }

    #[test]
    fn names_are_merged_in_order() {
        let all: Vec<_> = merged(&["a", "b", "d"], &["b", "c", "d", "e"])
            .map(|named| named.unwrap())
            .map(|(name, only)| (name.into_string().unwrap(), only))
            .collect();
        let right = [
            ("a", Some(Side::Left)),
            ("b", None),
            ("c", Some(Side::Right)),
            ("d", None),
            ("e", Some(Side::Right)),
        ];
        assert_eq!(all, right.map(|(name, only)| (name.to_owned(), only)));
    }

    #[test]
    fn a_listing_that_breaks_off_makes_no_differences() {
        let mut names = merged(&["a", "!"], &["a", "b", "c"]);
        assert!(matches!(names.next(), Some(Ok((_, None)))));
        assert!(matches!(names.next(), Some(Err((Side::Left, _)))));
        assert!(names.next().is_none());
    }
}
