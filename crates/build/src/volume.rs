//! An ext4 image as a source: its tree goes over what came before, its files are read by the
//! engine. It is never written: a journal that holds transactions is replayed in memory.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use extant_archive::Timestamp;
use extant_blockdev::FileDevice;
use extant_disk::file_kind::FileKind;
use extant_engine::{Attr, Ino, Node as FileNode};
use extant_engine::{DataBudget, Error as EngineError, SeekTarget, Tuning, Volume, VolumeOptions};
use rustix::fs::{major, minor};

use crate::attrs::Named;
use crate::entry_rules::{Entry, EntryRules, device};
use crate::error::{Error, Result};
use crate::parts::{Part, find_parts};
use crate::placer::{Placer, parts, shown};
use crate::tree::{Node, NodeId, too_many};

/// Offset and value of the superblock's magic number.
const MAGIC_AT: usize = 1024 + 56;
const MAGIC: [u8; 2] = 0xEF53_u16.to_le_bytes();
/// Offset and value of an archive's magic: a boot block may be anything else.
pub(crate) const ARCHIVE_AT: usize = 257;
pub(crate) const ARCHIVE: &[u8] = b"ustar";
/// Memory for file data and for metadata: each file is read once.
const CACHE: u64 = 32 << 20;

/// Returns whether a file holds an image from `start` on.
pub(crate) fn is_image(file: &File, start: u64) -> bool {
    let mut head = [0; MAGIC_AT + MAGIC.len()];
    let read = file.read_exact_at(&mut head, start);
    read.is_ok() && head.ends_with(&MAGIC) && !head[ARCHIVE_AT..].starts_with(ARCHIVE)
}

/// Opens an image to read it: the file at `path`, or `file`, which has no path.
///
/// # Errors
/// Those of the engine.
pub(crate) fn open(path: &Path, file: Option<File>) -> Result<Arc<Volume>> {
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(CACHE);
    tuning.block_cache_bytes = CACHE;
    let mut options = VolumeOptions::new();
    options.tuning(tuning);
    let opened = match file {
        None => options.open(path),
        Some(file) => {
            let device = FileDevice::from_file(file, path).map_err(EngineError::from);
            device.and_then(|device| options.open_on(Arc::new(device)))
        }
    };
    opened
        .map(Arc::new)
        .map_err(|error| Error::at(path.display(), error))
}

/// An image that is being read.
pub(crate) struct VolumeScan<'a, 'b> {
    pub(crate) placer: &'a mut Placer<'b>,
    pub(crate) rules: &'a EntryRules<'a>,
    /// The source's number.
    pub(crate) origin: u16,
    /// For messages.
    pub(crate) name: &'a str,
    pub(crate) volume: &'a Volume,
}

/// A directory that is still to be read, and its path.
type PendingDir = (FileNode, Vec<u8>);

/// Inodes that a scan has met.
struct Seen {
    /// Files with several names.
    linked: HashMap<Ino, NodeId>,
    /// A second name of a directory is damage, and could lead into a walk without an end.
    entered: HashSet<Ino>,
    budget: DataBudget,
}

impl VolumeScan<'_, '_> {
    /// Reads all that is in a directory of it.
    ///
    /// # Errors
    /// Those of the engine; damage; entries that no volume can have.
    pub(crate) fn all(mut self, top: &Path) -> Result<()> {
        let located = |error| Error::at(self.name, error);
        let mut seen = Seen {
            linked: HashMap::new(),
            entered: HashSet::new(),
            budget: DataBudget::of(self.volume).map_err(located)?,
        };
        let mut root = self.volume.root().map_err(located)?;
        for name in parts(top.as_os_str().as_bytes()) {
            let found = self.volume.lookup(&root, name);
            let at = |error| Error::at(format!("{}:{}", self.name, top.display()), error);
            root = found.map_err(at)?;
        }
        if root.kind() != FileKind::Directory {
            return Err(Error::at(top.display(), "not a directory of the image"));
        }
        self.entry(&root, b"/", &mut seen)?;
        let mut pending: Vec<PendingDir> = vec![(root, Vec::new())];
        while let Some((dir, path)) = pending.pop() {
            let from = pending.len();
            self.directory(&dir, &path, &mut pending, &mut seen)?;
            // The first of them is read next, as in a walk.
            pending[from..].reverse();
        }
        Ok(())
    }

    fn directory(
        &mut self,
        dir: &FileNode,
        path: &[u8],
        pending: &mut Vec<PendingDir>,
        seen: &mut Seen,
    ) -> Result<()> {
        if !seen.entered.insert(dir.ino()) {
            return Err(Error::at(
                self.shown(path),
                "a directory with a second name: damage",
            ));
        }
        let mut names = Vec::new();
        let room = self.placer.tree.room();
        let listed = self.volume.readdir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            names.len() <= room
        });
        listed.map_err(|error| Error::at(self.shown(path), error))?;
        if names.len() > room {
            return Err(too_many());
        }
        names.sort_unstable();
        for name in names {
            let inside = [path, b"/", &name].concat();
            if self.rules.is_excluded(&inside) {
                continue;
            }
            let node = self.volume.lookup(dir, &name);
            let node = node.map_err(|error| Error::at(self.shown(&inside), error))?;
            let made = self.entry(&node, &inside, seen)?;
            if made && node.kind() == FileKind::Directory {
                pending.push((node, inside));
            }
        }
        Ok(())
    }

    /// Puts one entry into the tree; whether it did, and did not remove another.
    fn entry(&mut self, file: &FileNode, path: &[u8], seen: &mut Seen) -> Result<bool> {
        if let Some(&known) = seen.linked.get(&file.ino()) {
            self.placer.add_name(path, known)?;
            return Ok(true);
        }
        let location = self.shown(path);
        let at = |error| Error::at(&location, error);
        let attr = self.volume.getattr(file).map_err(at)?;
        let mut node = self.described(&attr);
        let mut parts = None;
        match attr.kind {
            FileKind::Regular => {
                let found = self.parts(file, attr.size).map_err(at)?;
                seen.budget.begin(attr.ino.get().into(), 1);
                if !seen.budget.take(found.iter().map(|part| part.len).sum()) {
                    let what = "its extents have more data than the volume has blocks: damaged";
                    return Err(Error::at(&location, what));
                }
                let is_whole = found.iter().any(|part| part.len == attr.size);
                parts = (attr.size > 0 && !is_whole).then_some(found);
            }
            FileKind::Symlink => {
                let says = self.volume.readlink(file).map_err(at)?;
                self.rules
                    .target(self.placer.tree, &mut node, &says, &location)?;
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                let numbers = u64::from(attr.rdev);
                node.data = device(major(numbers), minor(numbers), &location)?;
            }
            _ => {}
        }
        let entry = Entry {
            node,
            named: self.attributes(file).map_err(at)?,
            parts,
        };
        let Some(made) = self.rules.put(self.placer, path, entry, &location)? else {
            return Ok(false);
        };
        if attr.nlink > 1 && attr.kind != FileKind::Directory {
            seen.linked.insert(attr.ino, made);
        }
        Ok(true)
    }

    fn shown(&self, path: &[u8]) -> String {
        format!("{}:{}", self.name, shown(path))
    }

    fn described(&self, attr: &Attr) -> Node {
        let time = Timestamp {
            secs: attr.mtime.secs,
            nanos: attr.mtime.nanos,
        };
        Node {
            mode: attr.mode(),
            uid: attr.uid,
            gid: attr.gid,
            size: match attr.kind {
                FileKind::Regular => attr.size,
                _ => 0,
            },
            data: attr.ino.get().into(),
            // As of a folder: a mount changes access times by reading.
            mtime: time,
            atime: time,
            origin: self.origin,
            ..Node::default()
        }
    }

    /// Parts of a file between its holes.
    fn parts(&self, file: &FileNode, size: u64) -> extant_engine::Result<Vec<Part>> {
        find_parts(size, |at| {
            let start = match self.volume.seek(file, SeekTarget::Data(at)) {
                Err(EngineError::NoSuchAddress) => return Ok(None),
                start => start?,
            };
            let end = self.volume.seek(file, SeekTarget::Hole(start))?;
            Ok(Some((start, end)))
        })
    }

    fn attributes(&self, file: &FileNode) -> extant_engine::Result<Named> {
        let mut named = Vec::new();
        for name in self.volume.listxattr(file)? {
            let value = self.volume.getxattr(file, &name)?;
            named.push((name, value));
        }
        Ok(named)
    }
}

/// Fills `buf` with the bytes of a file from `at` on; what is behind its end stays as it is.
///
/// # Errors
/// Those of the engine; an inode that no image has.
pub(crate) fn read(
    volume: &Volume,
    ino: u64,
    at: u64,
    buf: &mut [u8],
) -> extant_engine::Result<()> {
    let ino = u32::try_from(ino).ok().and_then(Ino::new);
    let node = volume.node(ino.ok_or(EngineError::Stale)?)?;
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match volume.read(&node, at + done as u64, rest)? {
            0 => break,
            len => done += len,
        }
    }
    Ok(())
}
