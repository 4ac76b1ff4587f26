//! Free space between the entries of a directory block, and the search for it beside a name.
//!
//! An insertion needs to know that the directory does not have the name, and where its entry fits.
//! [`DirFormat::find_or_gap`] answers both in one walk over the block.

use crate::dirent::{DirFormat, DirentError, Glimpse, MAX_NAME_LEN, rec_len_for};
use crate::entry_hash;

/// Free space of a block that holds an entry: the end of a record, or all of a free one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Byte of the block at which the record starts.
    pub(crate) offset: usize,
    /// Bytes of the record that its entry needs: zero for a free one.
    pub(crate) used: usize,
    /// The length of the record.
    pub(crate) rec_len: usize,
}

/// Outcome of [`DirFormat::find_or_gap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOrGap {
    /// The block has an entry of that name.
    Name,
    /// It has none. The first free space that holds one, if there is any.
    Gap(Option<Gap>),
}

impl Gap {
    /// The free bytes.
    pub(crate) const fn len(&self) -> usize {
        self.rec_len - self.used
    }
}

impl DirFormat {
    /// The free space of a record, if it has `need` bytes. As Linux does it, ".." keeps the room of
    /// a hash as well.
    #[inline]
    pub(crate) fn gap_of(&self, record: &Glimpse, need: usize) -> Option<Gap> {
        let used = if record.in_use {
            rec_len_for(record.name_len) + self.room_of_hash()
        } else {
            0
        };
        // A record that is too short for its name has no room.
        let fits = record.rec_len >= used + need;
        fits.then_some(Gap {
            offset: record.offset,
            used,
            rec_len: record.rec_len,
        })
    }

    /// The first free space of the block that holds an entry called `name` as it is, without moving
    /// others.
    ///
    /// # Errors
    /// A broken record, or a name that is empty or too long.
    pub fn find_gap(&self, block: &[u8], name: &[u8]) -> Result<Option<Gap>, DirentError> {
        let need = self.needed_for(name.len())?;
        self.scan(block, |glimpse| self.gap_of(&glimpse, need))
    }

    /// Searches the block for `name` and, on the way, for the gap of [`DirFormat::find_gap`].
    ///
    /// # Errors
    /// As [`DirFormat::find`] and [`DirFormat::find_gap`].
    pub fn find_or_gap(&self, block: &[u8], name: &[u8]) -> Result<NameOrGap, DirentError> {
        let need = self.needed_for(name.len())?;
        let mut gap = None;
        let found = self.find_past(block, name, |passed| {
            // Most entries have not even the space that the shortest would leave.
            let may_fit = !passed.in_use || passed.rec_len >= rec_len_for(1) + need;
            if may_fit && gap.is_none() {
                gap = self.gap_of(passed, need);
            }
        })?;
        Ok(match found {
            Some(_) => NameOrGap::Name,
            None => NameOrGap::Gap(gap),
        })
    }

    /// Returns whether the record of `gap` is as it was when the gap was found.
    pub(crate) fn has_gap(&self, block: &[u8], gap: Gap) -> bool {
        let record = self.glimpse_again(block, gap.offset);
        record.and_then(|record| self.gap_of(&record, gap.len())) == Some(gap)
    }

    /// The record length that an entry with a name of `len` bytes needs.
    pub(crate) const fn needed_for(&self, len: usize) -> Result<usize, DirentError> {
        if len == 0 || len > MAX_NAME_LEN {
            return Err(DirentError::Name { offset: 0 });
        }
        Ok(rec_len_for(len) + self.room_of_hash())
    }

    /// Bytes that an entry needs beside header and name.
    const fn room_of_hash(&self) -> usize {
        if self.hashes { entry_hash::BYTES } else { 0 }
    }
}

#[cfg(test)]
mod tests;
