//! One set of calls on names, answered by a Linux mount and by a volume, to be compared.
//!
//! Every object is identified by its permission bits, which the caller makes unique.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use extant_engine::{Cred, Error, FileKind, Node, RenameFlags, Volume};
use rustix::fs::{CWD, Mode};

/// An errno, or nothing.
pub(crate) type Answer = Result<(), i32>;

/// An object at a path: kind, permission bits, links (0 for directories on an index, which count
/// differently), target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Thing {
    pub(crate) kind: FileKind,
    pub(crate) perm: u32,
    pub(crate) links: u64,
    pub(crate) target: Vec<u8>,
}

pub(crate) type Snapshot = BTreeMap<String, Thing>;

/// Calls on names. Paths are relative to the root and have no dots.
pub(crate) trait World {
    fn mkdir(&self, path: &str, perm: u16) -> Answer;
    fn create(&self, path: &str, perm: u16) -> Answer;
    fn fifo(&self, path: &str, perm: u16) -> Answer;
    fn symlink(&self, target: &str, path: &str) -> Answer;
    fn link(&self, old: &str, new: &str) -> Answer;
    fn unlink(&self, path: &str) -> Answer;
    fn rmdir(&self, path: &str) -> Answer;
    fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Answer;
    fn snapshot(&self, path: &str) -> Snapshot;
}

/// A directory of the host.
pub(crate) struct Linux(pub(crate) PathBuf);

impl Linux {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

fn answer<T>(result: std::io::Result<T>) -> Answer {
    result.map(drop).map_err(|e| e.raw_os_error().unwrap_or(0))
}

fn errno<T>(result: rustix::io::Result<T>) -> Answer {
    result.map(drop).map_err(rustix::io::Errno::raw_os_error)
}

impl World for Linux {
    fn mkdir(&self, path: &str, perm: u16) -> Answer {
        errno(rustix::fs::mkdir(self.at(path), Mode::empty()))?;
        answer(fs::set_permissions(
            self.at(path),
            fs::Permissions::from_mode(perm.into()),
        ))
    }

    fn create(&self, path: &str, perm: u16) -> Answer {
        answer(fs::File::create_new(self.at(path)))?;
        answer(fs::set_permissions(
            self.at(path),
            fs::Permissions::from_mode(perm.into()),
        ))
    }

    fn fifo(&self, path: &str, perm: u16) -> Answer {
        let kind = rustix::fs::FileType::Fifo;
        errno(rustix::fs::mknodat(
            CWD,
            self.at(path),
            kind,
            Mode::empty(),
            0,
        ))?;
        answer(fs::set_permissions(
            self.at(path),
            fs::Permissions::from_mode(perm.into()),
        ))
    }

    fn symlink(&self, target: &str, path: &str) -> Answer {
        errno(rustix::fs::symlink(target, self.at(path)))
    }

    fn link(&self, old: &str, new: &str) -> Answer {
        answer(fs::hard_link(self.at(old), self.at(new)))
    }

    fn unlink(&self, path: &str) -> Answer {
        errno(rustix::fs::unlink(self.at(path)))
    }

    fn rmdir(&self, path: &str) -> Answer {
        errno(rustix::fs::rmdir(self.at(path)))
    }

    fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Answer {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        errno(rustix::fs::renameat_with(
            CWD,
            self.at(old),
            CWD,
            self.at(new),
            flags,
        ))
    }

    fn snapshot(&self, path: &str) -> Snapshot {
        let mut all = Snapshot::new();
        let mut todo = vec![(path.to_owned(), self.at(path))];
        while let Some((path, at)) = todo.pop() {
            for entry in fs::read_dir(at).unwrap() {
                let entry = entry.unwrap();
                let path = format!("{path}/{}", entry.file_name().to_str().unwrap());
                let meta = entry.metadata().unwrap();
                if meta.is_dir() {
                    todo.push((path.clone(), entry.path()));
                }
                all.insert(path, thing(&entry.path(), &meta));
            }
        }
        all
    }
}

fn thing(path: &Path, meta: &fs::Metadata) -> Thing {
    let kind = meta.file_type();
    let kind = match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_file() => FileKind::Regular,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_char_device() => FileKind::CharDevice,
        () => panic!("{kind:?}"),
    };
    Thing {
        kind,
        perm: meta.mode() & 0o7777,
        links: meta.nlink(),
        target: match kind {
            FileKind::Symlink => {
                use std::os::unix::ffi::OsStringExt as _;
                fs::read_link(path).unwrap().into_os_string().into_vec()
            }
            _ => Vec::new(),
        },
    }
}

/// A volume of ours.
pub(crate) struct Ours<'a>(pub(crate) &'a Volume);

impl Ours<'_> {
    fn find(&self, path: &str) -> Result<Node, Error> {
        let mut at = self.0.root()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            Self::walkable(&at)?;
            at = self.0.lookup(&at, name.as_bytes())?;
        }
        Ok(at)
    }

    /// The directory that `path` lies in, and the last name.
    fn place<'p>(&self, path: &'p str) -> Result<(Node, &'p [u8]), Error> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.find(dir)?;
        Self::walkable(&dir)?;
        Ok((dir, name.as_bytes()))
    }

    /// Refuses objects that no path may go through. Links lead nowhere in these worlds.
    fn walkable(node: &Node) -> Result<(), Error> {
        match node.kind() {
            FileKind::Directory => Ok(()),
            FileKind::Symlink => Err(Error::NotFound),
            _ => Err(Error::NotDir),
        }
    }

    fn with(&self, path: &str, run: impl FnOnce(&Node, &[u8]) -> Result<(), Error>) -> Answer {
        let done = self.place(path).and_then(|(dir, name)| run(&dir, name));
        done.map_err(|error| error.errno())
    }
}

impl World for Ours<'_> {
    fn mkdir(&self, path: &str, perm: u16) -> Answer {
        self.with(path, |dir, name| {
            self.0.mkdir(dir, name, perm, &Cred::root()).map(drop)
        })
    }

    fn create(&self, path: &str, perm: u16) -> Answer {
        self.with(path, |dir, name| {
            self.0.create(dir, name, perm, &Cred::root()).map(drop)
        })
    }

    fn fifo(&self, path: &str, perm: u16) -> Answer {
        self.with(path, |dir, name| {
            let made = self
                .0
                .mknod(dir, name, FileKind::Fifo, perm, 0, &Cred::root());
            made.map(drop)
        })
    }

    fn symlink(&self, target: &str, path: &str) -> Answer {
        self.with(path, |dir, name| {
            let target = target.as_bytes();
            self.0.symlink(dir, name, target, &Cred::root()).map(drop)
        })
    }

    fn link(&self, old: &str, new: &str) -> Answer {
        let node = self.find(old).map_err(|error| error.errno())?;
        self.with(new, |dir, name| {
            self.0.link(&node, dir, name, &Cred::root())
        })
    }

    fn unlink(&self, path: &str) -> Answer {
        self.with(path, |dir, name| self.0.unlink(dir, name))
    }

    fn rmdir(&self, path: &str) -> Answer {
        self.with(path, |dir, name| self.0.rmdir(dir, name))
    }

    fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Answer {
        self.with(old, |old_dir, old| {
            let (new_dir, new) = self.place(new)?;
            self.0
                .rename(old_dir, old, &new_dir, new, flags, &Cred::root())
        })
    }

    fn snapshot(&self, path: &str) -> Snapshot {
        let mut all = Snapshot::new();
        let mut todo = vec![(path.to_owned(), self.find(path).unwrap())];
        while let Some((path, dir)) = todo.pop() {
            for (name, ino) in super::list(self.0, &dir) {
                let path = format!("{path}/{}", str::from_utf8(&name).unwrap());
                let node = self.0.lookup(&dir, &name).unwrap();
                assert_eq!(node.ino().get(), ino, "{path}");
                let attr = self.0.getattr(&node).unwrap();
                let target = match attr.kind {
                    FileKind::Symlink => self.0.readlink(&node).unwrap(),
                    _ => Vec::new(),
                };
                let thing = Thing {
                    kind: attr.kind,
                    perm: attr.perm.into(),
                    links: attr.nlink.into(),
                    target,
                };
                if attr.kind == FileKind::Directory {
                    let up = self.0.lookup(&node, b"..").unwrap();
                    assert_eq!(up.ino(), dir.ino(), "{path}/..");
                    todo.push((path.clone(), node));
                }
                all.insert(path, thing);
            }
        }
        all
    }
}
