//! The headers of an archive as a tree; the contents stay where they are.
//!
//! # Invariants
//! Names never leave the tree: `..` in one is refused, and links on the way of a name are followed
//! within the tree. What comes later replaces what came before, but for directories.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use extant::sides::{Attributes, Id, Xattr};
use extant::{FileKind, Timestamp};
use extant_archive::{Member, Piece, Reader, Window, acl, kind};

use crate::failure::Failure;
use crate::output::device_number;
use crate::owner;

/// The most entries: each takes some hundred bytes.
const MAX_ENTRIES: usize = 1 << 22;
/// Links followed on the way to one name, as in Linux.
const MAX_LINKS: usize = 40;
/// Names in links that are followed in all: a short archive can ask for long ways.
const MAX_LINKED: usize = 1 << 26;
/// The longest name or link, as in Linux.
const LONGEST: usize = 4095;
/// The most bytes of all links, pieces and attributes.
const MAX_MEMORY: usize = 1 << 30;
/// The access ACL among attributes, and the bytes of one without names: a version, three entries.
const ACCESS: &[u8] = acl::KINDS[0].1;
const PLAIN_ACL: usize = 4 + 3 * 8;
/// The position of the magic of ustar, pax and GNU's format, and its beginning.
const MAGIC_AT: u64 = 257;
const MAGIC: [u8; 5] = *b"ustar";

/// An archive, by its headers.
pub(crate) struct Archive {
    path: PathBuf,
    file: File,
    /// The first is the top.
    entries: Vec<Entry>,
    /// Names in links that were followed.
    linked: usize,
    /// Bytes of links, pieces and attributes.
    memory: usize,
}

/// One file of an archive.
pub(super) struct Entry {
    pub(super) attributes: Attributes,
    pub(super) xattrs: Vec<Xattr>,
    /// The target of a link.
    pub(super) link: Vec<u8>,
    /// The data of a file between its holes, each with its position in the archive.
    pub(super) pieces: Vec<(Piece, u64)>,
    /// The entries of a directory.
    pub(super) names: BTreeMap<OsString, usize>,
    /// The archive does not describe it: a directory above what it has.
    pub(super) implied: bool,
    parent: usize,
}

/// Returns whether a file holds an archive that is not compressed.
fn is_archive(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    let read = file.read_exact_at(&mut magic, MAGIC_AT);
    read.is_ok() && magic == MAGIC
}

impl Archive {
    /// Reads the headers of the file at `path`; `None` if it is no archive.
    pub(crate) fn open(path: &Path) -> Result<Option<Archive>, Failure> {
        let file = File::open(path)?;
        if !is_archive(&file) {
            return Ok(None);
        }
        let len = file.metadata()?.len();
        let mut archive = Archive {
            path: path.to_owned(),
            file: file.try_clone()?,
            entries: vec![Entry::implied(0)],
            linked: 0,
            memory: 0,
        };
        let mut reader = Reader::new(Window::new(&file, 0..len));
        let broken = |error| Failure::at("not an archive that can be read", error);
        while let Some(member) = reader.next_member().map_err(broken)? {
            let at = reader.input().position();
            let added = archive.add(&member, at);
            added.map_err(|failure| Failure::at(String::from_utf8_lossy(&member.name), failure))?;
        }
        Ok(Some(archive))
    }

    /// The path of the archive.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The entry of a number; the top is 0.
    pub(super) fn entry(&self, at: usize) -> Result<&Entry, Failure> {
        let entry = self.entries.get(at);
        entry.ok_or_else(|| Failure::new(extant::Error::NotFound))
    }

    fn push(&mut self, mut entry: Entry) -> Result<usize, Failure> {
        let at = self.entries.len();
        if at >= MAX_ENTRIES {
            return Err(Failure::new(format!("more than {MAX_ENTRIES} entries")));
        }
        entry.attributes.id.inode = at as u64;
        self.entries.push(entry);
        Ok(at)
    }

    fn add(&mut self, member: &Member, content: u64) -> Result<(), Failure> {
        if member.kind == kind::VOLUME {
            return Ok(());
        }
        if let Some(damage) = member.damage {
            return Err(Failure::new(damage));
        }
        if member.name.len() > LONGEST || member.link.len() > LONGEST {
            let what = format!("a name or a link of more than {LONGEST} bytes");
            return Err(Failure::new(what));
        }
        let names = names(&member.name)?;
        let Some((name, above)) = names.split_last() else {
            let top = Entry::of(member, content, 0)?;
            if top.attributes.kind != FileKind::Directory {
                return Err(Failure::new(extant::Error::NotDir));
            }
            self.count_memory(&top)?;
            if let Some(known) = self.entries.first_mut() {
                known.describe(top);
            }
            return Ok(());
        };
        let dir = self.walk(above, true)?;
        let target = match member.kind == kind::LINK {
            true => {
                let names = self::names(&member.link)?;
                let (last, above) = names.split_last().ok_or(extant::Error::IsDir)?;
                let dir = self.walk(above, false)?;
                let found = self.lookup(dir, last)?.ok_or(extant::Error::NotFound)?;
                if self.entry(found)?.attributes.kind == FileKind::Directory {
                    return Err(Failure::new(extant::Error::IsDir));
                }
                found
            }
            false => {
                let new = Entry::of(member, content, dir)?;
                self.count_memory(&new)?;
                let known = self.lookup(dir, name)?;
                let is_dir = new.attributes.kind == FileKind::Directory;
                if let Some(known) = known.filter(|_| is_dir)
                    && let Some(known) = self.directory(known, dir)?
                {
                    known.describe(new);
                    return Ok(());
                }
                self.push(new)?
            }
        };
        self.link(dir, name.to_os_string(), target)
    }

    /// Counts the memory that `entry` takes beside its own size.
    fn count_memory(&mut self, entry: &Entry) -> Result<(), Failure> {
        let of_xattr = |(name, value): &Xattr| size_of::<Xattr>() + name.len() + value.len();
        self.memory += entry.link.len() + entry.pieces.len() * size_of::<(Piece, u64)>();
        self.memory += entry.xattrs.iter().map(of_xattr).sum::<usize>();
        if self.memory > MAX_MEMORY {
            return Err(Failure::new(
                "its links and attributes take more than 1 GiB",
            ));
        }
        Ok(())
    }

    /// Lets a name in a directory lead to an entry.
    fn link(&mut self, dir: usize, name: OsString, to: usize) -> Result<(), Failure> {
        let dir = self.entries.get_mut(dir).ok_or(extant::Error::NotFound)?;
        let before = dir.names.insert(name, to);
        if let Some(entry) = self.entries.get_mut(to) {
            entry.attributes.links += 1;
        }
        if let Some(entry) = before.and_then(|at| self.entries.get_mut(at)) {
            entry.attributes.links -= 1;
        }
        Ok(())
    }

    /// The directory that `at`, which is in `dir`, is or leads to.
    fn directory(&mut self, at: usize, dir: usize) -> Result<Option<&mut Entry>, Failure> {
        let entry = self.entry(at)?;
        let at = match entry.attributes.kind {
            FileKind::Directory => at,
            FileKind::Symlink => {
                let said = entry.link.clone();
                match self.follow(dir, &said) {
                    Ok(at) => at,
                    // A link that leads nowhere: the directory takes its place.
                    Err(_) => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(self.entries.get_mut(at))
    }

    fn lookup(&self, dir: usize, name: &OsStr) -> Result<Option<usize>, Failure> {
        Ok(self.entry(dir)?.names.get(name).copied())
    }

    /// The directory that a link in `dir` leads to.
    fn follow(&mut self, dir: usize, link: &[u8]) -> Result<usize, Failure> {
        let start = if link.starts_with(b"/") { 0 } else { dir };
        self.walk_from(start, said(link), false)
    }

    fn walk(&mut self, names: &[&OsStr], make: bool) -> Result<usize, Failure> {
        let names = names.iter().map(|name| name.to_os_string());
        self.walk_from(0, names.collect(), make)
    }

    /// Goes down from `at`, through links; makes the directories that are not there.
    fn walk_from(
        &mut self,
        mut at: usize,
        mut names: VecDeque<OsString>,
        make: bool,
    ) -> Result<usize, Failure> {
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if name == ".." {
                at = self.entry(at)?.parent;
                continue;
            }
            let Some(next) = self.lookup(at, &name)? else {
                if !make {
                    return Err(Failure::new(extant::Error::NotFound));
                }
                let made = self.push(Entry::implied(at))?;
                self.link(at, name, made)?;
                at = made;
                continue;
            };
            let entry = self.entry(next)?;
            match entry.attributes.kind {
                FileKind::Directory => at = next,
                FileKind::Symlink => {
                    if entry.link.starts_with(b"/") {
                        at = 0;
                    }
                    let said = said(&entry.link);
                    links += 1;
                    self.linked += 1 + said.len();
                    if links > MAX_LINKS || self.linked > MAX_LINKED {
                        return Err(Failure::new("too many links on its path"));
                    }
                    for part in said.into_iter().rev() {
                        names.push_front(part);
                    }
                }
                _ => return Err(Failure::new(extant::Error::NotDir)),
            }
        }
        Ok(at)
    }
}

/// The names of a path in an archive.
fn names(path: &[u8]) -> Result<Vec<&OsStr>, Failure> {
    let names = path.split(|&byte| byte == b'/').map(OsStr::from_bytes);
    let names: Vec<&OsStr> = names
        .filter(|name| !name.is_empty() && *name != ".")
        .collect();
    match names.iter().any(|name| *name == "..") {
        true => Err(Failure::new("a name with \"..\" in it")),
        false => Ok(names),
    }
}

/// The names that a link says.
fn said(link: &[u8]) -> VecDeque<OsString> {
    let names = link.split(|&byte| byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    names
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect()
}

impl Entry {
    /// A directory that the archive does not describe.
    fn implied(parent: usize) -> Entry {
        Entry {
            attributes: Attributes {
                kind: FileKind::Directory,
                perm: 0o755,
                uid: 0,
                gid: 0,
                size: 0,
                links: 0,
                rdev: 0,
                atime: Timestamp::default(),
                mtime: Timestamp::default(),
                id: Id {
                    device: 0,
                    inode: 0,
                },
            },
            xattrs: Vec::new(),
            link: Vec::new(),
            pieces: Vec::new(),
            names: BTreeMap::new(),
            implied: true,
            parent,
        }
    }

    fn of(member: &Member, content: u64, parent: usize) -> Result<Entry, Failure> {
        let kind = match member.kind {
            kind::REGULAR => FileKind::Regular,
            kind::SYMLINK => FileKind::Symlink,
            kind::CHAR => FileKind::CharDevice,
            kind::BLOCK => FileKind::BlockDevice,
            kind::DIRECTORY => FileKind::Directory,
            kind::FIFO => FileKind::Fifo,
            other => {
                let what = format!("of type {:?}, not known", char::from(other));
                return Err(Failure::new(what));
            }
        };
        let time = |time: extant_archive::Timestamp| Timestamp {
            secs: time.secs,
            nanos: time.nanos,
        };
        let mut entry = Entry::implied(parent);
        entry.implied = false;
        entry.attributes = Attributes {
            kind,
            perm: u16::try_from(member.mode & 0o7777).unwrap_or(0),
            uid: member.uid,
            gid: member.gid,
            size: member.size,
            rdev: device_number(member.major, member.minor),
            atime: time(member.atime.unwrap_or(member.mtime)),
            mtime: time(member.mtime),
            ..entry.attributes
        };
        entry.xattrs.clone_from(&member.xattrs);
        if kind != FileKind::Symlink {
            acl::add_missing(member, &mut entry.xattrs, &owner::Here)?;
            // One of three entries says what the permissions say: no file system keeps it.
            let is_plain = |name: &[u8], value: &[u8]| name == ACCESS && value.len() == PLAIN_ACL;
            entry.xattrs.retain(|(name, value)| !is_plain(name, value));
        }
        entry.link.clone_from(&member.link);
        let whole = [Piece {
            start: 0,
            len: member.size,
        }];
        let mut stored = content;
        for piece in member.pieces.as_deref().unwrap_or(&whole) {
            if piece.len > 0 && kind == FileKind::Regular {
                entry.pieces.push((*piece, stored));
                // Lengths of an archive add up to anything; reading past its end fails.
                stored = stored.saturating_add(piece.len);
            }
        }
        Ok(entry)
    }

    /// Takes over what `new` says of the same directory.
    fn describe(&mut self, new: Entry) {
        let id = self.attributes.id;
        self.attributes = Attributes {
            id,
            ..new.attributes
        };
        self.xattrs = new.xattrs;
        self.implied = new.implied;
    }
}
