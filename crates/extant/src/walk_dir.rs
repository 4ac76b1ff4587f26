//! Everything below a directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant_engine::damage::LinkDamage;
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
    entered: Entered,
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
        let mut entered = Entered::default();
        entered.note(self.volume(), self.node(path, true)?.ino(), None)?;
        Ok(WalkDir {
            fs: PhantomData,
            open: vec![self.read_dir(path)?],
            entered,
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
        // The listing named another one, whose name this one has taken.
        if ino != dir.ino() && self.entered.has(ino) {
            return Ok(());
        }
        let found = (dir.parent(), dir.name().as_bytes());
        if !self.entered.note(dir.volume(), ino, Some(found))? {
            return Ok(());
        }
        self.open.push(dir.read_dir(node)?);
        Ok(())
    }
}

/// Directories that were entered, and the one that each was found in, if that is known: none is
/// entered again, as damage could lead into a walk without an end.
#[derive(Debug, Default)]
pub struct Entered(HashMap<Ino, Option<Ino>>);

impl Entered {
    /// Returns whether `ino` was entered.
    fn has(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino)
    }

    /// Notes the directory `ino`, found by a name in a directory; by none at the top of a walk.
    /// Returns whether it is a new one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it has both this name and the one by which it was entered.
    pub(crate) fn note(
        &mut self,
        volume: &Volume,
        ino: Ino,
        found: Option<(&Node, &[u8])>,
    ) -> Result<bool> {
        let mut first = match self.0.entry(ino) {
            Slot::Vacant(slot) => {
                slot.insert(found.map(|(dir, _)| dir.ino()));
                return Ok(true);
            }
            Slot::Occupied(first) => first,
        };
        let Some(found) = found else {
            return Ok(false);
        };
        let moved = check_moved(volume, ino, *first.get(), found);
        if matches!(moved, Err(Error::Corrupt { .. })) {
            // A third name needs no look at the first.
            first.insert(None);
        }
        moved.map(|()| false)
    }
}

/// Checks a directory that comes a second time, by a name in `dir`. The first time it was found in
/// `first`; `None` if any other name is damage.
///
/// # Errors
/// [`Error::Corrupt`] if it has both names: no directory has two. One that was moved has lost the
/// first.
fn check_moved(
    volume: &Volume,
    ino: Ino,
    first: Option<Ino>,
    (dir, name): (&Node, &[u8]),
) -> Result<()> {
    let names = match first {
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
        return Err(Error::corrupt(place, LinkDamage::TwoNames));
    }
    Ok(())
}

/// How many names `ino` has in the directory `dir`, two at most; none if that is gone.
fn names_of(volume: &Volume, dir: Ino, ino: Ino) -> Result<usize> {
    let dir = match volume.node(dir) {
        Err(Error::NotFound) => return Ok(0),
        Ok(node) if node.kind() != FileKind::Directory => return Ok(0),
        node => node?,
    };
    let mut names = 0;
    volume.readdir(&dir, 0, &mut |entry| {
        names += usize::from(entry.ino == ino && !matches!(entry.name, b"." | b".."));
        names < 2
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
