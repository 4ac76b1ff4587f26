//! The entries of one directory, linear or indexed: find, insert, remove, retarget.
//!
//! Chooses between [`super::linear`] and [`super::htree`], and does what is the same for both.
//! Nothing here knows what an entry means: the caller keeps names unique and links counted, under
//! the directory's `lock`.

use extant_disk::damage::DirectoryDamage;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dirent::{FileType, Record};
use extant_disk::htree::IndexKind;
use extant_units::{Ino, Lblk};

use super::dir_store::{Shape, Store};
use super::room::{NameOrRoom, Room};
use super::slot::{self, Slot};
use super::sought_name::SoughtName;
use super::{htree, linear};
use crate::types::error::{Error, Result};

/// Finds `name`.
pub(super) fn find<S: Store>(store: &S, name: &SoughtName<'_>) -> Result<Option<Slot<S::Block>>> {
    if !store.indexed() {
        return linear::find(store, name);
    }
    let found = htree::find(store, name)?;
    if found.is_none() && name.may_be_elsewhere(&store.profile().format) {
        return scan(store, |lblk, leaf| slot::find_in(store, lblk, leaf, name));
    }
    Ok(found)
}

/// Calls `visit` with each block of entries until it returns an answer.
fn scan<S: Store, R>(
    store: &S,
    visit: impl FnMut(Lblk, S::Block) -> Result<Option<R>>,
) -> Result<Option<R>> {
    match store.indexed() {
        true => htree::scan(store, visit),
        false => linear::scan(store, visit),
    }
}

/// The first entry which `is_wanted` knows, "." and ".." left out.
pub(super) fn find_where<S: Store>(
    store: &S,
    is_wanted: impl Fn(&Record<'_>) -> bool,
) -> Result<Option<Slot<S::Block>>> {
    scan(store, |lblk, block| {
        let data = store.data(&block);
        for record in store.profile().format.records(&data) {
            let record = store.check(lblk, record)?;
            let is_dot = matches!(record.name, b"." | b"..");
            if record.ino.is_some() && !is_dot && is_wanted(&record) {
                let name = SoughtName::of_bytes(record.name);
                return slot::find_in(store, lblk, block.clone(), &name);
            }
        }
        Ok(None)
    })
}

/// Searches for `name` and for the room that [`insert`] uses, in one walk.
pub(super) fn find_or_room<S: Store>(
    store: &S,
    name: &SoughtName<'_>,
) -> Result<NameOrRoom<S::Block>> {
    if store.indexed() {
        let found = htree::find_or_room(store, name)?;
        let missing = matches!(found, NameOrRoom::Room(_));
        if missing && name.may_be_elsewhere(&store.profile().format) && find(store, name)?.is_some()
        {
            return Ok(NameOrRoom::Name);
        }
        Ok(found)
    } else {
        linear::find_or_room(store, name)
    }
}

/// Adds an entry whose name the directory does not have: into `room`, if the search for the name
/// met some, else where there is space or can be made.
pub(super) fn insert<S: Store>(
    store: &S,
    h: &mut S::Handle,
    entry: &NewEntry<'_>,
    room: Option<&Room<S::Block>>,
) -> Result<()> {
    drop_stale_index(store, h)?;
    if let Some(room) = room
        && room.fill(store, h, entry)?
    {
        return Ok(());
    }
    if store.indexed() {
        htree::insert(store, h, entry)
    } else {
        linear::insert(store, h, entry)
    }
}

/// Removes the entry at `slot`.
pub(super) fn remove<S: Store>(store: &S, h: &mut S::Handle, slot: &Slot<S::Block>) -> Result<()> {
    drop_stale_index(store, h)?;
    let format = &store.profile().format;
    let done = store.modify(h, &slot.block, |bytes| format.remove_slot(bytes, slot.at))?;
    store.check(slot.lblk, done)
}

/// Makes the entry at `slot` lead to `new`.
pub(super) fn retarget<S: Store>(
    store: &S,
    h: &mut S::Handle,
    slot: &Slot<S::Block>,
    new: (Ino, FileType),
) -> Result<()> {
    let format = &store.profile().format;
    let done = store.modify(h, &slot.block, |bytes| {
        format.retarget(bytes, slot.at.offset, new.0, new.1)
    })?;
    store.check(slot.lblk, done)
}

/// The entry that was `found`, which must lead to `ino`.
pub(super) fn expect<S: Store>(
    store: &S,
    found: Option<Slot<S::Block>>,
    ino: Ino,
) -> Result<Slot<S::Block>> {
    let slot = found.ok_or(Error::NotFound)?;
    if slot.ino != ino {
        let damage = DirectoryDamage::OtherInode {
            found: slot.ino,
            expected: ino,
        };
        return Err(store.corrupt(slot.lblk, damage.into()));
    }
    Ok(slot)
}

/// On a file system without `dir_index` an index is not kept up to date: the first change drops it.
/// From then on the blocks of the index read as free space.
fn drop_stale_index<S: Store>(store: &S, h: &mut S::Handle) -> Result<()> {
    if store.index_flag() && !store.profile().dir_index {
        store.set_index_flag(h, false)?;
    }
    Ok(())
}

/// The block that holds "." and "..".
fn first<S: Store>(store: &S) -> Result<(S::Block, Option<IndexKind>)> {
    let kind = store.indexed().then_some(IndexKind::Root);
    let shape = kind.map_or(Shape::Leaf, Shape::Index);
    Ok((store.read(Lblk::ZERO, shape)?, kind))
}

/// The inodes that "." and ".." lead to.
pub(super) fn dots<S: Store>(store: &S) -> Result<(Ino, Ino)> {
    dots_in(store, &first(store)?.0)
}

fn dots_in<S: Store>(store: &S, block: &S::Block) -> Result<(Ino, Ino)> {
    let dots = store.profile().format.dots(&store.data(block));
    store.check(Lblk::ZERO, dots)
}

/// The block that holds "." and "..", which are there.
pub(super) fn checked_dots<S: Store>(store: &S) -> Result<S::Block> {
    let (block, _) = first(store)?;
    dots_in(store, &block)?;
    Ok(block)
}

/// Makes ".." lead to `parent`.
pub(super) fn set_parent<S: Store>(store: &S, h: &mut S::Handle, parent: Ino) -> Result<()> {
    let (block, kind) = first(store)?;
    let format = &store.profile().format;
    let done = store.modify(h, &block, |bytes| format.set_dotdot(bytes, kind, parent))?;
    store.check(Lblk::ZERO, done)
}

/// Returns whether the directory has no entries but "." and "..".
pub(super) fn is_empty<S: Store>(store: &S) -> Result<bool> {
    dots(store)?;
    let has_entry = |lblk: Lblk, block: S::Block| {
        let data = store.data(&block);
        for record in store.profile().format.records(&data) {
            let record = store.check(lblk, record)?;
            if record.ino.is_some() && !matches!(record.name, b"." | b"..") {
                return Ok(Some(()));
            }
        }
        Ok(None)
    };
    Ok(scan(store, has_entry)?.is_none())
}

/// Writes the first block of a new directory.
pub(super) fn init<S: Store>(store: &S, h: &mut S::Handle, own: Ino, parent: Ino) -> Result<()> {
    debug_assert_eq!(store.blocks(), 0, "a new directory");
    let format = &store.profile().format;
    let mut bytes = vec![0; format.block_size.bytes()];
    format.init_first(&mut bytes, own, parent);
    store.append(h, Shape::Leaf, &bytes)?;
    Ok(())
}
