//! Data inside of an inode (feature `inline_data`), which is only read: the bytes of `i_block`, and
//! behind them the value of the attribute `system.data`.
//!
//! A directory begins with the number of its parent, and has entries in each of the two parts.

use extant_disk::damage::InodeDamage;
use extant_disk::xattr::{NameIndex, XattrName};
use extant_units::index;

use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;
use crate::xattr;

/// The attribute with the second part.
const REST: XattrName<'static> = XattrName {
    index: NameIndex::SYSTEM,
    rest: b"data",
};

/// Returns whether an inode's data is inside of it.
pub(crate) fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// The data of an inode that has it inside, as long as the inode is.
///
/// # Errors
/// Damage: it is longer than what is inside.
pub(crate) fn read(fs: &Fs, inode: &Inode) -> Result<Vec<u8>> {
    let mut bytes = inode.core.read().i_block.to_vec();
    bytes.extend(xattr::get_stored(fs, inode, &REST)?.unwrap_or_default());
    let size = inode.size();
    if size > bytes.len() as u64 {
        let error = Error::corrupt(Location::Inode(inode.ino), InodeDamage::PastInlineData);
        fs.fault.report(fs, &error);
        return Err(error);
    }
    bytes.truncate(index(size));
    Ok(bytes)
}
