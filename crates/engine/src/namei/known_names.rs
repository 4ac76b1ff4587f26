//! Names through the cache of names ([`Fs::names`]): asking it, and filling it.
//!
//! Its crate has the rules, and argues why they are enough. Here they are kept like this:
//!
//! - **Fill.** [`enter`] and [`number`] put what a directory says while its `lock` is held. A name
//!   that is about to be added is not put ([`find_vacancy`]): the operation enters it when it is.
//! - **Forget.** `dir::insert`, `dir::remove` and `dir::retarget` forget the name before they
//!   change the directory, so no caller can leave it out. A rename changes two names, and forgets
//!   both first ([`dir::forget`]). The operation then enters what it has made.
//! - **Validate.** [`find`] takes a reference to an inode in memory and asks for its ticket. An
//!   inode that has to be read is read under the directory's `lock` only: without it the number may
//!   be free, or be given to a new inode at this moment. [`stat_path`] may look at the record of an
//!   inode that is not in memory, and asks for the ticket after that: until then the name led to
//!   the inode, so its number was not free. It looks under the lock if the name is not known.
//!
//! An entry has the inode's generation. On a hostile image two directories may share a block, so
//! that a name goes without its directory's change; the cache then never shows the next file that
//! has the number.
//!
//! "." and "..", and directories that are removed, are not in the cache.

use std::iter::Peekable;
use std::sync::Arc;

use extant_disk::damage::LinkDamage;
use extant_disk::dirent::FileType;
use extant_failpoint::Failpoint;
use extant_name_cache::{Entry, Target, Ticket};
use extant_units::Ino;

use super::name_checks::{check_length, is_dot};
use crate::attr;
use crate::crypt::policies;
use crate::dir::{self, Vacancy};
use crate::inode::{ExclusiveInode, InodeFlags, LockedInode, Seen};
use crate::state::inode::{Inode, InodeRef};
use crate::types::error::{Error, Location, Result};
use crate::types::{Attr, FileKind};
use crate::volume::Fs;

/// Answer of the cache for a name.
pub(super) enum Known {
    /// It leads to this inode.
    Inode(InodeRef),
    /// The directory does not have it.
    Absent,
    /// The answer needs the directory's lock.
    Unsure,
}

/// Looks `name` up in `dir`, without a lock of the directory.
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

/// The end of a path whose names are known, but for the last one maybe.
struct PathEnd<'a> {
    /// The directory of the last name, and the ticket of the way to it; none for the root.
    dir: Ino,
    above: Option<Ticket>,
    name: &'a [u8],
    /// Target of the last name, if that is known.
    to: Option<(Target, Ticket)>,
    /// Names before the last.
    above_count: u64,
}

/// The inode that `names`, from the root on, lead to, if all but the last are known and no symbolic
/// link has to be followed; the last one is, with `follow`.
///
/// # Errors
/// Those of reading the inode.
pub(crate) fn find_path<'a>(
    fs: &Arc<Fs>,
    names: impl Iterator<Item = &'a [u8]>,
    follow: bool,
) -> Result<Option<InodeRef>> {
    let mut names = names.peekable();
    if names.peek().is_none() {
        return Ok(fs.inodes.in_memory(Ino::ROOT));
    }
    let Some(end) = end_of_path(fs, names, follow) else {
        return Ok(None);
    };
    if let Some((to, ticket)) = end.to
        && let Some(inode) = validated(fs, to, ticket)
    {
        note_path(fs, &end);
        fs.stats.name_hits.bump();
        return Ok(Some(inode));
    }
    let Some(dir) = directory(fs, &end) else {
        return Ok(None);
    };
    let found = {
        let shared = dir.lock_shared();
        locked(fs, shared.inode(), end.name)?
    };
    // What the name leads to was not known, or is another inode by now.
    let found = found.filter(|inode| !(follow && inode.kind == FileKind::Symlink));
    if found.is_some() {
        note_path(fs, &end);
    }
    Ok(found)
}

/// The attributes of what `names` lead to, as [`find_path`]. An inode that is not in memory stays
/// out of it, if its record is there.
///
/// # Errors
/// Those of reading the inode.
pub(crate) fn stat_path<'a>(
    fs: &Arc<Fs>,
    names: impl Iterator<Item = &'a [u8]>,
    follow: bool,
) -> Result<Option<Attr>> {
    let Some(end) = end_of_path(fs, names.peekable(), follow) else {
        return Ok(None);
    };
    if let Some((to, ticket)) = end.to {
        let attr = validated_attr(fs, to, ticket);
        if attr.is_some() {
            note_path(fs, &end);
            fs.stats.name_hits.bump();
        }
        return Ok(attr);
    }
    let Some(dir) = directory(fs, &end) else {
        return Ok(None);
    };
    let found = {
        let shared = dir.lock_shared();
        stat_locked(fs, shared.inode(), end.name)?
    };
    let found = found.filter(|attr| !(follow && attr.kind == FileKind::Symlink));
    if found.is_some() {
        note_path(fs, &end);
    }
    Ok(found)
}

/// The attributes of what `name` leads to, and enters the name, which was not known.
fn stat_locked(fs: &Arc<Fs>, dir: LockedInode<'_>, name: &[u8]) -> Result<Option<Attr>> {
    if dir.kind != FileKind::Directory || dir.is_unlinked() {
        return Ok(None);
    }
    let Some(ino) = search(fs, dir, name)? else {
        return Ok(None);
    };
    let known = match dir.flags().contains(InodeFlags::ENCRYPT) {
        true => None,
        false => peeked(fs, ino),
    };
    let attr = match known {
        Some(attr) => attr,
        None => {
            let inode = child(fs, dir, ino)?;
            check_policy(fs, dir, name, &inode)?;
            attr::getattr(fs, &inode)
        }
    };
    let target = Target {
        ino,
        generation: attr.generation,
        kind: attr.kind.file_type() as u8,
    };
    put(fs, dir, name, Entry::Present(target));
    Ok(Some(attr))
}

/// The attributes of inode `ino`, if it or its record is in memory.
fn peeked(fs: &Fs, ino: Ino) -> Option<Attr> {
    let show = |kind, core: &_| attr::stored(fs, ino, kind, core);
    Some(match fs.inodes.peek(fs, ino, show)? {
        Seen::Inode(inode) => attr::getattr(fs, &inode),
        Seen::Record(attr) => attr,
    })
}

/// The directory of the last name of a path, if it is in memory and the path still led to it when
/// the reference was taken.
fn directory(fs: &Fs, end: &PathEnd<'_>) -> Option<InodeRef> {
    let dir = fs.inodes.in_memory(end.dir)?;
    let held = end.above.is_none_or(|above| fs.names.holds(&above));
    held.then_some(dir)
}

/// Returns the end of `names`, from the root on. `None` if there is no name, or one of them is a
/// symbolic link that has to be followed, or is known to be missing, or one before the last is not
/// known.
fn end_of_path<'a>(
    fs: &Fs,
    mut names: Peekable<impl Iterator<Item = &'a [u8]>>,
    follow: bool,
) -> Option<PathEnd<'a>> {
    let mut above_count = 0;
    let mut dir = Ino::ROOT;
    let mut above: Option<Ticket> = None;
    while let Some(name) = names.next() {
        if is_dot(name) || check_length(name).is_err() {
            return None;
        }
        let last = names.peek().is_none();
        let mut end = PathEnd {
            dir,
            above,
            name,
            to: None,
            above_count,
        };
        let (to, ticket) = match fs.names.get(dir, name) {
            Some((Entry::Present(to), ticket)) => (to, ticket),
            None if last => return Some(end),
            None | Some((Entry::Absent, _)) => return None,
        };
        // The way to `dir` held when the name in it was read.
        if above.is_some_and(|above| !fs.names.holds(&above)) {
            return None;
        }
        let kind = kind_of(to);
        if last {
            end.to = Some((to, ticket));
            return (kind != Some(FileKind::Symlink) || !follow).then_some(end);
        }
        above_count += 1;
        if kind != Some(FileKind::Directory) {
            return None;
        }
        (dir, above) = (to.ino, Some(ticket));
    }
    None
}

/// Counts the lookups of a path that was found, and the hits above its last name.
fn note_path(fs: &Fs, end: &PathEnd<'_>) {
    fs.stats.lookups.add(end.above_count + 1);
    fs.stats.name_hits.add(end.above_count);
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

/// The vacancy of `name`, which is to be added; `None` if `dir` has it.
pub(super) fn find_vacancy<'a>(
    fs: &Fs,
    dir: ExclusiveInode<'a>,
    name: &'a [u8],
) -> Result<Option<Vacancy<'a>>> {
    match get(fs, &dir, name) {
        Some((Entry::Absent, _)) => {
            fs.stats.name_negative_hits.bump();
            Ok(Some(Vacancy::known(dir, name)))
        }
        Some((Entry::Present(_), _)) => {
            fs.stats.name_hits.bump();
            Ok(None)
        }
        None => {
            fs.stats.name_misses.bump();
            dir::find_vacancy(fs, dir, name)
        }
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
    check_policy(fs, dir, name, &inode)?;
    enter(fs, dir, name, &inode);
    Ok(Some(inode))
}

/// Fails for a directory or link that is not encrypted as all in `dir` has to be: it was put there
/// without the key. A file is noted as such, and refused when it is opened, as on Linux.
fn check_policy(fs: &Fs, dir: LockedInode<'_>, name: &[u8], inode: &Inode) -> Result<()> {
    if is_dot(name) || policies::is_permitted(fs, &dir, inode)? {
        return Ok(());
    }
    match inode.kind {
        FileKind::Regular => {
            inode.key.note_misplaced();
            Ok(())
        }
        _ => Err(Error::NotPermitted),
    }
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

fn get(fs: &Fs, dir: &Inode, name: &[u8]) -> Option<(Entry, Ticket)> {
    if dir.kind != FileKind::Directory || dir.is_unlinked() || is_dot(name) {
        return None;
    }
    if dir.flags().contains(InodeFlags::ENCRYPT) {
        // It has entries that say "absent", from before it was encrypted, at most.
        return None;
    }
    if !dir::folds(dir) {
        return fs.names.get(dir.ino, name);
    }
    let found = fs.names.get(dir.ino, &dir::cache_key(dir, name)?)?;
    // It counts if the directory still folds names.
    dir::folds(dir).then_some(found)
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
    if is_dot(name) {
        return;
    }
    if let Some(key) = dir::cache_key(&dir, name)
        && fs.names.put(dir.ino, &key, entry)
    {
        fs.stats.name_evictions.bump();
    }
}

/// A reference to `to`, if it is in memory and the entry still held when the reference was taken.
fn validated(fs: &Fs, to: Target, ticket: Ticket) -> Option<InodeRef> {
    let inode = fs.inodes.in_memory(to.ino)?;
    let holds = fs.names.holds(&ticket) || fs.tuning.failpoint.is(Failpoint::NameTicketIgnored);
    (inode.generation == to.generation && holds).then_some(inode)
}

/// The attributes of `to`, if it or its record is in memory and the entry still held when they were
/// read.
fn validated_attr(fs: &Fs, to: Target, ticket: Ticket) -> Option<Attr> {
    let attr = peeked(fs, to.ino)?;
    (attr.generation == to.generation && fs.names.holds(&ticket)).then_some(attr)
}

fn kind_of(to: Target) -> Option<FileKind> {
    FileKind::from_file_type(FileType::from_raw(to.kind))
}

/// The inode that an entry of `dir` leads to, ".." included. While `dir` is locked the entry does
/// not go, so an inode that is deleted is damage.
pub(super) fn child(fs: &Arc<Fs>, dir: LockedInode<'_>, ino: Ino) -> Result<InodeRef> {
    fs.iget(ino).map_err(|error| match error {
        Error::Stale => {
            let error = Error::corrupt(Location::Inode(dir.ino), LinkDamage::DeletedInode { ino });
            fs.fault.report(fs, &error);
            error
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::namei::{self, ParentAndName};
    use crate::test_support::test_mount::TestFs;
    use crate::types::{Cred, RenameFlags};

    fn rename(fs: &TestFs, from: &str, to: &str) {
        let root = fs.root();
        let [from, to] = [from, to].map(|name| ParentAndName::new(&root, name.as_bytes()));
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
        let found = || {
            let attr = validated_attr(&fs, to, ticket).map(|attr| attr.ino);
            assert_eq!(validated(&fs, to, ticket).map(|inode| inode.ino), attr);
            attr
        };
        assert_eq!(found(), Some(to.ino));
        rename(&fs, "old", "new");
        assert_eq!(found(), None);
    }

    /// The number of a name may be another inode's by now: a name that was not removed is damage.
    #[test]
    fn an_inode_of_another_generation_is_not_given_out() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let file = fs.create("file");
        let Some((Entry::Present(to), ticket)) = get(&fs, &fs.root(), b"file") else {
            panic!("a new name is known");
        };
        let earlier = Target {
            generation: to.generation.wrapping_add(1),
            ..to
        };
        assert!(validated(&fs, earlier, ticket).is_none());
        assert!(validated_attr(&fs, earlier, ticket).is_none());
        let root = fs.root();
        let shared = root.lock_shared();
        put(&fs, shared.inode(), b"file", Entry::Present(earlier));
        // The directory itself is asked then.
        let found = locked(&fs, shared.inode(), b"file").unwrap().unwrap();
        assert_eq!((found.ino, found.generation), (file.ino, to.generation));
        let Some((Entry::Present(known), _)) = get(&fs, &root, b"file") else {
            panic!("it is known again");
        };
        assert_eq!(known.generation, to.generation);
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
        assert!(
            find(false)
                .unwrap()
                .is_some_and(|found| found.ino == file.ino)
        );
        assert!(find(true).unwrap().is_none());
    }

    /// The last name of a path is not known, and its directory moves between a look at the way and
    /// the reference.
    #[test]
    fn a_directory_is_searched_only_while_the_way_to_it_holds() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let dir = fs.mkdir("dir");
        let end = |names: &[&'static [u8]]| {
            let names: Vec<&[u8]> = names.to_vec();
            end_of_path(&fs, names.into_iter().peekable(), true).unwrap()
        };
        let (below, above) = (end(&[b"dir", b"new"]), end(&[b"new"]));
        let found = |end: &PathEnd<'_>| directory(&fs, end).map(|dir| dir.ino);
        assert_eq!((found(&below), below.above_count), (Some(dir.ino), 1));
        assert_eq!((found(&above), above.above_count), (Some(Ino::ROOT), 0));
        rename(&fs, "dir", "moved");
        assert_eq!(found(&below), None);
        assert_eq!(found(&above), Some(Ino::ROOT), "no name leads to the root");
    }
}
