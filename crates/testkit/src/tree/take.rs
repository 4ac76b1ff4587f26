//! Taking a tree down. A stack instead of recursion, so that depth is no limit.

use super::Tree;
use super::entry::{Entry, EntryKind, Nanos};
use crate::content::hash_file;
use crate::{Context, Result};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

impl Tree {
    /// Takes down everything below `root`, which must be a directory.
    pub fn take(root: &Path) -> Result<Tree> {
        let mut entries = BTreeMap::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(rel) = todo.pop() {
            let full = at(root, &rel);
            let meta = std::fs::symlink_metadata(&full).context(|| full.display())?;
            if meta.is_dir() {
                for e in std::fs::read_dir(&full).context(|| full.display())? {
                    let e = e.context(|| format!("readdir {}", full.display()))?;
                    todo.push(rel.join(e.file_name()));
                }
            }
            let entry = describe(&full, &meta)?;
            entries.insert(rel, entry);
        }
        let mut tree = Tree { entries };
        tree.group_links();
        tree.hash_contents(root)?;
        Ok(tree)
    }

    fn group_links(&mut self) {
        let mut first: HashMap<u64, PathBuf> = HashMap::new();
        for (path, e) in &mut self.entries {
            let shared = e.nlink > 1 && e.kind != EntryKind::Dir;
            e.first_link = match shared {
                true => first.entry(e.ino).or_insert_with(|| path.clone()).clone(),
                false => path.clone(),
            };
        }
    }

    fn hash_contents(&mut self, root: &Path) -> Result<()> {
        for (path, e) in &mut self.entries {
            if let EntryKind::File { hash, .. } = &mut e.kind {
                *hash = hash_file(&at(root, path))?;
            }
        }
        Ok(())
    }
}

fn at(root: &Path, rel: &Path) -> PathBuf {
    // `join("")` would add a slash, which follows a symlink.
    if rel.as_os_str().is_empty() {
        root.to_path_buf()
    } else {
        root.join(rel)
    }
}

fn describe(path: &Path, m: &Metadata) -> Result<Entry> {
    let t = m.file_type();
    let kind = if t.is_file() {
        EntryKind::File {
            size: m.len(),
            hash: 0,
        }
    } else if t.is_dir() {
        EntryKind::Dir
    } else if t.is_symlink() {
        EntryKind::Symlink(std::fs::read_link(path).context(|| path.display())?)
    } else if t.is_fifo() {
        EntryKind::Fifo
    } else if t.is_socket() {
        EntryKind::Socket
    } else if t.is_char_device() {
        EntryKind::Char(m.rdev())
    } else {
        EntryKind::Block(m.rdev())
    };
    Ok(Entry {
        kind,
        mode: m.mode() & 0o7777,
        uid: m.uid(),
        gid: m.gid(),
        nlink: m.nlink(),
        mtime: nanos(m.mtime(), m.mtime_nsec()),
        atime: nanos(m.atime(), m.atime_nsec()),
        ctime: nanos(m.ctime(), m.ctime_nsec()),
        ino: m.ino(),
        blocks: m.blocks(),
        xattrs: xattrs(path).context(|| format!("xattrs of {}", path.display()))?,
        first_link: PathBuf::new(),
    })
}

fn nanos(seconds: i64, nanoseconds: i64) -> Nanos {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

fn xattrs(path: &Path) -> Result<BTreeMap<OsString, Vec<u8>>> {
    let mut names = vec![0u8; 65536];
    let n = match rustix::fs::llistxattr(path, &mut names) {
        Ok(n) => n,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e.into()),
    };
    names.truncate(n);
    let mut all = BTreeMap::new();
    for name in names.split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let name = OsString::from_vec(name.to_vec());
        let mut value = vec![0u8; 65536];
        let n = rustix::fs::lgetxattr(path, &name, &mut value)
            .context(|| name.to_string_lossy().into_owned())?;
        value.truncate(n);
        all.insert(name, value);
    }
    Ok(all)
}
