//! Changes of files whose data is inside of their inode (`inline_data`).
//!
//! A write and a change of the size keep it there while it fits, in one transaction. What else
//! changes data or space first moves the data to a block ([`switch_path::leave_inode`]), after
//! which the file is like any other.
//!
//! # Locks
//! The inode's `lock` exclusively, which such files have as all of the buffer-head path.

use extant_units::{at_most_usize, index};

use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::WholeFile;
use crate::file::switch_path;
use crate::inline_data;
use crate::types::error::Result;
use crate::volume::credits;

/// Writes `bytes` at `pos` of a file whose data is inside. Returns false if the file has moved to a
/// block instead: nothing is written then.
///
/// # Errors
/// As [`switch_path::leave_inode`].
pub(in crate::file) fn write(
    cx: &FileContext<'_>,
    whole: &WholeFile<'_>,
    pos: u64,
    bytes: &[u8],
) -> Result<bool> {
    let end = pos.saturating_add(bytes.len() as u64);
    change(cx, whole, end, |data| {
        if data.len() < index(end) {
            data.resize(index(end), 0);
        }
        data[index(pos)..index(end)].copy_from_slice(bytes);
    })
}

/// Makes a file whose data is inside `size` bytes long. The rest as [`write()`].
///
/// # Errors
/// As [`switch_path::leave_inode`].
pub(in crate::file) fn set_size(
    cx: &FileContext<'_>,
    whole: &WholeFile<'_>,
    size: u64,
) -> Result<bool> {
    change(cx, whole, size, |data| data.resize(index(size), 0))
}

/// Applies `change`, which needs room for `len` bytes, to the data; or moves it to a block.
fn change(
    cx: &FileContext<'_>,
    whole: &WholeFile<'_>,
    len: u64,
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<bool> {
    let (fs, inode) = (cx.fs, cx.inode);
    if at_most_usize(len) <= inline_data::room(fs, inode)?
        && let Some(mut data) = inline_data::read(fs, inode)?
    {
        change(&mut data);
        let mut h = fs.start(credits::INODE_UPDATE)?;
        if inline_data::store(fs, &mut h, inode, &data)? {
            return Ok(true);
        }
    }
    switch_path::leave_inode(fs, whole, inode, cx.privileged)?;
    Ok(false)
}
