//! Everything below a directory.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::path::Path;

use extant_engine::{Error, FileKind, Location, Result};
use extant_units::Ino;

use crate::filesystem::Filesystem;
use crate::read_dir::{DirEntry, ReadDir};

/// The entries below a directory, each directory before what is in it. Symbolic links are entries,
/// and not followed. After an error the walk goes on with what it can still read.
#[derive(Debug)]
pub struct WalkDir<'a> {
    fs: PhantomData<&'a Filesystem>,
    /// The directories that are being listed, the deepest last.
    open: Vec<ReadDir>,
    /// Directories that were entered: one that comes again is damage, and would never end.
    seen: HashSet<Ino>,
    /// The directory that was returned last, unless it was skipped: entered next.
    next: Option<DirEntry>,
}

impl Filesystem {
    /// Everything below a directory.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fs = extant::testing::filesystem(16 << 20)?;
    /// fs.create_dir_all("/a/b")?;
    /// fs.write("/a/b/c", "")?;
    /// let mut names = Vec::new();
    /// for entry in fs.walk_dir("/a")? {
    ///     names.push(entry?.file_name());
    /// }
    /// assert_eq!(names, ["b", "c"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Filesystem::read_dir`]. Later errors show while iterating; [`Error::Corrupt`] is one of
    /// them, for a directory that has two names.
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> Result<WalkDir<'_>> {
        let path = path.as_ref();
        let top = self.node(path, true)?.ino();
        Ok(WalkDir {
            fs: PhantomData,
            open: vec![self.read_dir(path)?],
            seen: HashSet::from([top]),
            next: None,
        })
    }
}

impl WalkDir<'_> {
    /// Leaves out what is in the directory that was returned last.
    pub fn skip_directory(&mut self) {
        self.next = None;
    }

    /// How far below the top the entry is that was returned last: 1 for the top's own entries.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    fn enter(&mut self, dir: &DirEntry) -> Result<()> {
        // By its name in the directory that was listed, and not by a path, which may lead through a
        // link by now, or be longer than a path can be.
        let node = dir.node()?;
        let ino = node.ino();
        if !self.seen.insert(ino) {
            // A directory that was moved on this way comes twice without damage.
            if ino != dir.ino() {
                return Ok(());
            }
            let place = Location::Inode(ino);
            return Err(Error::corrupt(place, "a directory with two names"));
        }
        self.open.push(dir.read_dir(node)?);
        Ok(())
    }
}

impl Iterator for WalkDir<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if let Some(dir) = self.next.take()
            && let Err(error) = self.enter(&dir)
        {
            return Some(Err(error));
        }
        while let Some(dir) = self.open.last_mut() {
            let Some(entry) = dir.next() else {
                self.open.pop();
                continue;
            };
            let found = entry.and_then(|entry| Ok((entry.file_type()?, entry)));
            return Some(found.map(|(kind, entry)| {
                self.next = (kind == FileKind::Directory).then(|| entry.clone());
                entry
            }));
        }
        None
    }
}
