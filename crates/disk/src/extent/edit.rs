//! Edits of one node's bytes.

use core::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::node::tail_offset;
use super::{ENTRY_BYTES, ExtentError, MAGIC, MAX_DEPTH, Node, RawHeader, Slot, Tail};
use crate::csum::Crc32c;

/// A node that is being changed. Every method keeps `eh_entries` right and zeroes the slots it
/// vacates; none looks at the order of entries. The checksum is set at the end, by
/// [`set_checksum`].
#[derive(Debug)]
pub struct NodeMut<'a> {
    header: &'a mut RawHeader,
    slots: &'a mut [Slot],
}

impl<'a> NodeMut<'a> {
    /// Makes an empty node of `bytes` (60 or a block). The bytes after the header are left alone.
    pub fn init(bytes: &'a mut [u8], depth: u16, max: u16) -> Result<Self, ExtentError> {
        let len = bytes.len();
        // Bytes that are too short for a header hold no entry.
        let capacity = len.saturating_sub(ENTRY_BYTES) / ENTRY_BYTES;
        if max == 0 || usize::from(max) > capacity {
            // For the error alone: bytes may hold more entries than a header can count.
            let capacity = u16::try_from(capacity).unwrap_or(u16::MAX);
            return Err(ExtentError::BadMax { max, capacity });
        }
        if depth > MAX_DEPTH {
            return Err(ExtentError::BadDepth {
                found: depth,
                expected: MAX_DEPTH,
            });
        }
        let header = RawHeader {
            magic: U16::new(MAGIC),
            entries: U16::new(0),
            max: U16::new(max),
            depth: U16::new(depth),
            generation: U32::new(0),
        };
        header
            .write_to_prefix(bytes)
            .map_err(|_| ExtentError::TooShort { len })?;
        Self::open(bytes)
    }

    /// Opens a node for changes. Looks at the header alone.
    pub fn open(bytes: &'a mut [u8]) -> Result<Self, ExtentError> {
        let max = usize::from(Node::open(bytes)?.max());
        let short = ExtentError::TooShort { len: bytes.len() };
        let (header, rest) = RawHeader::mut_from_prefix(bytes).map_err(|_| short)?;
        let (slots, _) = rest.as_chunks_mut::<ENTRY_BYTES>();
        let slots = slots.get_mut(..max).ok_or(short)?;
        Ok(Self { header, slots })
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        usize::from(self.header.entries.get())
    }

    /// Returns whether the node has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces entry `at`.
    pub fn set(&mut self, at: usize, slot: Slot) -> Result<(), ExtentError> {
        let entries = self.header.entries.get();
        let place = self.slots.get_mut(at).filter(|_| at < usize::from(entries));
        *place.ok_or(ExtentError::NoSuchEntry { index: at, entries })? = slot;
        Ok(())
    }

    /// Inserts `new` before entry `at` (or at the end).
    pub fn insert(&mut self, at: usize, new: &[Slot]) -> Result<(), ExtentError> {
        let entries = self.len();
        if at > entries {
            return Err(ExtentError::NoSuchEntry {
                index: at,
                entries: self.header.entries.get(),
            });
        }
        let full = ExtentError::Full {
            max: self.header.max.get(),
        };
        let total = entries + new.len();
        let moved = self.slots.get_mut(at..total).ok_or(full)?;
        let shift = new.len();
        moved.copy_within(..entries - at, shift);
        moved.get_mut(..shift).ok_or(full)?.copy_from_slice(new);
        self.set_len(total)
    }

    /// Removes a range of entries.
    pub fn remove(&mut self, range: Range<usize>) -> Result<(), ExtentError> {
        let entries = self.len();
        let count = range.len();
        let bad = ExtentError::NoSuchEntry {
            index: range.end,
            entries: self.header.entries.get(),
        };
        let live = self.slots.get_mut(..entries).ok_or(bad)?;
        if range.end > entries || range.start > range.end {
            return Err(bad);
        }
        live.copy_within(range.end.., range.start);
        let left = entries - count;
        live.get_mut(left..).ok_or(bad)?.fill([0; ENTRY_BYTES]);
        self.set_len(left)
    }

    /// Replaces all entries.
    pub fn replace_all(&mut self, new: &[Slot]) -> Result<(), ExtentError> {
        let entries = self.len();
        self.remove(0..entries)?;
        self.insert(0, new)
    }

    /// Sets `eh_depth`, for a root that grows or shrinks.
    pub fn set_depth(&mut self, depth: u16) -> Result<(), ExtentError> {
        if depth > MAX_DEPTH {
            return Err(ExtentError::BadDepth {
                found: depth,
                expected: MAX_DEPTH,
            });
        }
        self.header.depth = U16::new(depth);
        Ok(())
    }

    fn set_len(&mut self, len: usize) -> Result<(), ExtentError> {
        let max = self.header.max.get();
        let len = u16::try_from(len).map_err(|_| ExtentError::Full { max })?;
        self.header.entries = U16::new(len);
        Ok(())
    }
}

/// Sets the checksum of a block, after its last change. `seed` is its owner's.
pub fn set_checksum(block: &mut [u8], seed: Crc32c) -> Result<(), ExtentError> {
    let offset = tail_offset(block)?;
    let short = ExtentError::TooShort { len: block.len() };
    let (covered, rest) = block.split_at_mut_checked(offset).ok_or(short)?;
    let checksum = U32::new(seed.feed(covered).raw());
    Tail { checksum }.write_to_prefix(rest).map_err(|_| short)
}
