//! Walking a table of attributes in place.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::HEADER_SIZE;
use super::{NameIndex, XATTR_MAGIC, XattrError, XattrName};

/// The fixed part of an entry (`ext4_xattr_entry`): the name follows, padded to four bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RawEntry {
    /// Bytes of the name.
    pub(super) name_len: u8,
    /// Prefix.
    pub(super) name_index: u8,
    /// Byte at which the value starts.
    pub(super) value_offs: U16,
    /// Inode of the value; zero for one in here.
    pub(super) value_inum: U32,
    /// Bytes of the value.
    pub(super) value_size: U32,
    /// Hash of name and value; zero in an inode.
    pub(super) hash: U32,
}

pub(super) const ENTRY_SIZE: usize = size_of::<RawEntry>();
/// Bytes of the magic number before an inode's entries.
pub(super) const AREA_HEADER: usize = 4;
/// Bytes that end a table.
pub(super) const TERMINATOR: usize = 4;
const PAD: usize = 4;

const _: () = assert!(ENTRY_SIZE == 16);
const _: () = assert!(offset_of!(RawEntry, value_size) == 8);

/// `len` rounded up to the padding of names and values.
pub(super) const fn padded(len: usize) -> usize {
    len.div_ceil(PAD) * PAD
}

/// A value in an inode of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueInode {
    /// Byte at which the attribute's entry starts.
    pub offset: usize,
    /// `e_value_inum`, not zero.
    pub inode: u32,
    /// Bytes of the value.
    pub size: u32,
    /// The stored hash of name and value.
    pub hash: u32,
}

/// One attribute, in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: XattrName<'a>,
    /// Its value; nothing if an inode of its own has it.
    pub value: &'a [u8],
    /// The inode that has the value, with the feature `ea_inode`.
    pub elsewhere: Option<ValueInode>,
    /// The value with the bytes that pad it, which the hash covers.
    padded: &'a [u8],
    /// The stored hash.
    pub hash: u32,
}

impl ValueInode {
    /// That the attribute keeps its value there, as damage.
    pub fn damage(&self) -> XattrError {
        XattrError::ValueInode {
            offset: self.offset,
            inode: self.inode,
        }
    }

    /// Returns whether the stored hash is that of the attribute `name` whose value has the hash
    /// `value`: of the name's bytes, or as Linux had it before 6.2, of bytes with signs.
    pub fn is_hash_of(&self, name: &XattrName<'_>, value: u32) -> bool {
        let value = value.to_le_bytes();
        let signed = super::block::signed_entry_hash(name.rest, &value);
        [super::block::entry_hash(name.rest, &value), signed].contains(&self.hash)
    }
}

impl<'a> Entry<'a> {
    /// The value, for callers that know no other inodes.
    ///
    /// # Errors
    /// The value is in an inode of its own.
    pub fn value_here(&self) -> Result<&'a [u8], XattrError> {
        match self.elsewhere {
            None => Ok(self.value),
            Some(elsewhere) => Err(elsewhere.damage()),
        }
    }

    /// The hash of name and value. In a block it must be the stored one; in an inode zero stands
    /// for "no hash".
    pub fn computed_hash(&self) -> u32 {
        super::block::entry_hash(self.name.rest, self.padded)
    }
}

/// The attributes of a table, in order. After an error it ends.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    /// Area or block.
    bytes: &'a [u8],
    /// Byte at which the next entry starts.
    at: usize,
    /// Byte that value offsets are relative to.
    base: usize,
    /// No value may start before: just behind the table's end.
    values_from: usize,
}

/// The attributes in the area behind an inode's fixed fields. An area without the magic number has
/// none.
///
/// # Errors
/// The table has no end within the area.
pub fn area_entries(area: &[u8]) -> Result<Entries<'_>, XattrError> {
    match U32::ref_from_prefix(area) {
        Ok((magic, _)) if magic.get() == XATTR_MAGIC => {
            Entries::new(area, AREA_HEADER, AREA_HEADER)
        }
        _ => Ok(Entries::empty()),
    }
}

/// The attributes in a block whose header was checked.
///
/// # Errors
/// The table has no end within the block.
pub fn block_entries(block: &[u8]) -> Result<Entries<'_>, XattrError> {
    Entries::new(block, HEADER_SIZE, 0)
}

impl<'a> Entries<'a> {
    const fn empty() -> Self {
        Entries {
            bytes: &[],
            at: 0,
            base: 0,
            values_from: 0,
        }
    }

    fn new(bytes: &'a [u8], first: usize, base: usize) -> Result<Self, XattrError> {
        // Find the end of the table first: values must lie behind it. Every step moves on by 16
        // bytes or more.
        let mut at = first;
        while let Some((_, next)) = raw_at(bytes, at)? {
            at = next;
        }
        Ok(Self {
            bytes,
            at: first,
            base,
            values_from: at + TERMINATOR,
        })
    }

    fn entry(&self, raw: &RawEntry) -> Result<Entry<'a>, XattrError> {
        let offset = self.at;
        let start = offset + ENTRY_SIZE;
        let rest = self
            .bytes
            .get(start..start + usize::from(raw.name_len))
            .ok_or(XattrError::Entry { offset })?;
        // Without prefix and name it could not be told from the table's end once it is written
        // again.
        if rest.contains(&0) || (raw.name_index == 0 && rest.is_empty()) {
            return Err(XattrError::Name { offset });
        }
        let size = raw.value_size.get();
        let elsewhere = (raw.value_inum.get() != 0).then(|| ValueInode {
            offset,
            inode: raw.value_inum.get(),
            size,
            hash: raw.hash.get(),
        });
        let wrong = XattrError::Value { offset, size };
        let (value, padded) = if size == 0 || elsewhere.is_some() {
            (&[][..], &[][..])
        } else {
            let from = self.base + usize::from(raw.value_offs.get());
            let len = usize::try_from(size).map_err(|_| wrong)?;
            let end = from
                .checked_add(len.checked_next_multiple_of(PAD).ok_or(wrong)?)
                .ok_or(wrong)?;
            if from < self.values_from || end > self.bytes.len() {
                return Err(wrong);
            }
            let padded = self.bytes.get(from..end).ok_or(wrong)?;
            (padded.get(..len).ok_or(wrong)?, padded)
        };
        Ok(Entry {
            name: XattrName {
                index: NameIndex::from_raw(raw.name_index),
                rest,
            },
            value,
            elsewhere,
            padded,
            hash: raw.hash.get(),
        })
    }

    /// The attribute called `name`, if it is there.
    ///
    /// # Errors
    /// An entry up to the wanted one is out of bounds.
    pub fn find(self, name: &XattrName<'_>) -> Result<Option<Entry<'a>>, XattrError> {
        for entry in self {
            let entry = entry?;
            if entry.name == *name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// The entry at byte `at` and where the next starts; `None` at the end of the table.
fn raw_at(bytes: &[u8], at: usize) -> Result<Option<(&RawEntry, usize)>, XattrError> {
    let out = XattrError::Entry { offset: at };
    let rest = bytes.get(at..).ok_or(out)?;
    match U32::ref_from_prefix(rest) {
        Ok((first, _)) if first.get() == 0 => return Ok(None),
        Ok(_) => {}
        Err(_) => return Err(out),
    }
    let (raw, _) = RawEntry::ref_from_prefix(rest).map_err(|_| out)?;
    let next = at + ENTRY_SIZE + padded(usize::from(raw.name_len));
    // Behind every entry there is room for the terminator.
    if next + TERMINATOR > bytes.len() {
        return Err(out);
    }
    Ok(Some((raw, next)))
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, XattrError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let item = match raw_at(self.bytes, self.at) {
            Ok(None) => None,
            Err(e) => Some(Err(e)),
            Ok(Some((raw, next))) => {
                let entry = self.entry(raw);
                self.at = next;
                Some(entry)
            }
        };
        if !matches!(item, Some(Ok(_))) {
            *self = Self::empty();
        }
        item
    }
}
