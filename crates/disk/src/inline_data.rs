//! Data inside of inodes (`inline_data`): the bytes of `i_block`, and behind them the value of an
//! attribute, which there always is. [`crate::inline_dir`] has what a directory keeps there.

use crate::inode::{BLOCK_AREA, InodeCore};
use crate::xattr::{Fit, NameIndex, XattrError, XattrName, XattrSet, area_entries};

/// The attribute with the second part: `system.data`.
pub const REST: XattrName<'static> = XattrName {
    index: NameIndex::SYSTEM,
    rest: b"data",
};

/// All bytes that an inode has for data, whatever its size; `None` without the attribute.
///
/// # Errors
/// The attributes in front of it cannot be read, or its value is in another inode.
pub fn bytes_inside(core: &InodeCore) -> Result<Option<Vec<u8>>, XattrError> {
    let mut bytes = core.i_block.to_vec();
    for entry in area_entries(&core.xattrs)? {
        let entry = entry?;
        if entry.name == REST {
            bytes.extend_from_slice(entry.value_here()?);
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Stores `bytes`, as many as [`bytes_inside`] has returned.
///
/// # Errors
/// The attributes cannot be read. Nothing has changed then.
pub fn put_inside(core: &mut InodeCore, bytes: &[u8]) -> Result<Fit, XattrError> {
    let (front, rest) = bytes.split_at(bytes.len().min(BLOCK_AREA));
    let mut set = XattrSet::read_with_references(area_entries(&core.xattrs)?)?;
    set.set(&REST, rest);
    let stored = set.write_area(&mut core.xattrs);
    if stored == Fit::Fits {
        core.i_block[..front.len()].copy_from_slice(front);
    }
    Ok(stored)
}
