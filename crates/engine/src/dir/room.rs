//! Free space for the entry of a name that a directory does not have, as the search for the name
//! met it.

use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_gap::{Gap, NameOrGap};
use extant_units::Lblk;

use super::dir_store::Store;
use super::sought_name::SoughtName;
use crate::types::error::Result;

/// Free space of one block that holds the entry.
pub(super) struct Room<B> {
    lblk: Lblk,
    block: B,
    gap: Gap,
}

/// Outcome of a search for a name that is to be added.
pub(super) enum NameOrRoom<B> {
    /// The name is there.
    Name,
    /// It is not. The room for its entry, if there is some.
    Room(Option<Room<B>>),
}

impl<B> NameOrRoom<B> {
    /// The outcome of a search that ended at the name, or else met `room`.
    pub(super) fn of(name: Option<()>, room: Option<Room<B>>) -> Self {
        match name {
            Some(()) => Self::Name,
            None => Self::Room(room),
        }
    }
}

/// Searches one block of entries for `name` and for room.
pub(super) fn search_in<S: Store>(
    store: &S,
    lblk: Lblk,
    block: S::Block,
    name: &SoughtName<'_>,
) -> Result<NameOrRoom<S::Block>> {
    let found = name.find_or_gap(&store.profile().format, &store.data(&block));
    Ok(match store.check(lblk, found)? {
        NameOrGap::Name => NameOrRoom::Name,
        NameOrGap::Gap(gap) => NameOrRoom::Room(gap.map(|gap| Room { lblk, block, gap })),
    })
}

/// The room that one block of entries has for `name`.
pub(super) fn room_in<S: Store>(
    store: &S,
    lblk: Lblk,
    block: S::Block,
    name: &[u8],
) -> Result<Option<Room<S::Block>>> {
    let gap = store.profile().format.find_gap(&store.data(&block), name);
    let gap = store.check(lblk, gap)?;
    Ok(gap.map(|gap| Room { lblk, block, gap }))
}

impl<B> Room<B> {
    /// Puts `entry` there. Returns false if the room is gone: on a hostile image, where the block
    /// may be another directory's as well.
    pub(super) fn fill<S: Store<Block = B>>(
        &self,
        store: &S,
        h: &mut S::Handle,
        entry: &NewEntry<'_>,
    ) -> Result<bool> {
        let format = &store.profile().format;
        let done = store.modify(h, &self.block, |bytes| {
            format.insert_into(bytes, self.gap, entry)
        })?;
        Ok(store.check(self.lblk, done)?.is_some())
    }
}
