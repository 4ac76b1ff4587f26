//! Linear directories: a chain of blocks without an index.
//!
//! Entries never move, because a reader's position in a directory of several blocks is a byte
//! offset. A directory of one block differs: it is read in hash order (see [`super::position`]), so
//! giving it an index once it is full does not disturb its readers.

use extant_disk::dir_edit::NewEntry;
use extant_units::Lblk;

use super::dir_store::{Shape, Store};
use super::room::{self, NameOrRoom};
use super::slot::{self, Slot};
use super::sought_name::SoughtName;
use crate::types::error::Result;

/// Blocks to read ahead of a scan.
const AHEAD: u32 = 64;

/// Calls `visit` with each block until it returns an answer.
pub(super) fn scan<S: Store, R>(
    store: &S,
    mut visit: impl FnMut(Lblk, S::Block) -> Result<Option<R>>,
) -> Result<Option<R>> {
    store.begin_walk()?;
    for raw in 0..store.blocks() {
        let lblk = Lblk::new(raw);
        if raw % AHEAD == 0 && store.blocks() > 1 {
            store.readahead(lblk, AHEAD);
        }
        if let Some(answer) = visit(lblk, store.read(lblk, Shape::Leaf)?)? {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Finds `name` in a linear directory.
pub(super) fn find<S: Store>(store: &S, name: &SoughtName<'_>) -> Result<Option<Slot<S::Block>>> {
    scan(store, |lblk, block| slot::find_in(store, lblk, block, name))
}

/// Searches a linear directory for `name` and, on the way, for the first room of its entry.
pub(super) fn find_or_room<S: Store>(
    store: &S,
    name: &SoughtName<'_>,
) -> Result<NameOrRoom<S::Block>> {
    let mut first = None;
    let found = scan(store, |lblk, block| {
        match room::search_in(store, lblk, block, name)? {
            NameOrRoom::Name => return Ok(Some(())),
            NameOrRoom::Room(room) => first = first.take().or(room),
        }
        Ok(None)
    })?;
    Ok(NameOrRoom::of(found, first))
}

/// Adds a name to a linear directory that does not have it: into the first free space, else into an
/// index if the directory may have one, else into a new block.
pub(super) fn insert<S: Store>(store: &S, h: &mut S::Handle, entry: &NewEntry<'_>) -> Result<()> {
    let profile = store.profile();
    let format = &profile.format;
    let first = scan(store, |lblk, block| {
        room::room_in(store, lblk, block, entry.name)
    })?;
    if let Some(room) = first
        && room.fill(store, h, entry)?
    {
        return Ok(());
    }
    if profile.dir_index && store.blocks() == 1 {
        let first = store.read(Lblk::ZERO, Shape::Leaf)?;
        super::htree::convert(store, h, &first)?;
        return super::htree::insert(store, h, entry);
    }
    let lblk = Lblk::new(store.blocks());
    let mut bytes = vec![0; format.block_size.bytes()];
    format.init_leaf(&mut bytes);
    store.check(lblk, format.insert(&mut bytes, entry))?;
    let appended = store.append(h, Shape::Leaf, &bytes)?;
    debug_assert_eq!(appended, lblk, "a directory grows at its end");
    Ok(())
}
