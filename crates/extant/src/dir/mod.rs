//! Directories: names to inode numbers.
//!
//! What a directory is on disk lies in `extant-disk`; this module finds, adds, removes and lists entries, and
//! knows nothing of what they mean (that is [`crate::namei`]). Inside: [`store`] is the border to the file system,
//! with [`fs_store`] behind it; [`entries`] chooses between [`linear`] and [`index`]; [`list`] reads in batches
//! whose [`position`]s stay valid while others create and unlink.
//! Before a walk over many blocks [`distinct`] makes sure that they are as many as they seem; so is
//! a directory's size when its inode is loaded. A walk of [`lookup`], [`is_empty`] and [`read`]
//! ends at the next block when it [shall](Fs::go_on).
//!
//! Invariants: names in a directory are unique; the size is a whole number of blocks, in memory and on disk; every
//! block is intact by itself before and after every change.
//!
//! Locks: the caller holds the directory's `lock`, shared for [`lookup`], [`is_empty`] and [`parent`], exclusively
//! for everything that takes a handle; [`read`] alone takes it itself, for one batch at a time. Below it come the
//! handle, the map's locks and block content. Readers of one directory run in parallel, and so do changes of different ones.

mod distinct;
mod entries;
mod fs_store;
mod index;
mod linear;
mod list;
mod position;
mod slot;
mod store;
#[cfg(test)]
mod tests;

use extant_disk::dir_edit::NewEntry;
use extant_jbd2::Handle;
use extant_units::Ino;

use self::fs_store::FsStore;
use self::store::Store as _;
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::types::{Dirent, FileKind};

/// The inode that `name` leads to, with the dots.
///
/// # Errors
/// Not a directory, or a removed one ([`crate::Error::NotFound`]); damage;
/// [`crate::Error::Interrupted`].
pub(crate) fn lookup(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    let store = FsStore::open_to_walk(fs, dir)?;
    match name {
        b"." => Ok(Some(dir.ino)),
        b".." => Ok(Some(entries::dots(&store)?.1)),
        _ => Ok(entries::find(&store, name)?.map(|slot| slot.ino)),
    }
}

/// Adds `name`, which the directory must not have: the caller looked. Needs [`crate::credits::dir_insert`]
/// credits. `privileged`: a new block may come from root's reserve.
///
/// # Errors
/// [`crate::Error::NoSpace`], also when an index has all the levels it may have; the directory is intact then,
/// without the name.
pub(crate) fn insert(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    name: &[u8],
    target: (Ino, FileKind),
    privileged: bool,
) -> Result<()> {
    let entry = NewEntry {
        name,
        ino: target.0,
        file_type: target.1.file_type(),
    };
    let store = FsStore::open_to_grow(fs, dir, privileged)?;
    entries::insert(&store, h, &entry)
}

/// Removes `name`, which leads to `ino`. Needs [`crate::credits::DIR_REMOVE`] credits.
///
/// # Errors
/// [`crate::Error::NotFound`]; damage if it leads elsewhere.
pub(crate) fn remove(fs: &Fs, h: &mut Handle, dir: &Inode, name: &[u8], ino: Ino) -> Result<()> {
    entries::remove(&FsStore::open(fs, dir)?, h, name, ino)
}

/// Lets `name`, which leads to `old`, lead to another inode. Needs [`crate::credits::DIR_REMOVE`] credits.
///
/// # Errors
/// As [`remove`].
pub(crate) fn retarget(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    name: &[u8],
    old: Ino,
    new: (Ino, FileKind),
) -> Result<()> {
    let new = (new.0, new.1.file_type());
    entries::retarget(&FsStore::open(fs, dir)?, h, name, old, new)
}

/// Whether `dir` has no entries but the dots.
///
/// # Errors
/// Damage; [`crate::Error::Interrupted`].
pub(crate) fn is_empty(fs: &Fs, dir: &Inode) -> Result<bool> {
    entries::is_empty(&FsStore::open_to_walk(fs, dir)?)
}

/// Gives a new directory its first block, with the dots. Needs [`crate::credits::allocate`] credits and two.
///
/// # Errors
/// [`crate::Error::NoSpace`].
pub(crate) fn init_new(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    parent: Ino,
    privileged: bool,
) -> Result<()> {
    entries::init(&FsStore::new(fs, dir, privileged)?, h, dir.ino, parent)
}

/// Where ".." leads.
///
/// # Errors
/// Damage.
pub(crate) fn parent(fs: &Fs, dir: &Inode) -> Result<Ino> {
    Ok(entries::dots(&FsStore::open(fs, dir)?)?.1)
}

/// Lets ".." lead to `parent`. Needs one credit.
///
/// # Errors
/// Damage.
pub(crate) fn set_parent(fs: &Fs, h: &mut Handle, dir: &Inode, parent: Ino) -> Result<()> {
    entries::set_parent(&FsStore::open(fs, dir)?, h, parent)
}

/// Whether changes go through an index: directories that have one may have any number of subdirectories.
pub(crate) fn is_indexed(fs: &Fs, dir: &Inode) -> bool {
    FsStore::new(fs, dir, false).is_ok_and(|store| store.indexed())
}

/// Calls `emit` with the entries from position `from` on (0: the first, "."), dots included, until it returns
/// false. Takes the directory's `lock`, but does not hold it while `emit` runs.
///
/// Entries that are there for the whole listing are seen once; those that come or go meanwhile may be seen or not.
///
/// # Errors
/// Not a directory, or a removed one ([`crate::Error::NotFound`]); damage;
/// [`crate::Error::Interrupted`].
pub(crate) fn read(
    fs: &Fs,
    dir: &Inode,
    mut from: u64,
    emit: &mut dyn FnMut(Dirent<'_>) -> bool,
) -> Result<()> {
    let start = from;
    while from < position::END {
        if from != start {
            fs.go_on()?;
        }
        let batch = {
            let _shared = dir.lock.read();
            list::batch(&FsStore::open_to_walk(fs, dir)?, from)?
        };
        for (item, name) in batch.entries() {
            let entry = Dirent {
                ino: item.ino,
                kind: FileKind::from_file_type(item.file_type),
                name,
                next_pos: item.next,
            };
            if !emit(entry) {
                return Ok(());
            }
        }
        from = batch.next;
    }
    Ok(())
}
