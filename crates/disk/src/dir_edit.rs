//! Changes to directory blocks: insert, remove, retarget, compact, split; new directories.
//!
//! Pure functions over the bytes of one block (two for a split). Each checks what it walks over
//! before the first byte changes, so that an error leaves the block as it was, and leaves a changed
//! block sealed.
//!
//! In a linear directory of more than one block a reader's position is a byte offset, so entries
//! there must never move: use [`DirFormat::insert`] and [`DirFormat::remove`] only.
//! [`DirFormat::compact`] and [`DirFormat::split`] are for blocks that are read in hash order.

use extant_units::Ino;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::dir_gap::Gap;
use crate::dir_hash::DirHash;
use crate::dirent::{
    DOT_LEN, DirEntryHeader, DirFormat, DirentError, EntrySlot, FileType, Glimpse, rec_len_for,
};
use crate::entry_hash;

/// An entry to be written: a name of 1 to 255 bytes and where it leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode.
    pub ino: Ino,
    /// The kind of file; written only with the `filetype` feature.
    pub file_type: FileType,
    /// The hash of the name, in a directory whose entries have them ([`DirFormat::hashes`]).
    pub hash: Option<DirHash>,
}

impl NewEntry<'_> {
    /// The record length that it needs.
    const fn rec_len(&self) -> usize {
        rec_len_for(self.name.len()) + entry_hash::room_of(self.hash)
    }
}

/// The outcome of [`DirFormat::split`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafSplit {
    /// The block for the lower hashes: replaces the one that was full.
    pub low: Vec<u8>,
    /// The block for the higher ones: new.
    pub high: Vec<u8>,
    /// The key of `high` in the index; its lowest bit says that `low` ends with the same hash.
    pub key: u32,
}

impl DirFormat {
    /// Puts `entry` into the first free space that holds it. Returns where, or `None` if there is
    /// none.
    ///
    /// # Errors
    /// A broken record, or a name that is empty or too long.
    pub fn insert(
        &self,
        block: &mut [u8],
        entry: &NewEntry<'_>,
    ) -> Result<Option<usize>, DirentError> {
        self.check_size(block)?;
        let gap = self.find_gap(block, entry.name)?;
        Ok(gap.map(|gap| self.fill(block, gap, entry)))
    }

    /// Puts `entry` into `gap`, which a search for its name found. Returns where, or `None` if the
    /// gap is not there any more.
    ///
    /// # Errors
    /// A name that is empty or too long.
    pub fn insert_into(
        &self,
        block: &mut [u8],
        gap: Gap,
        entry: &NewEntry<'_>,
    ) -> Result<Option<usize>, DirentError> {
        self.check_size(block)?;
        let fits = gap.len() >= self.needed_for(entry.name.len())? && self.has_gap(block, gap);
        Ok(fits.then(|| self.fill(block, gap, entry)))
    }

    /// Puts `entry` into `gap`, which the block has. Returns where.
    fn fill(&self, block: &mut [u8], gap: Gap, entry: &NewEntry<'_>) -> usize {
        if gap.used > 0 {
            self.set_rec_len(block, gap.offset, gap.used);
        }
        let at = gap.offset + gap.used;
        self.put(block, at, gap.len(), entry);
        self.seal_leaf(block);
        at
    }

    /// Removes the entry at `offset`: its space goes to the record before it, or becomes a free
    /// record if it is the block's first.
    ///
    /// # Errors
    /// A broken record before it; [`DirentError::NoEntry`] if no entry starts there.
    pub fn remove(&self, block: &mut [u8], offset: usize) -> Result<(), DirentError> {
        self.check_size(block)?;
        let mut before = None;
        let found = self.scan(block, |glimpse| {
            if glimpse.offset < offset {
                before = Some(glimpse);
                return None;
            }
            Some((glimpse.offset == offset && glimpse.in_use).then_some(glimpse))
        })?;
        let entry = found.flatten().ok_or(DirentError::NoEntry { offset })?;
        self.take_out(block, before, entry);
        Ok(())
    }

    /// Removes the entry at `slot`, as [`DirFormat::remove`] does, without a walk over the block.
    ///
    /// # Errors
    /// As [`DirFormat::remove`], if the block is not as the search left it.
    pub fn remove_slot(&self, block: &mut [u8], slot: EntrySlot) -> Result<(), DirentError> {
        self.check_size(block)?;
        let entry = self.glimpse_again(block, slot.offset);
        let before = slot.before.map(|at| self.glimpse_again(block, at));
        match (before, entry) {
            (None, Some(entry)) if entry.in_use && entry.offset == 0 => {
                self.take_out(block, None, entry);
                Ok(())
            }
            (Some(Some(before)), Some(entry)) if entry.in_use && before.end() == entry.offset => {
                self.take_out(block, Some(before), entry);
                Ok(())
            }
            _ => self.remove(block, slot.offset),
        }
    }

    /// Gives the space of `entry` to the record before it.
    fn take_out(&self, block: &mut [u8], before: Option<Glimpse>, entry: Glimpse) {
        if let Some(bytes) = block.get_mut(entry.offset..entry.end()) {
            bytes.fill(0); // a removed name does not linger on the disk
        }
        match before {
            Some(before) => self.set_rec_len(block, before.offset, entry.end() - before.offset),
            None => self.put_free(block, entry.offset, entry.rec_len),
        }
        self.seal_leaf(block);
    }

    /// Lets the entry at `offset` lead to another inode.
    ///
    /// # Errors
    /// A broken record before it; [`DirentError::NoEntry`] if no entry starts there.
    pub fn retarget(
        &self,
        block: &mut [u8],
        offset: usize,
        ino: Ino,
        file_type: FileType,
    ) -> Result<(), DirentError> {
        self.check_size(block)?;
        let found = self
            .records(block)
            .take_while(|r| r.as_ref().is_ok_and(|r| r.offset <= offset))
            .any(|r| r.is_ok_and(|r| r.offset == offset && r.ino.is_some()));
        if !found {
            return Err(DirentError::NoEntry { offset });
        }
        self.set_target(block, offset, ino, file_type);
        self.seal_leaf(block);
        Ok(())
    }

    /// Bytes that would be free in one piece after [`DirFormat::compact`].
    ///
    /// # Errors
    /// A broken record.
    pub fn free_bytes(&self, block: &[u8]) -> Result<usize, DirentError> {
        self.records(block)
            .try_fold(0, |sum, r| r.map(|r| sum + (r.rec_len - r.used())))
    }

    /// Moves all entries to the block's front, so that its free space is one piece.
    ///
    /// # Errors
    /// A broken record.
    pub fn compact(&self, block: &mut [u8]) -> Result<(), DirentError> {
        self.check_size(block)?;
        let source = block.to_vec();
        let entries: Vec<_> = self.entries(&source)?;
        self.pack(block, entries.into_iter());
        Ok(())
    }

    /// Returns whether `entry` fits into the block after [`DirFormat::compact`].
    ///
    /// # Errors
    /// A broken record, or a name that is empty or too long.
    pub fn fits_compacted(&self, block: &[u8], entry: &NewEntry<'_>) -> Result<bool, DirentError> {
        Ok(self.free_bytes(block)? >= self.needed_for(entry.name.len())?)
    }

    /// Divides the entries of `source`, and `incoming`, by hash over two blocks.
    ///
    /// The halves are as equal as the names allow; a division between two names of the same hash
    /// costs readers an extra block, so that one elsewhere is preferred if it is not much worse.
    /// `hash` is for names whose entries do not have it.
    ///
    /// # Errors
    /// A broken record; a bad name. [`DirentError::NoEntry`] if there is nothing to divide: an
    /// entry that does not fit into a compacted block of 1 KiB or more leaves at least two to
    /// divide.
    pub fn split(
        &self,
        source: &[u8],
        incoming: &NewEntry<'_>,
        hash: impl Fn(&[u8]) -> u32,
    ) -> Result<LeafSplit, DirentError> {
        self.check_size(source)?;
        self.needed_for(incoming.name.len())?;
        let mut entries: Vec<_> = self
            .entries(source)?
            .into_iter()
            .chain([*incoming])
            .map(|entry| {
                let stored = entry.hash.map(|hash| hash.major);
                (stored.unwrap_or_else(|| hash(entry.name)), entry)
            })
            .collect();
        entries.sort_by_key(|(hash, _)| *hash);
        let room = self.entries_end();
        let total: usize = entries.iter().map(|(_, e)| e.rec_len()).sum();
        let mut low_bytes = 0;
        let mut best: Option<(usize, usize)> = None;
        for (at, pair) in entries.windows(2).enumerate() {
            let [(before, entry), (after, _)] = pair else {
                continue;
            };
            low_bytes += entry.rec_len();
            let larger = low_bytes.max(total - low_bytes);
            let cost = larger + if before == after { room / 4 } else { 0 };
            if larger <= room && best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, at + 1));
            }
        }
        let (_, at) = best.ok_or(DirentError::NoEntry { offset: 0 })?;
        let (lower, higher) = entries.split_at(at);
        let (Some((last, _)), Some((first, _))) = (lower.last(), higher.first()) else {
            return Err(DirentError::NoEntry { offset: 0 });
        };
        let key = first | u32::from(last == first);
        let mut low = vec![0; self.block_size.bytes()];
        let mut high = vec![0; self.block_size.bytes()];
        self.pack(&mut low, lower.iter().map(|(_, e)| *e));
        self.pack(&mut high, higher.iter().map(|(_, e)| *e));
        Ok(LeafSplit { low, high, key })
    }

    /// A block of nothing but free space.
    pub fn init_leaf(&self, block: &mut [u8]) {
        self.pack(block, core::iter::empty());
    }

    /// The first block of a new directory: "." and "..".
    pub fn init_first(&self, block: &mut [u8], own: Ino, parent: Ino) {
        self.pack(block, [dot(b".", own), dot(b"..", parent)].into_iter());
    }

    /// Writes "." and ".." at the block's start, ".." with a record of `dotdot_len` bytes. No seal.
    pub(crate) fn put_dots(&self, block: &mut [u8], own: Ino, parent: Ino, dotdot_len: usize) {
        self.put(block, 0, DOT_LEN, &dot(b".", own));
        self.put(block, DOT_LEN, dotdot_len, &dot(b"..", parent));
    }

    /// Puts the records `entries`, as an inode stores them, behind the "." and ".." of a block, and
    /// free space behind them. False if there is no room.
    pub(crate) fn follow_dots(&self, block: &mut [u8], entries: &[u8]) -> bool {
        let start = 2 * DOT_LEN;
        let end = start + entries.len();
        let rest = self.entries_end().saturating_sub(end);
        if rest < rec_len_for(1) || !rest.is_multiple_of(4) {
            return false;
        }
        self.set_rec_len(block, DOT_LEN, DOT_LEN);
        block[start..end].copy_from_slice(entries);
        self.put_free(block, end, rest);
        self.seal_leaf(block);
        true
    }

    /// The entries of a block.
    pub(crate) fn entries<'a>(&self, block: &'a [u8]) -> Result<Vec<NewEntry<'a>>, DirentError> {
        let mut entries = Vec::new();
        for record in self.records(block) {
            let record = record?;
            if let Some(ino) = record.ino {
                entries.push(NewEntry {
                    name: record.name,
                    ino,
                    file_type: record.file_type,
                    hash: record.hash,
                });
            }
        }
        Ok(entries)
    }

    /// Fills `block` with `entries`, which must fit before [`DirFormat::entries_end`]; the last one
    /// owns the free space.
    pub fn pack<'a>(&self, block: &mut [u8], entries: impl Iterator<Item = NewEntry<'a>>) {
        block.fill(0);
        let end = self.entries_end();
        let (mut offset, mut last) = (0, None);
        for entry in entries {
            let len = entry.rec_len();
            self.put(block, offset, len, &entry);
            last = Some(offset);
            offset += len;
        }
        debug_assert!(offset <= end, "the caller checked that the entries fit");
        match last {
            Some(start) => {
                debug_assert!(start <= end, "entries lie in front of their end");
                self.set_rec_len(block, start, end.saturating_sub(start));
            }
            None => self.put_free(block, 0, end),
        }
        self.seal_leaf(block);
    }

    pub(crate) fn put(
        &self,
        block: &mut [u8],
        offset: usize,
        rec_len: usize,
        entry: &NewEntry<'_>,
    ) {
        let Some(space) = block.get_mut(offset..offset + rec_len) else {
            debug_assert!(false, "within the block");
            return;
        };
        let Ok((header, rest)) = DirEntryHeader::mut_from_prefix(space) else {
            return;
        };
        *header = DirEntryHeader {
            inode: U32::new(entry.ino.get()),
            rec_len: U16::new(self.encode_rec_len(rec_len)),
            name_len: u8::try_from(entry.name.len()).expect("a name has at most 255 bytes"),
            file_type: self.stored_type(entry.file_type),
        };
        if let Some(name) = rest.get_mut(..entry.name.len()) {
            name.copy_from_slice(entry.name);
        }
        // Padding after the name keeps no bytes of an entry that was here before.
        if let Some(padding) = rest.get_mut(entry.name.len()..rec_len_for(entry.name.len()) - 8) {
            padding.fill(0);
        }
        if let Some(hash) = entry.hash {
            entry_hash::write(space, rec_len_for(entry.name.len()), hash);
        }
    }

    pub(crate) fn put_free(&self, block: &mut [u8], offset: usize, rec_len: usize) {
        let header = DirEntryHeader {
            inode: U32::ZERO,
            rec_len: U16::new(self.encode_rec_len(rec_len)),
            name_len: 0,
            file_type: 0,
        };
        if let Some(space) = block.get_mut(offset..) {
            let _ = header.write_to_prefix(space);
        }
    }

    pub(crate) fn set_rec_len(&self, block: &mut [u8], offset: usize, rec_len: usize) {
        let raw = self.encode_rec_len(rec_len);
        if let Some(header) = header_mut(block, offset) {
            header.rec_len = U16::new(raw);
        }
    }

    /// Lets the record at `offset` lead elsewhere, without a seal.
    pub(crate) fn set_target(&self, block: &mut [u8], offset: usize, ino: Ino, kind: FileType) {
        let raw = self.stored_type(kind);
        if let Some(header) = header_mut(block, offset) {
            header.inode = U32::new(ino.get());
            header.file_type = raw;
        }
    }

    const fn stored_type(&self, file_type: FileType) -> u8 {
        if self.file_type { file_type as u8 } else { 0 }
    }
}

/// "." or "..".
const fn dot(name: &[u8], ino: Ino) -> NewEntry<'_> {
    NewEntry {
        name,
        ino,
        file_type: FileType::Directory,
        hash: None,
    }
}

fn header_mut(block: &mut [u8], offset: usize) -> Option<&mut DirEntryHeader> {
    let (header, _) = DirEntryHeader::mut_from_prefix(block.get_mut(offset..)?).ok()?;
    Some(header)
}

#[cfg(test)]
mod tests;
