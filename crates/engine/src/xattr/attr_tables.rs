//! The two tables of an inode's attributes, and the choice of where a value goes.
//!
//! A value goes into the inode if it fits there, else into the attribute block. With `ea_inode` the
//! values in the block leave a part of it to names, as in Linux, and a value that finds no space
//! goes into an inode of its own; its entry then goes into the inode if it fits there, else into
//! the block.

use extant_disk::xattr::{
    Entries, Fit, ValueRef, XattrError, XattrName, XattrSet, area_entries, block_entries,
};

use super::attr_block::read_block;
use super::locked_attrs::LockedAttrs;
use super::{shared_blocks, value_store};
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Part of a block that values leave to entries with `ea_inode`, and its upper bound in bytes.
const RESERVED_PART: usize = 8;
const MAX_RESERVED: usize = 1024;

/// The attributes in the inode and in its block, decoded.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AttrTables {
    pub(super) area: XattrSet,
    pub(super) block: XattrSet,
}

/// Runs `f` on the table inside of the inode.
pub(super) fn with_area<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    f: impl FnOnce(Entries<'_>) -> Result<R, XattrError>,
) -> Result<R> {
    let inode = attrs.inode();
    let result = {
        let core = inode.core.read();
        area_entries(&core.xattrs).and_then(f)
    };
    result.map_err(|e| {
        let error = Error::corrupt(Location::Inode(inode.ino), e);
        fs.fault.report(fs, &error);
        error
    })
}

/// Runs `f` on the table in the inode's block; `None` if it has none.
pub(super) fn with_block<G, R>(
    fs: &Fs,
    attrs: &LockedAttrs<'_, G>,
    f: impl FnOnce(Entries<'_>) -> Result<R, XattrError>,
) -> Result<Option<R>> {
    let inode = attrs.inode();
    let pblk = inode.core.read().file_acl;
    if pblk.get() == 0 {
        return Ok(None);
    }
    let block = read_block(fs, inode.ino, pblk)?;
    let bytes = block.data();
    shared_blocks::remember(fs, pblk, &bytes);
    let result = block_entries(&bytes).and_then(f);
    result.map(Some).map_err(|e| {
        let error = Error::corrupt(Location::XattrBlock(inode.ino, pblk), e);
        fs.fault.report(fs, &error);
        error
    })
}

/// Decodes a table. Without `ea_inode` a value elsewhere is damage.
pub(super) fn decode(fs: &Fs, entries: Entries<'_>) -> Result<XattrSet, XattrError> {
    match value_store::is_enabled(fs) {
        true => XattrSet::read_with_references(entries),
        false => XattrSet::read(entries),
    }
}

impl AttrTables {
    /// Those of an inode.
    ///
    /// # Errors
    /// Damage; a failed read.
    pub(super) fn read<G>(fs: &Fs, attrs: &LockedAttrs<'_, G>) -> Result<Self> {
        let area = with_area(fs, attrs, |entries| decode(fs, entries))?;
        let block = with_block(fs, attrs, |entries| decode(fs, entries))?;
        let block = block.unwrap_or_default();
        Ok(Self { area, block })
    }

    /// Number of values in inodes of their own.
    pub(super) fn count_elsewhere(&self) -> usize {
        self.area.elsewhere().count() + self.block.elsewhere().count()
    }

    /// The reference of `name`, if its value is elsewhere.
    pub(super) fn reference(&self, name: &XattrName<'_>) -> Option<ValueRef> {
        let found = self.area.reference(name);
        found.or_else(|| self.block.reference(name)).copied()
    }

    /// Removes `name`, if it is there.
    pub(super) fn remove(&mut self, name: &XattrName<'_>) {
        self.area.remove(name);
        self.block.remove(name);
    }

    /// Sets `name` to `value`, in the inode's `area_len` bytes or in the block. If it fits neither,
    /// `name` is gone.
    pub(super) fn set(
        &mut self,
        fs: &Fs,
        name: &XattrName<'_>,
        value: &[u8],
        area_len: usize,
    ) -> Fit {
        self.area.set(name, value);
        if self.area.fits_area(area_len) == Fit::Fits {
            self.block.remove(name);
            return Fit::Fits;
        }
        self.area.remove(name);
        self.block.set(name, value);
        let size = fs.layout.block_size.bytes();
        let reserved = match value_store::is_enabled(fs) && !value.is_empty() {
            true => (size / RESERVED_PART).min(MAX_RESERVED),
            false => 0,
        };
        let fit = self.block.fits_block(size);
        if fit == Fit::Fits && self.block.value_bytes() <= size - reserved {
            return Fit::Fits;
        }
        self.block.remove(name);
        Fit::TooLarge
    }

    /// Sets `name` to the value that `at` refers to, in the inode or in the block. If the entry
    /// fits neither, `name` is gone.
    pub(super) fn refer(
        &mut self,
        fs: &Fs,
        name: &XattrName<'_>,
        at: ValueRef,
        area_len: usize,
    ) -> Fit {
        self.remove(name);
        self.area.refer(name, at);
        if self.area.fits_area(area_len) == Fit::Fits {
            return Fit::Fits;
        }
        self.area.remove(name);
        self.block.refer(name, at);
        let fit = self.block.fits_block(fs.layout.block_size.bytes());
        if fit == Fit::TooLarge {
            self.block.remove(name);
        }
        fit
    }
}
