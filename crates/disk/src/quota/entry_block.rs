//! A block of entries: a header (`struct qt_disk_dqdbheader`) and 14 entries.

use core::mem::size_of;

use extant_units::exact_u16;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::RawQuotaEntry;
use super::{BLOCK, QuotaBlock, QuotaEntry};

/// Entries of a block.
pub(super) const ENTRIES: usize = (BLOCK - size_of::<EntryHeader>()) / size_of::<RawQuotaEntry>();

/// The lists that a block of entries is in, and its count.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct EntryHeader {
    /// The next block with room (or, of a block without use, the next such one).
    pub(super) next_free: U32,
    /// The block with room before it.
    pub(super) prev_free: U32,
    /// Entries in use.
    pub(super) entries: U16,
    pad: [u8; 6],
}

const _: () = assert!(size_of::<EntryHeader>() == 16);
const _: () = assert!(ENTRIES == 14);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct EntryBlock {
    pub(super) header: EntryHeader,
    entries: [RawQuotaEntry; ENTRIES],
}

const _: () = assert!(size_of::<EntryBlock>() == BLOCK);

impl EntryBlock {
    pub(super) fn of(block: &QuotaBlock) -> Self {
        zerocopy::transmute!(*block)
    }

    pub(super) fn into_bytes(self) -> QuotaBlock {
        zerocopy::transmute!(self)
    }

    /// The entries in use, with their places in the block.
    pub(super) fn used(&self) -> impl Iterator<Item = (usize, QuotaEntry)> + '_ {
        let used =
            |(_, raw): &(usize, &RawQuotaEntry)| raw.as_bytes().iter().any(|byte| *byte != 0);
        let places = self.entries.iter().enumerate().filter(used);
        places.map(|(index, raw)| (index, QuotaEntry::decode(raw)))
    }

    /// The number of entries in use.
    pub(super) fn in_use(&self) -> u16 {
        exact_u16(self.used().count() as u64)
    }

    /// The first free place.
    pub(super) fn free(&self) -> Option<usize> {
        let free = |raw: &RawQuotaEntry| raw.as_bytes().iter().all(|byte| *byte == 0);
        self.entries.iter().position(free)
    }

    pub(super) fn set(&mut self, index: usize, entry: &QuotaEntry) {
        if let Some(raw) = self.entries.get_mut(index) {
            *raw = entry.encode();
        }
    }
}

/// The first byte of the entry at `index` in its block.
pub(super) const fn offset(index: usize) -> usize {
    size_of::<EntryHeader>() + index * size_of::<RawQuotaEntry>()
}
