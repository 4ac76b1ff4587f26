//! Everything below a directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant_engine::{Error, FileKind, Location, Node, Result, Volume};
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
    /// Directories that were entered, and the directory that each was found in, if that is known:
    /// none is entered again, as damage could lead into a walk without an end.
    seen: HashMap<Ino, Option<Ino>>,
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
    /// them, for a directory that has two names. One that is moved during the walk may be returned
    /// twice, or not at all; what is in it is returned once at most.
    pub fn walk_dir(&self, path: impl AsRef<Path>) -> Result<WalkDir<'_>> {
        let path = path.as_ref();
        let top = self.node(path, true)?;
        let above = self.volume().lookup(&top, b"..");
        let above = above.ok().map(|dir| dir.ino());
        Ok(WalkDir {
            fs: PhantomData,
            open: vec![self.read_dir(path)?],
            seen: HashMap::from([(top.ino(), above)]),
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
        match self.seen.entry(ino) {
            Entry::Vacant(vacant) => {
                vacant.insert(Some(dir.parent().ino()));
            }
            // The listing named another one, whose name this one has taken.
            Entry::Occupied(_) if ino != dir.ino() => return Ok(()),
            Entry::Occupied(first) => {
                let name = (dir.parent(), dir.name().as_bytes());
                return check_moved(dir.volume(), ino, *first.get(), name);
            }
        }
        self.open.push(dir.read_dir(node)?);
        Ok(())
    }
}

/// Checks a directory that comes a second time, by a name in `dir`. The first time it was found in
/// `first`; `None` if that is not known.
///
/// # Errors
/// [`Error::Corrupt`] if it has both names: no directory has two. One that was moved has lost the
/// first.
pub(crate) fn check_moved(
    volume: &Volume,
    ino: Ino,
    first: Option<Ino>,
    (dir, name): (&Node, &[u8]),
) -> Result<()> {
    let names = match first {
        // What is above all others is not moved.
        _ if ino == Ino::ROOT => 2,
        None => 2,
        Some(first) if first == dir.ino() => names_of(volume, first, ino)?,
        Some(first) => names_of(volume, first, ino)? + 1,
    };
    // Moved back meanwhile, it has no more than one either.
    let is_there = match volume.lookup(dir, name) {
        Ok(node) => node.ino() == ino,
        Err(Error::NotFound) => false,
        Err(error) => return Err(error),
    };
    if names > 1 && is_there {
        let place = Location::Inode(ino);
        return Err(Error::corrupt(place, "a directory with two names"));
    }
    Ok(())
}

/// How many names `ino` has in the directory `dir`; none if that is gone.
fn names_of(volume: &Volume, dir: Ino, ino: Ino) -> Result<usize> {
    let dir = match volume.node(dir) {
        Err(Error::NotFound) => return Ok(0),
        Ok(node) if node.kind() != FileKind::Directory => return Ok(0),
        node => node?,
    };
    let mut names = 0;
    volume.readdir(&dir, 0, &mut |entry| {
        names += usize::from(entry.ino == ino && !matches!(entry.name, b"." | b".."));
        true
    })?;
    Ok(names)
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
