//! Listing a directory.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use extant_engine::{DirBatch, Dirent, Error, FileKind, Node, Result, Volume};
use extant_units::Ino;

use crate::metadata::Metadata;

/// The entries of a directory, without `.` and `..`. An entry that is created or removed during the
/// listing may occur or not; each other one occurs once.
pub struct ReadDir {
    listing: Arc<Listing>,
    pos: Option<u64>,
    batch: Arc<Batch>,
    /// The next entry of the batch.
    at: usize,
}

/// The state that all entries of a listing share.
struct Listing {
    volume: Volume,
    dir: Node,
    path: PathBuf,
}

/// Entries that were read at once. They hold it, so that an entry copies nothing.
struct Batch {
    listing: Arc<Listing>,
    entries: Option<DirBatch>,
}

impl ReadDir {
    pub(crate) fn new(volume: Volume, dir: Node, path: PathBuf) -> ReadDir {
        let listing = Arc::new(Listing { volume, dir, path });
        let batch = Batch {
            listing: listing.clone(),
            entries: None,
        };
        ReadDir {
            listing,
            pos: Some(0),
            batch: Arc::new(batch),
            at: 0,
        }
    }

    /// Takes the next batch; the position becomes `None` when nothing follows.
    fn fetch(&mut self, from: u64) -> Result<()> {
        let Listing { volume, dir, .. } = &*self.listing;
        let entries = volume.read_batch(dir, from)?;
        self.pos = entries.next_pos();
        self.batch = Arc::new(Batch {
            listing: self.listing.clone(),
            entries: Some(entries),
        });
        self.at = 0;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            while let Some(entry) = self.batch.get(self.at) {
                let at = self.at;
                self.at += 1;
                if !matches!(entry.name, b"." | b"..") {
                    return Some(Ok(DirEntry {
                        ino: entry.ino,
                        kind: entry.kind,
                        batch: self.batch.clone(),
                        at,
                    }));
                }
            }
            let from = self.pos?;
            if let Err(error) = self.fetch(from) {
                self.pos = None;
                self.at = usize::MAX;
                return Some(Err(error));
            }
        }
    }
}

impl Batch {
    #[inline]
    fn get(&self, at: usize) -> Option<Dirent<'_>> {
        self.entries.as_ref()?.get(at)
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.listing.path).finish()
    }
}

/// One entry of a directory.
#[derive(Clone)]
pub struct DirEntry {
    batch: Arc<Batch>,
    at: usize,
    ino: Ino,
    kind: Option<FileKind>,
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl DirEntry {
    /// The name, without the directory's path.
    pub fn file_name(&self) -> OsString {
        self.name().to_owned()
    }

    /// The name, borrowed.
    pub fn name(&self) -> &OsStr {
        let entry = self.batch.get(self.at);
        OsStr::from_bytes(entry.map_or(&[], |entry| entry.name))
    }

    /// The path: what was given to `read_dir`, and the name.
    pub fn path(&self) -> PathBuf {
        self.batch.listing.path.join(self.name())
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of the file; links are not followed.
    ///
    /// # Errors
    /// Those of reading the inode, where the directory does not store the kind.
    pub fn file_type(&self) -> Result<FileKind> {
        let volume = &self.batch.listing.volume;
        self.kind
            .map_or_else(|| Ok(volume.node(self.ino)?.kind()), Ok)
    }

    /// The directory that was listed.
    pub(crate) fn parent(&self) -> &Node {
        &self.batch.listing.dir
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.batch.listing.volume
    }

    /// The node that has the name now, in the directory that was listed, wherever that is.
    pub(crate) fn node(&self) -> Result<Node> {
        let Listing { volume, dir, .. } = &*self.batch.listing;
        volume.lookup(dir, self.name().as_bytes())
    }

    /// The entries of this directory.
    ///
    /// # Errors
    /// [`crate::Error::NotDir`] if the name is of something else now; those of the lookup.
    pub(crate) fn read_dir(&self, node: Node) -> Result<ReadDir> {
        if node.kind() != FileKind::Directory {
            return Err(Error::NotDir);
        }
        let volume = self.batch.listing.volume.clone();
        Ok(ReadDir::new(volume, node, self.path()))
    }

    /// The attributes; links are not followed.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] if the name is gone meanwhile, or those of reading the inode.
    pub fn metadata(&self) -> Result<Metadata> {
        let volume = &self.batch.listing.volume;
        Ok(Metadata(volume.getattr(&self.node()?)?))
    }
}
