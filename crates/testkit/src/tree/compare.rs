//! Comparing two trees: every difference named, up to a readable number.

use super::Tree;
use super::entry::{Entry, EntryKind, Nanos};
use crate::{Result, bail};
use std::fmt::Debug;
use std::path::Path;

/// Differences shown before the rest is only counted.
const SHOWN: usize = 40;

/// Comparisons beyond kind, content, mode, owner, links, modification time and xattrs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compare {
    /// Two views of one image: inode numbers, change times, access times, allocated blocks as well.
    pub one_image: bool,
    /// Directories' modification times are left out (something was made or removed inside).
    pub skip_dir_times: bool,
    /// Modification times of the root itself are left out.
    pub skip_root: bool,
    /// Modification times count as e2fsprogs' driver shows them: in whole seconds, up to 2038.
    pub as_fuse2fs_shows: bool,
    /// Modification times may differ by so much: where they are kept in seconds, a mount and the
    /// kernel above it each have a second in which something changed.
    pub times_within: Nanos,
}

impl Tree {
    /// All differences, one line each: empty if the trees are equal.
    pub fn differences(&self, other: &Tree, how: Compare) -> Vec<String> {
        let mut out = Vec::new();
        for (path, a) in &self.entries {
            match other.entries.get(path) {
                None => out.push(format!("{}: only in the first", path.display())),
                Some(b) => {
                    let root = path.as_os_str().is_empty();
                    if !(root && how.skip_root) {
                        entry(path, a, b, how, &mut out);
                    }
                }
            }
        }
        for path in other
            .entries
            .keys()
            .filter(|p| !self.entries.contains_key(*p))
        {
            out.push(format!("{}: only in the second", path.display()));
        }
        out
    }

    /// An error that lists the differences, if there are any.
    pub fn expect_equal(&self, other: &Tree, how: Compare) -> Result<()> {
        let all = self.differences(other, how);
        if all.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = all.iter().take(SHOWN).map(String::as_str).collect();
        bail!("{} differences:\n{}", all.len(), shown.join("\n"));
    }
}

fn entry(path: &Path, a: &Entry, b: &Entry, how: Compare, out: &mut Vec<String>) {
    let mut differ = |what: &str, x: &dyn Debug, y: &dyn Debug| {
        out.push(format!("{}: {what}: {x:?} / {y:?}", path.display()));
    };
    if a.kind != b.kind {
        differ("kind or content", &a.kind, &b.kind);
    }
    if a.mode != b.mode {
        let (x, y) = (format!("{:o}", a.mode), format!("{:o}", b.mode));
        differ("mode", &x, &y);
    }
    if (a.uid, a.gid) != (b.uid, b.gid) {
        differ("owner", &(a.uid, a.gid), &(b.uid, b.gid));
    }
    if a.nlink != b.nlink {
        differ("links", &a.nlink, &b.nlink);
    }
    if a.first_link != b.first_link {
        differ("hard-link group", &a.first_link, &b.first_link);
    }
    if a.xattrs != b.xattrs {
        differ("xattrs", &a.xattrs, &b.xattrs);
    }
    let dir = a.kind == EntryKind::Dir;
    let time = |entry: &Entry| match how.as_fuse2fs_shows {
        false => entry.mtime,
        true => entry.mtime.div_euclid(1_000_000_000).min(i32::MAX.into()),
    };
    let apart = (time(a) - time(b)).abs();
    if apart > how.times_within && !(dir && how.skip_dir_times) {
        differ("mtime", &a.mtime, &b.mtime);
    }
    if how.one_image {
        if a.ino != b.ino {
            differ("inode number", &a.ino, &b.ino);
        }
        if a.ctime != b.ctime {
            differ("ctime", &a.ctime, &b.ctime);
        }
        if a.atime != b.atime {
            differ("atime", &a.atime, &b.atime);
        }
        if a.blocks != b.blocks {
            differ("allocated 512-byte units", &a.blocks, &b.blocks);
        }
    }
}
