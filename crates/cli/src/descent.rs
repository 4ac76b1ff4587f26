//! The path down to the directory of each name that is unpacked.
//!
//! # Invariants
//! - It holds the directories from the top to where the last name went. The next name goes down
//!   from the last of these that both have in common: an archive in the order of its tree costs one
//!   lookup for each directory, however deep they are.
//! - A held directory is what its path leads to. Only the removal of a symbolic link can change
//!   that; then everything is let go ([`Descent::forget`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use extant::{Error, FileKind, Filesystem, Node};

use crate::operand::ImagePath;

/// The directories between the top and a name.
pub(crate) struct Descent<'a> {
    fs: &'a Filesystem,
    at: &'a ImagePath,
    top: Node,
    held: Vec<(OsString, Node)>,
}

impl<'a> Descent<'a> {
    /// Begins in the directory `top`, which is at `at`.
    pub(crate) fn new(fs: &'a Filesystem, at: &'a ImagePath, top: Node) -> Descent<'a> {
        Descent {
            fs,
            at,
            top,
            held: Vec::new(),
        }
    }

    /// The directory that `names` lead to. Symbolic links are followed; what is missing is made.
    ///
    /// # Errors
    /// Those of following and making directories; [`Error::NotDir`].
    pub(crate) fn reach(&mut self, names: &[&OsStr]) -> extant::Result<Node> {
        let same = self.held.iter().zip(names);
        let same = same.take_while(|((held, _), name)| held == *name).count();
        self.held.truncate(same);
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        for (i, &name) in names.iter().enumerate().skip(same) {
            let dir = self.last();
            let node = match volume.lookup(dir, name.as_bytes()) {
                Err(Error::NotFound) => volume.mkdir(dir, name.as_bytes(), 0o777, cred)?,
                Ok(link) if link.kind() == FileKind::Symlink => {
                    let mut path = self.at.path.clone();
                    path.extend(&names[..=i]);
                    self.fs.node(path, true)?
                }
                other => other?,
            };
            if node.kind() != FileKind::Directory {
                return Err(Error::NotDir);
            }
            self.held.push((name.to_owned(), node));
        }
        Ok(self.last().clone())
    }

    fn last(&self) -> &Node {
        self.held.last().map_or(&self.top, |(_, dir)| dir)
    }

    /// Lets everything go: a symbolic link was removed.
    pub(crate) fn forget(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use extant_testkit::{Image, Need, need};

    use super::*;

    #[test]
    fn a_tree_costs_a_lookup_for_each_directory() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(16).make().unwrap();
        let mut options = Filesystem::options();
        let fs = options.write(true).open(image.path()).unwrap();
        let at = ImagePath {
            image: image.path().into(),
            path: "/".into(),
        };
        let lookups = || {
            let stats = fs.volume().stats();
            stats.iter().find(|(name, _)| *name == "lookups").unwrap().1
        };
        let mut descent = Descent::new(&fs, &at, fs.volume().root().unwrap());
        let names = vec![OsStr::new("d"); 300];
        let before = lookups();
        for depth in 1..=names.len() {
            descent.reach(&names[..depth]).unwrap();
            // As for each of many files in it.
            descent.reach(&names[..depth]).unwrap();
        }
        assert_eq!(lookups() - before, 300);
        let dir = descent.reach(&names[..2]).unwrap();
        assert_eq!(dir.ino(), fs.metadata("/d/d").unwrap().ino());
    }

    #[test]
    fn links_are_followed_and_files_are_no_directories() {
        if !need(&[Need::Tool("mke2fs")]) {
            return;
        }
        let image = Image::of_mib(16).make().unwrap();
        let mut options = Filesystem::options();
        let fs = options.write(true).open(image.path()).unwrap();
        fs.create_dir_all("/top/a").unwrap();
        fs.create_dir_all("/top/b").unwrap();
        fs.symlink("a", "/top/link").unwrap();
        fs.symlink("nowhere", "/top/dangling").unwrap();
        fs.create("/top/file").unwrap();
        let at = ImagePath {
            image: image.path().into(),
            path: "/top".into(),
        };
        let mut descent = Descent::new(&fs, &at, fs.node("/top", true).unwrap());
        let link = [OsStr::new("link")];
        let ino = |path: &str| fs.metadata(path).unwrap().ino();
        assert_eq!(descent.reach(&link).unwrap().ino(), ino("/top/a"));
        fs.remove_file("/top/link").unwrap();
        fs.symlink("b", "/top/link").unwrap();
        descent.forget();
        assert_eq!(descent.reach(&link).unwrap().ino(), ino("/top/b"));
        assert!(matches!(
            descent.reach(&[OsStr::new("file")]),
            Err(Error::NotDir)
        ));
        assert!(matches!(
            descent.reach(&[OsStr::new("dangling")]),
            Err(Error::NotFound)
        ));
    }
}
