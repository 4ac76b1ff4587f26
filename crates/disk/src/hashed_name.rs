//! The search for a name in a block of entries that have the hashes of their names
//! ([`crate::entry_hash`]).

use crate::dir_gap::{Gap, NameOrGap};
use crate::dir_hash::DirHash;
use crate::dirent::{DirEntryHeader, DirFormat, DirentError, EntrySlot, Record, rec_len_for};
use crate::entry_hash;

/// A name that is looked for in a block of such entries: its hash, and a judge of the names as they
/// are stored.
#[derive(Clone, Copy)]
pub struct HashedName<'a> {
    /// The hash of its entry; `None` if any may have it.
    pub hash: Option<DirHash>,
    /// Returns whether bytes of an entry are this name.
    pub is_name: &'a dyn Fn(&[u8]) -> bool,
    /// Bytes of the name, if an entry of it has to be added.
    pub len: usize,
}

impl DirFormat {
    /// The entry called `name`, if the block has one, with what [`DirFormat::remove_slot`] needs.
    ///
    /// # Errors
    /// As [`DirFormat::find`].
    pub fn find_hashed<'b>(
        &self,
        block: &'b [u8],
        name: &HashedName<'_>,
    ) -> Result<Option<(Record<'b>, EntrySlot)>, DirentError> {
        let mut before = None;
        let is_wanted = |start, len| Self::is_hashed_name(block, start, len, name);
        let found = self.first_of(block, |passed| before = Some(passed.offset), is_wanted)?;
        Ok(found.map(|record| {
            let offset = record.offset;
            (record, EntrySlot { offset, before })
        }))
    }

    /// Searches the block for `name` and, on the way, for the first free space that holds its
    /// entry.
    ///
    /// # Errors
    /// As [`DirFormat::find_or_gap`].
    pub fn find_hashed_or_gap(
        &self,
        block: &[u8],
        name: &HashedName<'_>,
    ) -> Result<NameOrGap, DirentError> {
        let need = self.needed_for(name.len)?;
        let mut gap: Option<Gap> = None;
        let is_wanted = |start, len| Self::is_hashed_name(block, start, len, name);
        let pass = |passed: &_| gap = gap.or_else(|| self.gap_of(passed, need));
        Ok(match self.first_of(block, pass, is_wanted)? {
            Some(_) => NameOrGap::Name,
            None => NameOrGap::Gap(gap),
        })
    }

    /// Returns whether the entry whose name has `len` bytes from `start` on is the one looked for.
    fn is_hashed_name(block: &[u8], start: usize, len: usize, name: &HashedName<'_>) -> bool {
        let Some(bytes) = block.get(start..start + len) else {
            return false;
        };
        let has_hash = |wanted| {
            let at = rec_len_for(len) - size_of::<DirEntryHeader>();
            entry_hash::read(&block[start..], at) == Some(wanted)
        };
        !matches!(bytes, b"." | b"..") && name.hash.is_none_or(has_hash) && (name.is_name)(bytes)
    }
}

#[cfg(test)]
mod tests;
