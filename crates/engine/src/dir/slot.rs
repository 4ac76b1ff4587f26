//! The location of an entry: its block and its offset there. Linear and indexed directories find
//! entries in a block the same way.

use extant_disk::dirent::EntrySlot;
use extant_units::{Ino, Lblk};

use super::dir_store::Store;
use super::sought_name::SoughtName;
use crate::types::error::Result;

/// An entry that was found.
#[derive(Clone)]
pub(super) struct Slot<B> {
    /// The inode it leads to.
    pub(super) ino: Ino,
    /// The block that holds it.
    pub(super) lblk: Lblk,
    pub(super) block: B,
    /// Its location there.
    pub(super) at: EntrySlot,
}

/// Finds `name` in one block of entries.
pub(super) fn find_in<S: Store>(
    store: &S,
    lblk: Lblk,
    block: S::Block,
    name: &SoughtName<'_>,
) -> Result<Option<Slot<S::Block>>> {
    let data = store.data(&block);
    let found = store.check(lblk, name.find_slot(&store.profile().format, &data))?;
    let found = found.and_then(|(record, at)| Some((record.ino?, at)));
    Ok(found.map(|(ino, at)| Slot {
        ino,
        lblk,
        block,
        at,
    }))
}
