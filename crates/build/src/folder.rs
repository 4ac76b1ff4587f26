//! A folder of the host as a source.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use extant_archive::Timestamp;
use extant_disk::file_kind::FileKind;
use extant_units::{exact_u16, exact_u32};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, SeekFrom, Stat, lgetxattr, llistxattr, major, minor, open, seek,
    stat, statat,
};
use rustix::io::Errno;

use crate::attrs::Named;
use crate::entry_rules::{Entry, EntryRules, device};
use crate::error::{At, Error, Result};
use crate::origin::{Origin, folder_data};
use crate::parts::{Part, find_parts};
use crate::placer::Placer;
use crate::stamp::Stamp;
use crate::text::TextId;
use crate::tree::{MAX_ENTRIES, Node, NodeId};

/// The most bytes of a file's names of attributes, and of one value: what Linux passes on.
const MAX_XATTR: usize = 1 << 16;
/// Bytes that are asked for first. Linux allocates as many as a caller asks for, and most files
/// have no attributes.
const SHORT_XATTR: usize = 512;

/// The beginning of names that Linux shows to root alone.
const TRUSTED: &[u8] = b"trusted.";

/// The device and inode of a file of the host.
pub(crate) type FileKey = (u64, u64);

/// A folder that is being read.
pub(crate) struct FolderScan<'a, 'b> {
    placer: &'a mut Placer<'b>,
    rules: &'a EntryRules<'a>,
    /// The source's number.
    origin: u16,
    /// Files that are no part of it: the image that is built.
    skipped: &'a [FileKey],
    /// Files with several names.
    linked: HashMap<FileKey, NodeId>,
    dirs: Vec<(u32, TextId)>,
    stamps: HashMap<u64, Stamp>,
    buf: Vec<u8>,
}

/// A directory that is still to be read: its path, its path in the volume, and its number.
type Pending = (PathBuf, Vec<u8>, u32);

impl<'a, 'b> FolderScan<'a, 'b> {
    pub(crate) fn new(
        placer: &'a mut Placer<'b>,
        rules: &'a EntryRules<'a>,
        origin: u16,
        skipped: &'a [FileKey],
    ) -> Self {
        Self {
            placer,
            rules,
            origin,
            skipped,
            linked: HashMap::new(),
            dirs: Vec::new(),
            stamps: HashMap::new(),
            buf: vec![0; MAX_XATTR],
        }
    }

    /// Reads all of `root`.
    ///
    /// # Errors
    /// Those of the host; entries that no volume can have.
    pub(crate) fn all(mut self, root: &Path) -> Result<Origin> {
        let empty = self.placer.tree.store_text(b"")?;
        self.dirs.push((0, empty));
        let found = stat(root).at(root)?;
        if kind_of(&found) != Some(FileKind::Directory) {
            return Err(Error::at(root.display(), "neither a folder nor an archive"));
        }
        self.entry(root, b"/", 0, &found)?;
        let mut pending: Vec<Pending> = vec![(root.to_path_buf(), Vec::new(), 0)];
        while let Some((path, inside, number)) = pending.pop() {
            let from = pending.len();
            self.directory(&path, &inside, number, &mut pending)?;
            // The first of them is read next, as in a walk.
            pending[from..].reverse();
        }
        Ok(Origin::Folder {
            root: root.to_path_buf(),
            dirs: self.dirs,
            stamps: self.stamps,
        })
    }

    fn directory(
        &mut self,
        path: &Path,
        inside: &[u8],
        number: u32,
        pending: &mut Vec<Pending>,
    ) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = Dir::new(open(path, flags, Mode::empty()).at(path)?).at(path)?;
        let mut names: Vec<CString> = Vec::new();
        while let Some(entry) = dir.read() {
            let entry = entry.at(path)?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() >= MAX_ENTRIES {
                return Err(Error::at(path.display(), "too many entries"));
            }
            names.push(entry.file_name().to_owned());
        }
        // The host has them in any order.
        names.sort_unstable();
        let at = dir.fd().at(path)?;
        let (mut host, mut inside) = (path.join("name"), inside.to_vec());
        let above = inside.len();
        for name in &names {
            let bytes = name.to_bytes();
            host.set_file_name(OsStr::from_bytes(bytes));
            inside.truncate(above);
            inside.push(b'/');
            inside.extend_from_slice(bytes);
            if self.rules.is_excluded(&inside) {
                continue;
            }
            let found = statat(at, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).at(&host)?;
            if self.skipped.contains(&(found.st_dev, found.st_ino)) {
                let what = format!("{}: the image itself, left out", host.display());
                self.rules.watch.warn(what);
                continue;
            }
            let made = self.entry(&host, &inside, number, &found)?;
            if made && kind_of(&found) == Some(FileKind::Directory) {
                let text = self.placer.tree.store_text(bytes)?;
                let own = exact_u32(self.dirs.len() as u64);
                self.dirs.push((number, text));
                pending.push((host.clone(), inside.clone(), own));
            }
        }
        Ok(())
    }

    /// Puts one entry into the tree; whether it did, and did not remove another.
    fn entry(&mut self, host: &Path, inside: &[u8], dir: u32, found: &Stat) -> Result<bool> {
        let key = (found.st_dev, found.st_ino);
        if let Some(&known) = self.linked.get(&key) {
            self.placer.add_name(inside, known)?;
            return Ok(true);
        }
        let shown = &host.display();
        let mut node = described(found).at(host)?;
        node.origin = self.origin;
        let mut parts = None;
        match node.kind() {
            FileKind::Regular => {
                let name = host.file_name().expect("an entry of a folder has a name");
                let name = self.placer.tree.store_text(name.as_bytes())?;
                node.data = folder_data(dir, name);
                if self.rules.stamped {
                    self.stamps.insert(node.data, Stamp::of_entry(found));
                }
                if i128::from(found.st_blocks) * 512 < i128::from(node.size) {
                    parts = Some(data_parts(host, node.size).at(host)?);
                }
            }
            FileKind::Symlink => {
                let target = host.read_link().at(host)?.into_os_string().into_vec();
                self.rules
                    .target(self.placer.tree, &mut node, &target, shown)?;
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                let numbers = found.st_rdev;
                node.data = device(major(numbers), minor(numbers), shown)?;
            }
            _ => {}
        }
        let entry = Entry {
            node,
            named: self.attributes(host).at(host)?,
            parts,
        };
        let Some(made) = self.rules.put(self.placer, inside, entry, shown)? else {
            return Ok(false);
        };
        if found.st_nlink > 1 && kind_of(found) != Some(FileKind::Directory) {
            self.linked.insert(key, made);
        }
        Ok(true)
    }

    /// The extended attributes of a file: those that the caller may see.
    fn attributes(&mut self, path: &Path) -> io::Result<Named> {
        let listed = with_room(&mut self.buf, |buf| llistxattr(path, buf));
        let len = match listed {
            Ok(0) | Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
            other => other?,
        };
        let names = self.buf[..len].split(|&byte| byte == 0);
        let names: Vec<Vec<u8>> = names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        let mut named = Vec::new();
        for name in names {
            if name.starts_with(TRUSTED) && !self.rules.options.trusted {
                let (path, name) = (path.display(), String::from_utf8_lossy(&name));
                let what = format!("{path}: {name} is left out: only root sees it");
                self.rules.watch.warn(what);
                continue;
            }
            let got = with_room(&mut self.buf, |buf| lgetxattr(path, name.as_slice(), buf));
            match got {
                Ok(len) => named.push((name, self.buf[..len].to_vec())),
                // Gone, or not for this caller.
                Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(named)
    }
}

/// The bytes that `call` fills: a short part of `buf`, or all of it where that is too short.
fn with_room(
    buf: &mut [u8],
    call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<usize> {
    match call(&mut buf[..SHORT_XATTR]) {
        Err(Errno::RANGE) => call(buf),
        other => other,
    }
}

/// The kind of a file; `None` where ext4 has none like it.
fn kind_of(found: &Stat) -> Option<FileKind> {
    FileKind::from_mode(mode_of(found))
}

fn mode_of(found: &Stat) -> u16 {
    exact_u16(u64::from(found.st_mode & 0xFFFF))
}

/// The metadata of a file on the host.
///
/// # Errors
/// It says what no file has.
fn described(found: &Stat) -> io::Result<Node> {
    let kind = kind_of(found)
        .ok_or_else(|| io::Error::other("a file of a kind that ext4 does not know"))?;
    let time = Timestamp {
        secs: found.st_mtime,
        nanos: u32::try_from(found.st_mtime_nsec).map_err(io::Error::other)?,
    };
    let size = match kind {
        FileKind::Regular => u64::try_from(found.st_size).map_err(io::Error::other)?,
        _ => 0,
    };
    Ok(Node {
        mode: mode_of(found),
        uid: found.st_uid,
        gid: found.st_gid,
        size,
        // Reading changes access times: they would differ with each build.
        mtime: time,
        atime: time,
        ..Node::default()
    })
}

/// The parts of a file that the host has data for.
fn data_parts(path: &Path, size: u64) -> io::Result<Vec<Part>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    find_parts(size, |at| {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(None),
            start => start?,
        };
        Ok(Some((start, seek(&file, SeekFrom::Hole(start))?)))
    })
}
