//! Listing a directory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use extant_engine::{FileKind, Node, Result, Volume};
use extant_units::Ino;

use crate::metadata::Metadata;
use crate::walk::resolve;

/// Entries taken from the directory at once.
const BATCH: usize = 256;

/// The entries of a directory, without `.` and `..`. An entry that is created or removed during the
/// listing may occur or not; each other one occurs once.
pub struct ReadDir {
    volume: Volume,
    dir: Node,
    path: PathBuf,
    pos: Option<u64>,
    batch: VecDeque<DirEntry>,
}

impl ReadDir {
    pub(crate) fn new(volume: Volume, dir: Node, path: PathBuf) -> ReadDir {
        ReadDir {
            volume,
            dir,
            path,
            pos: Some(0),
            batch: VecDeque::new(),
        }
    }

    /// Takes the next batch; the position becomes `None` when nothing follows.
    fn fetch(&mut self, from: u64) -> Result<()> {
        let mut next = None;
        let batch = &mut self.batch;
        let (volume, dir) = (&self.volume, &self.path);
        self.volume.readdir(&self.dir, from, &mut |entry| {
            if batch.len() == BATCH {
                return false;
            }
            next = Some(entry.next_pos);
            if entry.name != b"." && entry.name != b".." {
                batch.push_back(DirEntry {
                    volume: volume.clone(),
                    dir: dir.clone(),
                    name: OsString::from_vec(entry.name.to_vec()),
                    ino: entry.ino,
                    kind: entry.kind,
                });
            }
            true
        })?;
        self.pos = next;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.batch.is_empty() {
            let from = self.pos?;
            if let Err(error) = self.fetch(from) {
                self.pos = None;
                return Some(Err(error));
            }
        }
        self.batch.pop_front().map(Ok)
    }
}

/// One entry of a directory.
pub struct DirEntry {
    volume: Volume,
    dir: PathBuf,
    name: OsString,
    ino: Ino,
    kind: Option<FileKind>,
}

impl DirEntry {
    /// The name, without the directory's path.
    pub fn file_name(&self) -> OsString {
        self.name.clone()
    }

    /// The path: what was given to `read_dir`, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What it is; links are not followed.
    ///
    /// # Errors
    /// Those of reading the inode, where the directory does not store the kind.
    pub fn file_type(&self) -> Result<FileKind> {
        self.kind
            .map_or_else(|| Ok(self.volume.node(self.ino)?.kind()), Ok)
    }

    /// The attributes; links are not followed.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if the name is gone meanwhile, or those of reading the inode.
    pub fn metadata(&self) -> Result<Metadata> {
        let node = resolve(&self.volume, Path::new(&self.path()), false)?;
        Ok(Metadata(self.volume.getattr(&node)?))
    }
}
