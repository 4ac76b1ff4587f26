//! Names through the cache of names ([`Fs::names`]): asking it, and filling it.
//!
//! Its crate has the rules, and argues why they are enough. Here they are kept like this:
//!
//! - **Fill.** [`enter`] and [`number`] put what a directory says while its `lock` is held.
//! - **Forget.** `dir::insert`, `dir::remove` and `dir::retarget` forget the name before they
//!   change the directory, so no caller can leave it out. A rename changes two names, and forgets
//!   both first ([`forget`]). The operation then enters what it has made.
//! - **Validate.** [`find`] takes a reference to an inode in memory and asks for its ticket. An
//!   inode that has to be read is read under the directory's `lock` only: without it the number may
//!   be free, or be given to a new inode at this moment.
//!
//! An entry has the inode's generation. On a hostile image two directories may share a block, so
//! that a name goes without its directory's change; the cache then never shows the next file that
//! has the number.
//!
//! "." and "..", and directories that are removed, are not in the cache.

use std::sync::Arc;

use extant_disk::dirent::FileType;
use extant_name_cache::{Entry, Target, Ticket};
use extant_units::Ino;

use super::child::child;
use super::name_checks::{check_length, is_dot};
use crate::dir;
use crate::inode::{ExclusiveInode, Inode, InodeRef, LockedInode};
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;

/// What the cache says of a name.
pub(super) enum Known {
    /// It leads to this inode.
    Inode(InodeRef),
    /// The directory does not have it.
    Absent,
    /// The answer needs the directory's lock.
    Unsure,
}

/// What is known of `name` in `dir`, without a lock of the directory.
pub(super) fn find(fs: &Fs, dir: &Inode, name: &[u8]) -> Known {
    match get(fs, dir, name) {
        None => Known::Unsure,
        Some((Entry::Absent, _)) => {
            fs.stats.name_negative_hits.bump();
            Known::Absent
        }
        Some((Entry::Present(to), ticket)) => match validated(fs, to, ticket) {
            Some(inode) => {
                fs.stats.name_hits.bump();
                Known::Inode(inode)
            }
            None => Known::Unsure,
        },
    }
}

/// The inode that `names`, from the root on, lead to, if each of them is known, the inode is in
/// memory, and no symbolic link has to be followed; the last one is, with `follow`.
pub(crate) fn find_path<'a>(
    fs: &Fs,
    names: impl Iterator<Item = &'a [u8]>,
    follow: bool,
) -> Option<InodeRef> {
    let mut names = names.peekable();
    let mut count = 0;
    let mut dir = Ino::ROOT;
    let mut above: Option<Ticket> = None;
    while let Some(name) = names.next() {
        if is_dot(name) || check_length(name).is_err() {
            return None;
        }
        let (Entry::Present(to), ticket) = fs.names.get(dir, name)? else {
            return None;
        };
        count += 1;
        // The way to `dir` held when the name in it was read.
        if above.is_some_and(|above| !fs.names.holds(&above)) {
            return None;
        }
        let kind = kind_of(to);
        if names.peek().is_none() {
            if kind == Some(FileKind::Symlink) && follow {
                return None;
            }
            let inode = validated(fs, to, ticket)?;
            fs.stats.lookups.add(count);
            fs.stats.name_hits.add(count);
            return Some(inode);
        }
        if kind != Some(FileKind::Directory) {
            return None;
        }
        (dir, above) = (to.ino, Some(ticket));
    }
    fs.inodes.in_memory(Ino::ROOT)
}

/// The inode number that `name` leads to.
pub(super) fn number(fs: &Fs, dir: LockedInode<'_>, name: &[u8]) -> Result<Option<Ino>> {
    match get(fs, &dir, name) {
        Some((Entry::Absent, _)) => {
            fs.stats.name_negative_hits.bump();
            Ok(None)
        }
        Some((Entry::Present(to), _)) => {
            fs.stats.name_hits.bump();
            Ok(Some(to.ino))
        }
        None => search(fs, dir, name),
    }
}

/// The inode that `name` leads to.
pub(super) fn locked(fs: &Arc<Fs>, dir: LockedInode<'_>, name: &[u8]) -> Result<Option<InodeRef>> {
    if let Some((entry, _)) = get(fs, &dir, name) {
        let Entry::Present(to) = entry else {
            fs.stats.name_negative_hits.bump();
            return Ok(None);
        };
        let inode = child(fs, dir, to.ino)?;
        if inode.generation == to.generation {
            fs.stats.name_hits.bump();
            return Ok(Some(inode));
        }
        // The number was used again although the name was not removed: damage.
    }
    let Some(ino) = search(fs, dir, name)? else {
        return Ok(None);
    };
    let inode = child(fs, dir, ino)?;
    enter(fs, dir, name, &inode);
    Ok(Some(inode))
}

/// Enters that `name` leads to `inode`. The caller has found or made the entry under the lock that
/// `dir` proves.
pub(super) fn enter(fs: &Fs, dir: LockedInode<'_>, name: &[u8], inode: &Inode) {
    let target = Target {
        ino: inode.ino,
        generation: inode.generation,
        kind: inode.kind.file_type() as u8,
    };
    put(fs, dir, name, Entry::Present(target));
}

/// Forgets `name`.
pub(super) fn forget(fs: &Fs, dir: ExclusiveInode<'_>, name: &[u8]) {
    fs.names.forget(dir.ino, name);
}

fn get(fs: &Fs, dir: &Inode, name: &[u8]) -> Option<(Entry, Ticket)> {
    if dir.kind != FileKind::Directory || dir.is_unlinked() || is_dot(name) {
        return None;
    }
    fs.names.get(dir.ino, name)
}

/// Searches the directory itself. A missing name is entered as such.
fn search(fs: &Fs, dir: LockedInode<'_>, name: &[u8]) -> Result<Option<Ino>> {
    fs.stats.name_misses.bump();
    let found = dir::lookup(fs, dir, name)?;
    if found.is_none() {
        put(fs, dir, name, Entry::Absent);
    }
    Ok(found)
}

fn put(fs: &Fs, dir: LockedInode<'_>, name: &[u8], entry: Entry) {
    if !is_dot(name) && fs.names.put(dir.ino, name, entry) {
        fs.stats.name_evictions.bump();
    }
}

/// A reference to `to`, if it is in memory and the entry still held when the reference was taken.
fn validated(fs: &Fs, to: Target, ticket: Ticket) -> Option<InodeRef> {
    let inode = fs.inodes.in_memory(to.ino)?;
    (inode.generation == to.generation && fs.names.holds(&ticket)).then_some(inode)
}

fn kind_of(to: Target) -> Option<FileKind> {
    FileKind::from_file_type(FileType::from_raw(to.kind))
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::namei;
    use crate::test_support::test_mount::TestFs;
    use crate::types::{Cred, RenameFlags};

    fn rename(fs: &TestFs, from: &str, to: &str) {
        let root = fs.root();
        let (from, to) = ((&root, from.as_bytes()), (&root, to.as_bytes()));
        namei::rename(fs, from, to, RenameFlags::empty(), &Cred::root()).unwrap();
    }

    /// Between a look at an entry and the reference to its inode the name may go.
    #[test]
    fn an_inode_is_given_out_while_its_entry_holds() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let _file = fs.create("old");
        let Some((Entry::Present(to), ticket)) = get(&fs, &fs.root(), b"old") else {
            panic!("a new name is known");
        };
        assert!(validated(&fs, to, ticket).is_some());
        rename(&fs, "old", "new");
        assert!(validated(&fs, to, ticket).is_none());
    }

    /// The path led to the file before the rename, which comes between its two names, and to
    /// nothing after it.
    #[test]
    fn a_path_is_found_at_once_only_if_all_of_it_still_holds() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let dir = fs.mkdir("dir");
        let file = namei::create(&fs, &dir, b"file", 0o644, &Cred::root()).unwrap();
        let find = |moves: bool| {
            let names = [&b"dir"[..], b"file"].into_iter();
            let names = names.inspect(|name| {
                if moves && *name == b"file" {
                    rename(&fs, "dir", "moved");
                }
            });
            find_path(&fs, names, true)
        };
        assert!(find(false).is_some_and(|found| found.ino == file.ino));
        assert!(find(true).is_none());
    }
}
