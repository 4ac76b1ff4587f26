//! A decoded table of attributes that can be changed and encoded.

use zerocopy::IntoBytes;

use super::block::{BlockHeader, HEADER_SIZE, entry_hash, total_hash};
use super::entries::{AREA_HEADER, ENTRY_SIZE, RawEntry, TERMINATOR, padded};
use super::{Entries, NameIndex, XATTR_MAGIC, XattrError, XattrName};

/// A reference of an attribute to the inode that has its value (`ea_inode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueRef {
    /// `e_value_inum`, not zero.
    pub inode: u32,
    /// Bytes of the value.
    pub size: u32,
    /// `e_hash`: that of the name and of the value's hash.
    pub hash: u32,
}

impl ValueRef {
    /// The reference of the attribute `name` to a value of `size` bytes with the hash `value_hash`
    /// in inode `inode`.
    pub fn new(name: &XattrName<'_>, inode: u32, size: u32, value_hash: u32) -> Self {
        Self {
            inode,
            size,
            hash: entry_hash(name.rest, &value_hash.to_le_bytes()),
        }
    }
}

/// One attribute, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Owned {
    index: NameIndex,
    rest: Box<[u8]>,
    /// Empty for one elsewhere.
    value: Box<[u8]>,
    elsewhere: Option<ValueRef>,
}

impl Owned {
    fn name(&self) -> XattrName<'_> {
        XattrName {
            index: self.index,
            rest: &self.rest,
        }
    }

    /// The stored hash in a block.
    fn hash(&self) -> u32 {
        match &self.elsewhere {
            Some(at) => at.hash,
            None => entry_hash(&self.rest, &self.value),
        }
    }

    /// Bytes of entry and value.
    fn space(&self) -> usize {
        ENTRY_SIZE + padded(self.rest.len()) + padded(self.value.len())
    }
}

/// Room of a set where it is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It does.
    Fits,
    /// It needs more room.
    TooLarge,
}

/// A table of attributes, decoded. In the order of the table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct XattrSet {
    entries: Vec<Owned>,
}

impl XattrSet {
    /// Copies a table. As large as the table at most times 64: every entry has 16 bytes of its own,
    /// but values may overlap on a hostile image, so the sum is bounded too.
    ///
    /// # Errors
    /// An entry is out of bounds or has its value in another inode, or values overlap so much that
    /// they exceed any sane table.
    pub fn read(entries: Entries<'_>) -> Result<Self, XattrError> {
        for entry in entries.clone() {
            entry?.value_here()?;
        }
        Self::read_with_references(entries)
    }

    /// The same, where values may be in inodes of their own (`ea_inode`).
    ///
    /// # Errors
    /// As [`XattrSet::read`] but for that.
    pub fn read_with_references(entries: Entries<'_>) -> Result<Self, XattrError> {
        const LIMIT: usize = 1 << 20;
        let mut set = Self::default();
        let mut total = 0_usize;
        for entry in entries {
            let entry = entry?;
            // Values may overlap; a sum past the limit is damage.
            let value = entry.value;
            total = total.saturating_add(value.len());
            if total > LIMIT {
                return Err(XattrError::Value {
                    offset: 0,
                    size: u32::MAX,
                });
            }
            set.entries.push(Owned {
                index: entry.name.index,
                rest: entry.name.rest.into(),
                value: value.into(),
                elsewhere: entry.elsewhere.map(|at| ValueRef {
                    inode: at.inode,
                    size: at.size,
                    hash: at.hash,
                }),
            });
        }
        Ok(set)
    }

    /// Returns whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The attributes in order: name and value, which is empty for one elsewhere.
    pub fn iter(&self) -> impl Iterator<Item = (XattrName<'_>, &[u8])> {
        self.entries.iter().map(|e| (e.name(), &*e.value))
    }

    /// The values in inodes of their own, in order.
    pub fn elsewhere(&self) -> impl Iterator<Item = &ValueRef> {
        self.entries.iter().filter_map(|e| e.elsewhere.as_ref())
    }

    /// The reference of `name`, if its value is elsewhere.
    pub fn reference(&self, name: &XattrName<'_>) -> Option<&ValueRef> {
        let entry = self.entries.iter().find(|e| e.name() == *name)?;
        entry.elsewhere.as_ref()
    }

    /// Returns whether there is an attribute `name`.
    pub fn contains(&self, name: &XattrName<'_>) -> bool {
        self.entries.iter().any(|e| e.name() == *name)
    }

    /// Removes the first `count` attributes whose values are elsewhere, and returns their
    /// references.
    pub fn take_elsewhere(&mut self, count: usize) -> Vec<ValueRef> {
        let mut taken = Vec::new();
        self.entries.retain(|entry| match entry.elsewhere {
            Some(at) if taken.len() < count => {
                taken.push(at);
                false
            }
            _ => true,
        });
        taken
    }

    /// Padded bytes of all values in the table.
    pub fn value_bytes(&self) -> usize {
        let lens = self.entries.iter().map(|e| padded(e.value.len()));
        // More than memory holds fits nowhere.
        lens.fold(0, usize::saturating_add)
    }

    /// The value of `name`; `None` for one elsewhere.
    pub fn get(&self, name: &XattrName<'_>) -> Option<&[u8]> {
        self.entries
            .iter()
            .find(|e| e.name() == *name && e.elsewhere.is_none())
            .map(|e| &*e.value)
    }

    /// Sets `name` to `value`. A new one goes to the end.
    pub fn set(&mut self, name: &XattrName<'_>, value: &[u8]) {
        self.put(name, value, None);
    }

    /// Sets `name` to the value that `at` refers to. A new one goes to the end.
    pub fn refer(&mut self, name: &XattrName<'_>, at: ValueRef) {
        debug_assert_ne!(at.inode, 0, "a reference has an inode");
        self.put(name, &[], Some(at));
    }

    fn put(&mut self, name: &XattrName<'_>, value: &[u8], elsewhere: Option<ValueRef>) {
        let owned = Owned {
            index: name.index,
            rest: name.rest.into(),
            value: value.into(),
            elsewhere,
        };
        match self.entries.iter_mut().find(|e| e.name() == *name) {
            Some(entry) => *entry = owned,
            None => self.entries.push(owned),
        }
    }

    /// Removes `name`; whether it was there.
    pub fn remove(&mut self, name: &XattrName<'_>) -> bool {
        let before = self.entries.len();
        self.entries.retain(|e| e.name() != *name);
        self.entries.len() != before
    }

    /// Bytes of all entries with their values and the terminator.
    fn space(&self) -> usize {
        self.entries
            .iter()
            .map(Owned::space)
            // More than memory holds fits nowhere.
            .fold(TERMINATOR, usize::saturating_add)
    }

    /// Returns whether the set fits an inode's area of `bytes` bytes.
    pub fn fits_area(&self, bytes: usize) -> Fit {
        fit(self.is_empty() || AREA_HEADER + self.space() <= bytes)
    }

    /// The length of the longest value that `name` may have in an inode's area of `bytes` bytes
    /// beside the other attributes, a multiple of four; `None` if there is no room even for its
    /// entry.
    pub fn longest_in_area(&self, name: &XattrName<'_>, bytes: usize) -> Option<usize> {
        let others = self.entries.iter().filter(|e| e.name() != *name);
        let others = others.map(Owned::space).fold(0, usize::saturating_add);
        let entry = AREA_HEADER + TERMINATOR + ENTRY_SIZE + padded(name.rest.len());
        (bytes & !3).checked_sub(entry.saturating_add(others))
    }

    /// Returns whether the set fits a block of `bytes` bytes.
    pub fn fits_block(&self, bytes: usize) -> Fit {
        fit(HEADER_SIZE + self.space() <= bytes)
    }

    /// Writes the set into the area behind an inode's fixed fields. An empty set clears the area.
    pub fn write_area(&self, area: &mut [u8]) -> Fit {
        if self.fits_area(area.len()) == Fit::TooLarge {
            return Fit::TooLarge;
        }
        area.fill(0);
        if self.is_empty() {
            return Fit::Fits;
        }
        put(area, 0, &XATTR_MAGIC.to_le_bytes());
        write_table(self.entries.iter(), area, AREA_HEADER, AREA_HEADER, false);
        Fit::Fits
    }

    /// Writes the set into a block, sorted and hashed, with a reference count of one. The checksum
    /// is the caller's.
    pub fn write_block(&self, block: &mut [u8]) -> Fit {
        if self.fits_block(block.len()) == Fit::TooLarge {
            return Fit::TooLarge;
        }
        block.fill(0);
        let mut sorted: Vec<&Owned> = self.entries.iter().collect();
        sorted.sort_by(|a, b| a.name().block_order().cmp(&b.name().block_order()));
        let hash = total_hash(sorted.iter().map(|e| e.hash()));
        write_table(sorted.into_iter(), block, HEADER_SIZE, 0, true);
        if let Some(header) = BlockHeader::of_mut(block) {
            header.magic.set(XATTR_MAGIC);
            header.refcount.set(1);
            header.blocks.set(1);
            header.hash.set(hash);
        }
        Fit::Fits
    }
}

fn fit(fits: bool) -> Fit {
    if fits { Fit::Fits } else { Fit::TooLarge }
}

/// Writes entries from `first` on and values from the end back.
///
/// # Panics
/// The entries do not fit, which the caller has checked: they would overwrite one another.
fn write_table<'a>(
    entries: impl Iterator<Item = &'a Owned>,
    bytes: &mut [u8],
    first: usize,
    base: usize,
    hashed: bool,
) {
    let mut at = first;
    let mut value_at = bytes.len() & !3;
    for entry in entries {
        let mut raw = RawEntry {
            name_len: fits(u8::try_from(entry.rest.len()).ok()),
            name_index: entry.index.raw(),
            ..RawEntry::default()
        };
        if !entry.value.is_empty() {
            value_at = fits(value_at.checked_sub(padded(entry.value.len())));
            let offset = value_at.checked_sub(base);
            raw.value_offs
                .set(fits(offset.and_then(|at| u16::try_from(at).ok())));
            raw.value_size
                .set(fits(u32::try_from(entry.value.len()).ok()));
            put(bytes, value_at, &entry.value);
        }
        if let Some(at) = &entry.elsewhere {
            raw.value_inum.set(at.inode);
            raw.value_size.set(at.size);
        }
        if hashed || entry.elsewhere.is_some() {
            raw.hash.set(entry.hash());
        }
        put(bytes, at, raw.as_bytes());
        put(bytes, at + ENTRY_SIZE, &entry.rest);
        at += ENTRY_SIZE + padded(entry.rest.len());
        assert!(at + TERMINATOR <= value_at, "{TOO_LARGE}");
    }
}

/// The panic of a set that is written without room for it.
const TOO_LARGE: &str = "the caller has checked that the attributes fit";

fn fits<T>(value: Option<T>) -> T {
    value.expect(TOO_LARGE)
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}
