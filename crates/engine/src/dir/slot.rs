//! The location of an entry: its block and its offset there. Linear and indexed directories find
//! entries in a block the same way.

use extant_units::{Ino, Lblk};

use super::dir_store::Store;
use crate::types::error::Result;

/// An entry that was found.
pub(super) struct Slot<B> {
    /// The inode it leads to.
    pub(super) ino: Ino,
    /// The block that holds it.
    pub(super) lblk: Lblk,
    pub(super) block: B,
    /// Its first byte in the block.
    pub(super) offset: usize,
}

/// Finds `name` in one block of entries.
pub(super) fn find_in<S: Store>(
    store: &S,
    lblk: Lblk,
    block: S::Block,
    name: &[u8],
) -> Result<Option<Slot<S::Block>>> {
    let data = store.data(&block);
    let found = store.check(lblk, store.profile().format.find(&data, name))?;
    let Some((record, ino)) = found.and_then(|record| Some((record, record.ino?))) else {
        return Ok(None);
    };
    Ok(Some(Slot {
        ino,
        lblk,
        block,
        offset: record.offset,
    }))
}
