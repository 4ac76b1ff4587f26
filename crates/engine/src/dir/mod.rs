//! Directories: names to inode numbers.
//!
//! The format of a directory is in `extant-disk`. This module finds, adds, removes and lists
//! entries; what they mean is [`crate::namei`]'s.
//!
//! - [`dir_store`] is the border to the file system, with [`fs_store`] behind it, or
//!   [`inline_store`] for entries inside of the inode, which [`inline_entries`] changes;
//! - [`entries`] chooses between [`linear`] and [`htree`];
//! - [`listing`] reads in batches, whose [`position`]s stay valid while other threads create and
//!   unlink;
//! - [`folding`] is what a directory that folds the case of its names does otherwise;
//! - [`name_form`] is how names stand in blocks, encrypted ones too, [`sought_name`] how they are
//!   found there, and [`nokey_name`] how encrypted ones are shown without the key;
//! - [`distinct_blocks`] makes sure, before a walk over many blocks, that no block occurs twice.
//!   The directory's size is checked when its inode is loaded.
//!
//! [`lookup`], [`is_empty`] and [`read`] end at the next block when [`Fs::check_interrupted`] says
//! so.
//!
//! # Invariants
//! Names in a directory are unique. The size is a whole number of blocks, in memory and on disk, or
//! that of the entries inside of the inode. Every block, and every inode with entries inside, is
//! valid by itself before and after every change.
//!
//! [`insert`], [`remove`] and [`retarget`] take the name out of the cache of names ([`Fs::names`])
//! before they change a block; [`crate::namei`] fills the cache. They note the entry for fast
//! commits ([`told_entries`]).
//!
//! # Locks
//! The caller holds the directory's `lock`, which its token proves: a [`LockedInode`] to look, an
//! [`ExclusiveInode`] to change. [`init_new`] needs none, as no other thread knows the directory.
//! Only [`read`] and [`read_batch`] take the lock themselves, for one batch at a time. Below it
//! come the handle, the map's locks and block content.
//!
//! # Concurrency
//! Readers of one directory run in parallel, and so do changes of different ones.

mod dir_store;
mod distinct_blocks;
mod entries;
mod folding;
mod fs_store;
mod htree;
mod inline_entries;
mod inline_store;
mod linear;
mod listing;
mod name_form;
pub(crate) mod nokey_name;
mod position;
mod room;
mod slot;
mod sought_name;
#[cfg(test)]
mod tests;
mod told_entries;

use std::borrow::Cow;

use extant_jbd2::{Block, Handle};
use extant_units::Ino;

use self::dir_store::Store;
use self::folding::check_encoding;
pub(crate) use self::folding::{cache_key, folds, forget};
use self::fs_store::FsStore;
use self::inline_store::InlineStore;
pub(crate) use self::listing::Batch;
use self::name_form::NameForm;
use self::room::{NameOrRoom, Room};
use self::slot::Slot;
use crate::crypt;
use crate::inline_data::is_inline;
use crate::inode::{ExclusiveInode, LockedInode};
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{Dirent, FileKind};
use crate::volume::Fs;

/// The inode that `name` leads to, "." and ".." included.
///
/// # Errors
/// Not a directory, or a removed one ([`crate::Error::NotFound`]); [`crate::Error::Invalid`] for a
/// name that is not UTF-8 where it must be; damage; [`crate::Error::Interrupted`].
pub(crate) fn lookup(fs: &Fs, dir: LockedInode<'_>, name: &[u8]) -> Result<Option<Ino>> {
    check_encoding(fs, &dir, name)?;
    // A key that cannot be looked for is no key that is not there.
    crypt::is_locked(fs, &dir)?;
    if is_inline(&dir) {
        return look(&InlineStore::open(fs, &dir)?, &dir, name);
    }
    look(&FsStore::open_to_walk(fs, &dir)?, &dir, name)
}

fn look<S: Store>(store: &S, dir: &Inode, name: &[u8]) -> Result<Option<Ino>> {
    match name {
        b"." => Ok(Some(dir.ino)),
        b".." => Ok(Some(entries::dots(store)?.1)),
        _ => Ok(find(store, name)?.map(|slot| slot.ino)),
    }
}

/// Finds `name`, which is neither "." nor "..".
fn find<S: Store>(store: &S, name: &[u8]) -> Result<Option<Slot<S::Block>>> {
    match &store.profile().names {
        NameForm::Hidden => match nokey_name::Stored::of(name) {
            Some(stored) => entries::find_where(store, |record| stored.holds(record.name)),
            None => Ok(None),
        },
        form => match entries::find(store, &form.stored(name)?)? {
            Some(slot) => Ok(Some(slot)),
            None => find_undecipherable(store, name),
        },
    }
}

/// Finds an entry that the key makes no name of, by the form in which it is listed.
fn find_undecipherable<S: Store>(store: &S, name: &[u8]) -> Result<Option<Slot<S::Block>>> {
    match (&store.profile().names, nokey_name::Stored::of(name)) {
        (form @ (NameForm::Encrypted(_) | NameForm::Folded(_)), Some(stored))
            if stored.is_whole_name() =>
        {
            entries::find_where(store, |record| {
                stored.holds(record.name) && !form.deciphers(record)
            })
        }
        _ => Ok(None),
    }
}

/// Finds `name`, which must lead to `ino`.
fn expect<S: Store>(store: &S, name: &[u8], ino: Ino) -> Result<Slot<S::Block>> {
    entries::expect(store, find(store, name)?, ino)
}

/// A name that a directory does not have. The directory stays locked, so no other thread adds it.
pub(crate) struct Vacancy<'a> {
    dir: ExclusiveInode<'a>,
    name: &'a [u8],
    /// The room for its entry, if the search for the name met free space. It keeps its block in
    /// memory.
    room: Option<Room<Block>>,
}

impl<'a> Vacancy<'a> {
    /// The vacancy of a name that `dir` is known not to have, without a search.
    pub(crate) fn known(dir: ExclusiveInode<'a>, name: &'a [u8]) -> Self {
        Self {
            dir,
            name,
            room: None,
        }
    }
}

/// Searches for `name`, which is to be added. `None` if `dir` has it.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn find_vacancy<'a>(
    fs: &Fs,
    dir: ExclusiveInode<'a>,
    name: &'a [u8],
) -> Result<Option<Vacancy<'a>>> {
    check_encoding(fs, &dir, name)?;
    // Without the key a name may be there, but none can be added.
    if is_inline(&dir) || crypt::is_locked(fs, &dir)? {
        let found = lookup(fs, dir.shared(), name)?;
        return Ok(found.is_none().then(|| Vacancy::known(dir, name)));
    }
    let store = FsStore::open_to_walk(fs, &dir)?;
    let stored = store.profile().names.stored(name)?;
    Ok(match entries::find_or_room(&store, &stored)? {
        NameOrRoom::Name => None,
        NameOrRoom::Room(room) => Some(Vacancy { dir, name, room }),
    })
}

/// Adds the name of `vacancy`, once. Needs [`crate::volume::credits::dir_insert`] credits. With
/// `privileged`, a new block may come from root's reserve.
///
/// # Errors
/// [`crate::Error::NoSpace`], also when an index has all the levels it may have. The directory is
/// then unchanged.
pub(crate) fn insert(
    fs: &Fs,
    h: &mut Handle,
    vacancy: &Vacancy<'_>,
    target: (Ino, FileKind),
    privileged: bool,
) -> Result<()> {
    let stored = NameForm::of(fs, &vacancy.dir).stored(vacancy.name)?;
    let entry = stored.entry(target.0, target.1.file_type());
    forget(fs, vacancy.dir, vacancy.name);
    told_entries::change(fs, h, &vacancy.dir, |h| {
        let inside = is_inline(&vacancy.dir);
        if inside && inline_entries::insert(fs, h, &vacancy.dir, &entry, privileged)? {
            return Ok(());
        }
        let store = FsStore::open_to_grow(fs, &vacancy.dir, privileged)?;
        entries::insert(&store, h, &entry, vacancy.room.as_ref())
    })?;
    told_entries::note_added(fs, h, &vacancy.dir, (vacancy.name, target));
    Ok(())
}

/// An entry that was found.
pub(crate) struct FoundEntry(EntryPlace);

enum EntryPlace {
    /// It keeps its block in memory, so that a change of the entry reads nothing.
    InBlock(Slot<Block>),
    /// It is inside of the inode, or was then: the inode that it leads to, and its offset.
    Inside(Ino, usize),
}

impl FoundEntry {
    /// The inode that the entry leads to.
    fn ino(&self) -> Ino {
        match &self.0 {
            EntryPlace::InBlock(slot) => slot.ino,
            EntryPlace::Inside(ino, _) => *ino,
        }
    }

    /// The entry's location in a block of `store`.
    fn slot(&self, store: &FsStore<'_>, name: &[u8]) -> Result<Cow<'_, Slot<Block>>> {
        match &self.0 {
            EntryPlace::InBlock(slot) => Ok(Cow::Borrowed(slot)),
            // The entries have moved to a block since.
            EntryPlace::Inside(ino, _) => expect(store, name, *ino).map(Cow::Owned),
        }
    }
}

/// Finds the entry `name`, which leads to `ino`, for [`remove`] or [`retarget`].
///
/// # Errors
/// [`crate::Error::NotFound`]; damage if it leads elsewhere.
pub(crate) fn find_entry(
    fs: &Fs,
    dir: ExclusiveInode<'_>,
    name: &[u8],
    ino: Ino,
) -> Result<FoundEntry> {
    if is_inline(&dir) {
        let slot = expect(&InlineStore::open(fs, &dir)?, name, ino)?;
        return Ok(FoundEntry(EntryPlace::Inside(ino, slot.at.offset)));
    }
    expect(&FsStore::open(fs, &dir)?, name, ino).map(|slot| FoundEntry(EntryPlace::InBlock(slot)))
}

/// Removes `name`, whose entry was found. No name was added to the directory since: that may move
/// entries. Needs [`crate::volume::credits::DIR_REMOVE`] credits.
///
/// # Errors
/// Damage; a stopped journal.
pub(crate) fn remove(
    fs: &Fs,
    h: &mut Handle,
    dir: ExclusiveInode<'_>,
    (name, entry): (&[u8], &FoundEntry),
) -> Result<()> {
    forget(fs, dir, name);
    told_entries::change(fs, h, &dir, |h| match &entry.0 {
        EntryPlace::Inside(_, at) if is_inline(&dir) => {
            inline_entries::change(fs, h, &dir, |format, data| format.remove_inside(data, *at))
        }
        _ => {
            let store = FsStore::open(fs, &dir)?;
            entries::remove(&store, h, &*entry.slot(&store, name)?)
        }
    })?;
    told_entries::note_removed(fs, h, &dir, (name, entry.ino()));
    Ok(())
}

/// Makes `name`, whose entry was found, lead to another inode. The rest as [`remove`].
///
/// # Errors
/// As [`remove`].
pub(crate) fn retarget(
    fs: &Fs,
    h: &mut Handle,
    dir: ExclusiveInode<'_>,
    (name, entry): (&[u8], &FoundEntry),
    new: (Ino, FileKind),
) -> Result<()> {
    let target = new;
    let new = (new.0, new.1.file_type());
    forget(fs, dir, name);
    told_entries::change(fs, h, &dir, |h| match &entry.0 {
        EntryPlace::Inside(_, at) if is_inline(&dir) => {
            inline_entries::change(fs, h, &dir, |format, data| {
                format.retarget_inside(data, *at, new.0, new.1)
            })
        }
        _ => {
            let store = FsStore::open(fs, &dir)?;
            entries::retarget(&store, h, &*entry.slot(&store, name)?, new)
        }
    })?;
    told_entries::note_removed(fs, h, &dir, (name, entry.ino()));
    told_entries::note_added(fs, h, &dir, (name, target));
    Ok(())
}

/// Returns whether `dir` has no entries but "." and "..".
///
/// # Errors
/// Damage; [`crate::Error::Interrupted`].
pub(crate) fn is_empty(fs: &Fs, dir: LockedInode<'_>) -> Result<bool> {
    if is_inline(&dir) {
        return entries::is_empty(&InlineStore::open(fs, &dir)?);
    }
    entries::is_empty(&FsStore::open_to_walk(fs, &dir)?)
}

/// Fails if the entries of `dir`, which is empty, cannot begin or end to have hashes: its index has
/// those of another kind.
///
/// # Errors
/// [`crate::Error::NotSupported`].
pub(crate) fn may_switch_hashes(fs: &Fs, dir: LockedInode<'_>) -> Result<()> {
    match is_indexed(fs, dir) {
        true => Err(Error::NotSupported(
            "stored hashes in a directory that has had many names",
        )),
        false => Ok(()),
    }
}

/// Gives a new directory, which no other thread knows, its "." and "..", inside of its inode where
/// the volume has such directories, else in its first block. Needs
/// [`crate::volume::credits::allocate`] credits and two.
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
    if inline_entries::init(fs, h, dir, parent)? {
        return Ok(());
    }
    entries::init(&FsStore::new(fs, dir, privileged)?, h, dir.ino, parent)
}

/// Moves the entries of a directory from its inode to a block, if they are there. Needs
/// [`crate::volume::credits::dir_insert`] credits.
///
/// # Errors
/// [`crate::Error::NoSpace`]; damage; a stopped journal.
pub(crate) fn leave_inode(
    fs: &Fs,
    h: &mut Handle,
    dir: ExclusiveInode<'_>,
    privileged: bool,
) -> Result<()> {
    match is_inline(&dir) {
        true => inline_entries::move_to_block(fs, h, &dir, privileged),
        false => Ok(()),
    }
}

/// The inode that ".." leads to.
///
/// # Errors
/// Damage.
pub(crate) fn parent(fs: &Fs, dir: LockedInode<'_>) -> Result<Ino> {
    if is_inline(&dir) {
        return Ok(entries::dots(&InlineStore::open(fs, &dir)?)?.1);
    }
    Ok(entries::dots(&FsStore::open(fs, &dir)?)?.1)
}

/// The block that holds "..", checked, if it is in one: while it is held, [`set_parent`] reads
/// nothing.
///
/// # Errors
/// Damage.
pub(crate) fn hold_parent(fs: &Fs, dir: LockedInode<'_>) -> Result<Option<Block>> {
    if is_inline(&dir) {
        return entries::dots(&InlineStore::open(fs, &dir)?).map(|_| None);
    }
    entries::checked_dots(&FsStore::open(fs, &dir)?).map(Some)
}

/// Makes ".." lead to `parent`. Needs one credit, or [`crate::volume::credits::INODE_UPDATE`] where
/// it is inside of the inode.
///
/// # Errors
/// Damage.
pub(crate) fn set_parent(
    fs: &Fs,
    h: &mut Handle,
    dir: ExclusiveInode<'_>,
    parent: Ino,
) -> Result<()> {
    if is_inline(&dir) {
        return inline_entries::set_parent(fs, h, &dir, parent);
    }
    entries::set_parent(&FsStore::open(fs, &dir)?, h, parent)
}

/// Returns whether changes go through an index. An indexed directory may have any number of
/// subdirectories.
pub(crate) fn is_indexed(fs: &Fs, dir: LockedInode<'_>) -> bool {
    FsStore::new(fs, &dir, false).is_ok_and(|store| store.indexed())
}

/// Calls `emit` with the entries from position `from` on (0: the first, "."), "." and ".."
/// included, until it returns false. Takes the directory's `lock`, but does not hold it while
/// `emit` runs.
///
/// An entry that exists during the whole listing is seen once. One that comes or goes meanwhile may
/// be seen or not.
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
    loop {
        if from != start {
            fs.check_interrupted()?;
        }
        let batch = read_batch(fs, dir, from)?;
        if !batch.iter().all(&mut *emit) {
            return Ok(());
        }
        match batch.next() {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

/// Some of the entries from position `from` on. An empty batch does not mean that nothing follows
/// it. Takes the directory's `lock` for the time of the call.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_batch(fs: &Fs, dir: &Inode, from: u64) -> Result<Batch> {
    let shared = dir.lock_shared();
    if is_inline(dir) {
        return listing::batch(&InlineStore::open(fs, dir)?, from);
    }
    listing::batch(&FsStore::open_to_walk(fs, &shared.inode())?, from)
}
