//! The origins of files' content, and how it is read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_disk::file_kind::FileKind;
use extant_engine::Volume;
use extant_units::{exact_u32, index};
use rustix::fs::{Mode, OFlags, open, openat};

use crate::error::{At, Error, Result};
use crate::parts::Part;
use crate::stamp::Stamp;
use crate::text::TextId;
use crate::tree::{Node, NodeId, Tree};
use crate::volume;

/// A source that has files' contents.
#[derive(Debug)]
pub(crate) enum Origin {
    /// An archive that can be read anywhere: `data` of a node is the position of its content.
    Archive {
        /// For messages.
        name: String,
        file: File,
        /// Before its members were read, where a later change is to show.
        stamp: Option<Stamp>,
    },
    /// A folder: `data` of a node is a directory of it and a name.
    Folder {
        root: PathBuf,
        /// The directory above and the name; the first is the folder itself.
        dirs: Vec<(u32, TextId)>,
        /// Stamps of the files by `data`, where later changes are to show.
        stamps: HashMap<u64, Stamp>,
    },
    /// An image: `data` of a node is an inode of it.
    Volume { name: String, volume: Arc<Volume> },
    /// Files of the host: `data` of a node is a position in this list. Each has a stamp where
    /// later changes are to show.
    Files(Vec<(PathBuf, Option<Stamp>)>),
}

/// The meaning of `data` for a file in a folder.
pub(crate) fn folder_data(dir: u32, name: TextId) -> u64 {
    u64::from(dir) << 32 | u64::from(name.raw())
}

/// The halves of [`folder_data`].
fn folder_parts(data: u64) -> (u32, TextId) {
    let name = TextId::from_raw(exact_u32(data & 0xFFFF_FFFF));
    (exact_u32(data >> 32), name)
}

/// Reads contents: each thread has its own, with the file that it read last.
pub(crate) struct ContentReader<'a> {
    tree: &'a Tree,
    origins: &'a [Origin],
    held: HeldFiles,
}

/// The file and the directory that a reader has open between two reads.
#[derive(Debug, Default)]
pub(crate) struct HeldFiles {
    open: Option<(NodeId, File)>,
    dir: Option<(u16, u32, OwnedFd)>,
}

impl<'a> ContentReader<'a> {
    pub(crate) fn new(tree: &'a Tree, origins: &'a [Origin]) -> Self {
        Self::with(tree, origins, HeldFiles::default())
    }

    /// A reader that has files open already.
    pub(crate) fn with(tree: &'a Tree, origins: &'a [Origin], held: HeldFiles) -> Self {
        Self {
            tree,
            origins,
            held,
        }
    }

    /// The files that it has open, for the next reader.
    pub(crate) fn into_held(self) -> HeldFiles {
        self.held
    }

    /// Fills `buf` with the bytes of `node` from `from` on; holes and what lies behind the end read
    /// as zeros.
    ///
    /// # Errors
    /// Those of the host; the file has another size than it had.
    pub(crate) fn read(&mut self, id: NodeId, from: u64, buf: &mut [u8]) -> Result<()> {
        let node = self.tree.node(id);
        let parts = self.tree.parts.get(id);
        let is_file = matches!(
            self.origins[usize::from(node.origin)],
            Origin::Folder { .. } | Origin::Files(_)
        );
        if is_file && parts.is_none() && from == 0 && node.size < buf.len() as u64 {
            return self.read_whole(id, node, buf);
        }
        let whole = [Part {
            start: 0,
            len: node.size,
            stored: 0,
        }];
        let parts = parts.unwrap_or(&whole);
        let end = from + buf.len() as u64;
        let first = parts.partition_point(|part| part.start + part.len <= from);
        let mut at = from;
        for part in parts.iter().skip(first) {
            let (start, stop) = (part.start.max(from), (part.start + part.len).min(end));
            if start >= stop {
                break;
            }
            zero(buf, from, at..start);
            let stored = part.stored + (start - part.start);
            let range = index(start - from)..index(stop - from);
            self.read_stored(id, node, stored, &mut buf[range])?;
            at = stop;
        }
        zero(buf, from, at..end);
        Ok(())
    }

    /// Reads a file for all of which `buf` has room, and more: its end is found by reading.
    fn read_whole(&mut self, id: NodeId, node: &Node, buf: &mut [u8]) -> Result<()> {
        let size = index(node.size);
        let read = self.open_file(node).and_then(|file| {
            let mut len = 0;
            while len < size {
                match file.read_at(&mut buf[len..], len as u64) {
                    Ok(0) => break,
                    Ok(more) => len += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok((len, self.is_unchanged(node, &file)?))
        });
        match read {
            Ok((len, true)) if len == size => buf[size..].fill(0),
            Ok(_) => return Err(Error::at(self.location(id), "it changed meanwhile")),
            Err(error) => return Err(error).at(Path::new(&self.location(id))),
        }
        Ok(())
    }

    /// The file of the host that a node's content was last read from, at the same positions; `None`
    /// where that was read at once or is a part of an archive.
    pub(crate) fn opened(&self, id: NodeId) -> Option<&File> {
        let (_, file) = self.held.open.as_ref().filter(|(known, _)| *known == id)?;
        Some(file)
    }

    fn read_stored(&mut self, id: NodeId, node: &Node, at: u64, buf: &mut [u8]) -> Result<()> {
        match &self.origins[usize::from(node.origin)] {
            Origin::Archive { name, file, .. } => {
                let path = Path::new(name);
                file.read_exact_at(buf, node.data + at).at(path)?;
                match self.is_unchanged(node, file).at(path)? {
                    true => Ok(()),
                    false => Err(Error::at(name, "it changed meanwhile")),
                }
            }
            Origin::Volume { name, volume } => {
                let read = volume::read(volume, node.data, at, buf);
                let location = || format!("{name}:{}", self.tree.path(id));
                read.map_err(|error| Error::at(location(), error))
            }
            _ => {
                let read = self.file(id, node)?.read_exact_at(buf, at);
                let unchanged = read.and_then(|()| match self.opened(id) {
                    Some(file) => self.is_unchanged(node, file),
                    None => Ok(false),
                });
                match unchanged {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Error::at(self.location(id), "it changed meanwhile")),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        Err(Error::at(self.location(id), "it became shorter meanwhile"))
                    }
                    Err(error) => Err(error).at(Path::new(&self.location(id))),
                }
            }
        }
    }

    /// Returns whether `file`, which `node` has its content from, has the stamp that it had when
    /// the sources were read; true where stamps were not asked for. It is asked after a read: what
    /// had changed before shows as well.
    fn is_unchanged(&self, node: &Node, file: &File) -> io::Result<bool> {
        let stamp = match &self.origins[usize::from(node.origin)] {
            Origin::Archive { stamp, .. } => stamp.as_ref(),
            Origin::Folder { stamps, .. } => stamps.get(&node.data),
            Origin::Files(files) => files[index(node.data)].1.as_ref(),
            Origin::Volume { .. } => None,
        };
        match stamp {
            Some(stamp) => Ok(*stamp == Stamp::of(&file.metadata()?)),
            None => Ok(true),
        }
    }

    /// The open file of a node.
    fn file(&mut self, id: NodeId, node: &Node) -> Result<&File> {
        if self
            .held
            .open
            .as_ref()
            .is_none_or(|(known, _)| *known != id)
        {
            let opened = self.open_file(node).and_then(|file| {
                let metadata = file.metadata()?;
                Ok((file, metadata))
            });
            let (file, metadata) = match opened {
                Ok(opened) => opened,
                Err(error) => return Err(error).at(Path::new(&self.location(id))),
            };
            if !metadata.is_file() || metadata.len() != node.size {
                return Err(Error::at(self.location(id), "it changed meanwhile"));
            }
            self.held.open = Some((id, file));
        }
        match &self.held.open {
            Some((_, file)) => Ok(file),
            None => Err(Error::at(self.location(id), "it cannot be opened")),
        }
    }

    /// The path of a node's content, for messages: on the host, where that has it.
    fn location(&self, id: NodeId) -> String {
        let node = self.tree.node(id);
        match &self.origins[usize::from(node.origin)] {
            Origin::Folder { root, dirs, .. } => {
                let (dir, name) = folder_parts(node.data);
                let name = OsStr::from_bytes(self.tree.text(name));
                let path = directory(self.tree, root, dirs, dir).join(name);
                path.display().to_string()
            }
            Origin::Files(files) => files[index(node.data)].0.display().to_string(),
            Origin::Archive { .. } | Origin::Volume { .. } => self.tree.path(id),
        }
    }

    fn open_file(&mut self, node: &Node) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let origin = node.origin;
        match &self.origins[usize::from(origin)] {
            Origin::Folder { root, dirs, .. } => {
                let (dir, name) = folder_parts(node.data);
                let known = |(at, number, _): &(u16, u32, OwnedFd)| (*at, *number) == (origin, dir);
                if !self.held.dir.as_ref().is_some_and(known) {
                    let path = directory(self.tree, root, dirs, dir);
                    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    self.held.dir = Some((origin, dir, open(path, flags, Mode::empty())?));
                }
                let name = self.tree.text(name);
                match &self.held.dir {
                    Some((_, _, at)) => Ok(openat(at, name, flags, Mode::empty())?.into()),
                    None => Err(io::ErrorKind::NotFound.into()),
                }
            }
            Origin::Files(files) => {
                let path = &files[index(node.data)].0;
                Ok(open(path, flags - OFlags::NOFOLLOW, Mode::empty())?.into())
            }
            Origin::Archive { .. } | Origin::Volume { .. } => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The path of a directory of a folder.
pub(crate) fn directory(tree: &Tree, root: &Path, dirs: &[(u32, TextId)], dir: u32) -> PathBuf {
    let mut names = Vec::new();
    let mut at = dir;
    while at != 0 {
        let (parent, name) = dirs[at as usize];
        names.push(OsStr::from_bytes(tree.text(name)));
        at = parent;
    }
    let mut path = root.to_path_buf();
    path.extend(names.into_iter().rev());
    path
}

fn zero(buf: &mut [u8], from: u64, range: std::ops::Range<u64>) {
    if range.start < range.end {
        buf[index(range.start - from)..index(range.end - from)].fill(0);
    }
}

/// Returns whether the content of a node is data that is copied.
pub(crate) fn has_data(node: &Node) -> bool {
    node.kind() == FileKind::Regular && node.size > 0
}
