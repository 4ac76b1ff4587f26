//! Copies of trees: from the host, to the host, and between volumes.
//!
//! # Invariants
//! - Each step is made by paths. So no other program may change the tree on the host meanwhile.
//! - Nothing is written through a symbolic link at the end of a path: what is there is replaced.
//! - A directory of a volume is entered once. A second name of one is damage, and could lead into
//!   a walk without an end. One that was moved meanwhile was copied where it was.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_engine::{DataBudget, Error, FileKind, Location};
use extant_units::Ino;

use crate::filesystem::Filesystem;
use crate::sides::{Content, Entry, Side};
use crate::walk_dir::Entered;

/// Bytes that are copied at once.
const STEP: usize = 1 << 20;

/// Set-user-ID and set-group-ID.
const SET_ID: u16 = 0o6000;

/// Why a tree was not copied to its end, and where. What was copied until then stays.
#[derive(Debug)]
pub struct CopyError {
    path: PathBuf,
    error: io::Error,
}

impl CopyError {
    /// The path of the side on which it happened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The errno, if it has one.
    pub fn errno(&self) -> Option<i32> {
        Error::errno_of(&self.error)
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> io::Error {
        io::Error::new(error.error.kind(), error)
    }
}

type Result<T> = std::result::Result<T, CopyError>;

/// Adds where an error happened.
fn at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> CopyError {
    |error| CopyError {
        path: path.to_owned(),
        error: error.into(),
    }
}

impl Filesystem {
    /// Copies a file or a tree of the host to `path`: content with its holes, permissions, times,
    /// hard links, device nodes, and owners unless `owner` names one for all: a file that gets
    /// another owner loses its set-id bits, as by chown(2). Extended attributes are left out.
    /// Directories that are there are filled and keep their attributes; what else is in the way is
    /// replaced. Symbolic links are copied, not followed. Returns the bytes of content.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = std::env::temp_dir().join(format!("extant-copy-{}", std::process::id()));
    /// # std::fs::create_dir_all(&host)?;
    /// # std::fs::write(host.join("motd"), "hello")?;
    /// let fs = extant::testing::filesystem(16 << 20)?;
    /// assert_eq!(fs.copy_in(&host, "/etc", Some((0, 0)))?, 5);
    /// assert_eq!(fs.read_to_string("/etc/motd")?, "hello");
    /// # std::fs::remove_dir_all(&host)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The first failure, of either side.
    pub fn copy_in(
        &self,
        host: impl AsRef<Path>,
        path: impl AsRef<Path>,
        owner: Option<(u32, u32)>,
    ) -> Result<u64> {
        let copy = TreeCopy::new(Side::Host, Side::Volume(self), owner);
        copy.run(host.as_ref(), path.as_ref())
    }

    /// Copies a file or a tree to `host`, a path of the host. As [`Filesystem::copy_in`], but the
    /// copies are the caller's and have no set-id bits. Device nodes need privileges.
    ///
    /// # Errors
    /// The first failure, of either side; [`io::ErrorKind::AlreadyExists`] where a device node, a
    /// pipe or a socket of the host is in the way.
    pub fn copy_out(&self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<u64> {
        let copy = TreeCopy::new(Side::Volume(self), Side::Host, None);
        copy.run(path.as_ref(), host.as_ref())
    }

    /// Copies a file or a tree to `to` in `target`, which may be this file system. As
    /// [`Filesystem::copy_in`], with extended attributes.
    ///
    /// # Errors
    /// The first failure; [`Error::Invalid`] for a copy of a file or a directory into itself.
    pub fn copy_tree(
        &self,
        path: impl AsRef<Path>,
        target: &Filesystem,
        to: impl AsRef<Path>,
    ) -> Result<u64> {
        let mut copy = TreeCopy::new(Side::Volume(self), Side::Volume(target), None);
        copy.same = self.volume().is_same(target.volume());
        copy.run(path.as_ref(), to.as_ref())
    }
}

/// A copy under way.
struct TreeCopy<'a> {
    from: Side<'a>,
    to: Side<'a>,
    owner: Option<(u32, u32)>,
    /// Both sides are one volume: a copy could be its own source.
    same: bool,
    /// The first copies of files that have several names.
    linked: HashMap<(u64, u64), PathBuf>,
    /// Directories of a volume that were entered; none before the top.
    entered: Option<Entered>,
    /// Directories that are filled, if both sides are one volume.
    filled: HashSet<(u64, u64)>,
    /// Data that may still be read of a volume.
    budget: DataBudget,
    buf: Vec<u8>,
    bytes: u64,
}

/// A directory whose content is being copied.
struct Level {
    from: PathBuf,
    to: PathBuf,
    names: std::vec::IntoIter<OsString>,
    /// The attributes that its copy gets at the end, if the copy was made for it.
    like: Option<Entry>,
}

impl<'a> TreeCopy<'a> {
    fn new(from: Side<'a>, to: Side<'a>, owner: Option<(u32, u32)>) -> Self {
        Self {
            from,
            to,
            owner,
            same: false,
            linked: HashMap::new(),
            entered: None,
            filled: HashSet::new(),
            budget: DataBudget::unbounded(),
            buf: vec![0; STEP],
            bytes: 0,
        }
    }

    fn run(mut self, from: &Path, to: &Path) -> Result<u64> {
        if let Side::Volume(fs) = self.from {
            self.budget = DataBudget::of(fs.volume()).map_err(at(from))?;
        }
        // A stack and not recursion: the depth of a tree is a matter of the image.
        let mut levels = Vec::new();
        levels.extend(self.one(from.to_owned(), to.to_owned())?);
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.names.next() {
                let (from, to) = (level.from.join(&name), level.to.join(&name));
                levels.extend(self.one(from, to)?);
            } else if let Some(done) = levels.pop()
                && let Some(like) = &done.like
            {
                self.finish(like, &done.from, &done.to)?;
            }
        }
        Ok(self.bytes)
    }

    /// Copies what is at one path; a directory is only begun, and returned.
    fn one(&mut self, from: PathBuf, to: PathBuf) -> Result<Option<Level>> {
        let like = self.from.find(&from).map_err(at(&from))?;
        let like = like.ok_or(Error::NotFound).map_err(at(&from))?;
        match like.kind {
            FileKind::Directory if self.was_entered(&like, &from)? => Ok(None),
            FileKind::Directory => self.enter(like, from, to).map(Some),
            _ => self.leaf(&like, &from, &to).map(|()| None),
        }
    }

    /// Whether the directory `like` of a volume was copied already, before it was moved to `from`;
    /// notes it if not.
    fn was_entered(&mut self, like: &Entry, from: &Path) -> Result<bool> {
        if self.same && self.filled.contains(&like.id) {
            return Err(at(from)(Error::Invalid));
        }
        let Side::Volume(fs) = self.from else {
            return Ok(false);
        };
        let ino = u32::try_from(like.id.1).ok().and_then(Ino::new);
        let ino = ino.ok_or(Error::Invalid).map_err(at(from))?;
        let Some(entered) = &mut self.entered else {
            self.entered = Some(Entered::from_top(ino));
            return Ok(false);
        };
        let (Some(dir), Some(name)) = (from.parent(), from.file_name()) else {
            return Err(at(from)(Error::Invalid));
        };
        let dir = fs.node(dir, true).map_err(at(from))?;
        let is_new = entered.note(fs.volume(), ino, (&dir, name.as_bytes()));
        is_new.map(|is_new| !is_new).map_err(at(from))
    }

    /// Makes a directory, or takes the one that is there.
    fn enter(&mut self, like: Entry, from: PathBuf, to: PathBuf) -> Result<Level> {
        let existing = self.to.find(&to).map_err(at(&to))?;
        match existing.as_ref().map(|existing| existing.kind) {
            None => self.to.make_dir(&to).map_err(at(&to))?,
            Some(FileKind::Directory) => {}
            Some(_) => return Err(at(&to)(Error::NotDir)),
        }
        if self.same
            && let Some(filled) = self.to.find(&to).map_err(at(&to))?
        {
            self.filled.insert(filled.id);
        }
        let names = self.from.names(&from).map_err(at(&from))?;
        Ok(Level {
            from,
            to,
            names: names.into_iter(),
            like: existing.is_none().then_some(like),
        })
    }

    /// Copies anything but a directory.
    fn leaf(&mut self, like: &Entry, from: &Path, to: &Path) -> Result<()> {
        if like.links > 1 {
            if let Some(first) = self.linked.get(&like.id) {
                self.clear(like, to)?;
                return self.to.hard_link(first, to).map_err(at(to));
            }
            self.linked.insert(like.id, to.to_owned());
        }
        // Nothing is removed before there is something to put in its place.
        match like.kind {
            FileKind::Regular => {
                let source = self.from.open(from).map_err(at(from))?;
                self.clear(like, to)?;
                let target = self.to.create(to).map_err(at(to))?;
                self.budget.begin(like.id.1, like.links);
                self.content((&source, from), (&target, to), like.size)?;
            }
            FileKind::Symlink => {
                let says = self.from.read_link(from).map_err(at(from))?;
                self.clear(like, to)?;
                self.to.symlink(&says, to).map_err(at(to))?;
            }
            _ => {
                self.clear(like, to)?;
                self.to.make_node(to, like).map_err(at(to))?;
            }
        }
        self.finish(like, from, to)
    }

    /// Removes what is in the way of a copy.
    fn clear(&self, like: &Entry, to: &Path) -> Result<()> {
        let Some(existing) = self.to.find(to).map_err(at(to))? else {
            return Ok(());
        };
        let live = matches!(self.to, Side::Host);
        match existing.kind {
            _ if self.same && existing.id == like.id => Err(at(to)(Error::Invalid)),
            FileKind::Directory => Err(at(to)(Error::IsDir)),
            FileKind::Regular | FileKind::Symlink => self.to.remove(to).map_err(at(to)),
            _ if live => Err(at(to)(Error::Exists)),
            _ => self.to.remove(to).map_err(at(to)),
        }
    }

    /// Copies up to `len` bytes. A file that shrinks meanwhile gives a shorter copy.
    fn content(
        &mut self,
        (from, from_path): (&Content, &Path),
        (to, to_path): (&Content, &Path),
        len: u64,
    ) -> Result<()> {
        // A file of the host may have content without a length, as those of `/proc`: only reads
        // tell where it ends.
        let lengthless = len == 0 && matches!(from, Content::Host(_));
        let len = if lengthless { u64::MAX } else { len };
        let (mut pos, mut end) = (0, len);
        'data: while pos < len {
            let next = match lengthless {
                true => Some((pos, u64::MAX)),
                false => from.next_data(pos).map_err(at(from_path))?,
            };
            let Some((start, stop)) = next.filter(|&(start, _)| start < len) else {
                break;
            };
            pos = start;
            let stop = stop.min(len);
            if !self.budget.take(stop.saturating_sub(pos)) {
                return Err(at(from_path)(too_much(from)));
            }
            while pos < stop {
                let left = usize::try_from(stop - pos).unwrap_or(STEP);
                let piece = &mut self.buf[..left.min(STEP)];
                let done = from.read_at(piece, pos).map_err(at(from_path))?;
                if done == 0 {
                    end = pos;
                    break 'data;
                }
                to.write_all_at(&piece[..done], pos).map_err(at(to_path))?;
                pos += done as u64;
            }
        }
        if !lengthless {
            // What follows is a hole, or is gone from a file that shrank.
            end = end.min(from.len().map_err(at(from_path))?);
        }
        self.bytes += end;
        to.set_len(end).map_err(at(to_path))
    }

    fn finish(&self, like: &Entry, from: &Path, to: &Path) -> Result<()> {
        let owner = self.owner.unwrap_or((like.uid, like.gid));
        let mut like = like.clone();
        if owner != (like.uid, like.gid) && like.kind != FileKind::Directory {
            // As chown(2): they were not meant for this owner.
            like.perm &= !SET_ID;
        }
        let xattrs = match self.to {
            Side::Host => Vec::new(),
            Side::Volume(_) => self.from.xattrs(from).map_err(at(from))?,
        };
        self.to.finish(to, &like, owner, &xattrs).map_err(at(to))
    }
}

/// The error of a file that has more data than the volume has blocks.
fn too_much(from: &Content) -> Error {
    let place = match from {
        Content::Volume(file) => file.metadata().ok().map(|found| found.attr().ino),
        Content::Host(_) => None,
    };
    let place = place.map_or(Location::Superblock, Location::Inode);
    Error::corrupt(
        place,
        "its extents have more data than the volume has blocks",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Copies a file that was longer when it was found; returns the copy.
    fn shrunk(found: u64, fill: impl FnOnce(&std::fs::File) -> io::Result<()>) -> Vec<u8> {
        let name = format!("extant-shrunk-{}-{found}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let file = file.open(&path).unwrap();
        fill(&file).unwrap();
        let fs = crate::testing::filesystem(16 << 20).unwrap();
        let to = fs.create("/copy").unwrap();
        let mut copy = TreeCopy::new(Side::Host, Side::Volume(&fs), None);
        let (from, to) = (Content::Host(file), Content::Volume(to));
        let copied = copy.content((&from, &path), (&to, Path::new("/copy")), found);
        std::fs::remove_file(&path).unwrap();
        copied.unwrap();
        let content = fs.read("/copy").unwrap();
        assert_eq!(copy.bytes, content.len() as u64);
        content
    }

    #[test]
    fn a_file_that_shrinks_gives_a_shorter_copy() {
        assert_eq!(
            shrunk(1 << 20, |file| file.write_all_at(b"left", 0)),
            b"left"
        );
        // To a hole, with less of it, and to nothing.
        assert_eq!(shrunk(1 << 21, |file| file.set_len(5000)), [0; 5000]);
        assert_eq!(shrunk(1 << 22, |_| Ok(())), b"");
        // What is as long as it was, with a hole at its end.
        let whole = shrunk(1 << 17, |file| {
            file.write_all_at(b"data", 0)?;
            file.set_len(1 << 17)
        });
        assert_eq!((whole.len(), &whole[..4]), (1 << 17, &b"data"[..]));
    }
}
