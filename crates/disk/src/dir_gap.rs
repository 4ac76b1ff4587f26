//! Free space between the entries of a directory block, and the search for it beside a name.
//!
//! An insertion needs to know that the directory does not have the name, and where its entry fits.
//! [`DirFormat::find_or_gap`] answers both in one walk over the block.

use crate::dirent::{DirFormat, DirentError, Glimpse, MAX_NAME_LEN, rec_len_for};

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

impl Glimpse {
    /// The free space of the record, if it has `need` bytes.
    #[inline]
    fn gap(&self, need: usize) -> Option<Gap> {
        let used = if self.in_use {
            rec_len_for(self.name_len)
        } else {
            0
        };
        // A record that is too short for its name has no room.
        let fits = self.rec_len >= used + need;
        fits.then_some(Gap {
            offset: self.offset,
            used,
            rec_len: self.rec_len,
        })
    }
}

impl DirFormat {
    /// The first free space of the block that holds an entry called `name` as it is, without moving
    /// others.
    ///
    /// # Errors
    /// A broken record, or a name that is empty or too long.
    pub fn find_gap(&self, block: &[u8], name: &[u8]) -> Result<Option<Gap>, DirentError> {
        let need = needed(name)?;
        self.scan(block, |glimpse| glimpse.gap(need))
    }

    /// Searches the block for `name` and, on the way, for the gap of [`DirFormat::find_gap`].
    ///
    /// # Errors
    /// As [`DirFormat::find`] and [`DirFormat::find_gap`].
    pub fn find_or_gap(&self, block: &[u8], name: &[u8]) -> Result<NameOrGap, DirentError> {
        let need = needed(name)?;
        let mut gap = None;
        let found = self.find_past(block, name, |passed| {
            // Most entries have not even the space that the shortest would leave.
            let may_fit = !passed.in_use || passed.rec_len >= rec_len_for(1) + need;
            if may_fit && gap.is_none() {
                gap = passed.gap(need);
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
        record.and_then(|record| record.gap(gap.len())) == Some(gap)
    }
}

/// The record length that an entry called `name` needs.
pub(crate) const fn needed(name: &[u8]) -> Result<usize, DirentError> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        return Err(DirentError::Name { offset: 0 });
    }
    Ok(rec_len_for(name.len()))
}

#[cfg(test)]
mod tests;
