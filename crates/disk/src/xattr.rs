//! Extended attributes: the area behind an inode's fixed fields, and the block that `i_file_acl`
//! names.
//!
//! Both hold a table of entries that grows from the start, ended by four zero bytes, and values
//! that grow from the end. The area starts with a bare magic number and keeps its entries in the
//! order of creation with value offsets from the first entry and no hashes; a block starts with a
//! header (magic, reference count, hash, checksum), keeps its entries sorted and hashed, with value
//! offsets from the start of the block, and may be shared by inodes whose attributes are equal.
//!
//! [`Entries`] walks a table without copying and stops at the first entry that is out of bounds;
//! [`XattrSet`] is a decoded table that can be changed and encoded again.

mod block;
mod entries;
mod name;
mod set;
#[cfg(test)]
mod tests;
mod xattr_error;

pub use block::{BlockHeader, XATTR_REFCOUNT_MAX, block_checksum, check_block, seal_block};
pub use entries::{Entries, Entry, ValueInode, area_entries, block_entries};
pub use name::{NameIndex, XattrName};
pub use set::{Fit, ValueRef, XattrSet};
pub use xattr_error::XattrError;

/// `h_magic` of both forms.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Bytes of the longest name behind its prefix, and of the longest full name.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes of the longest value that Linux passes on.
pub const XATTR_VALUE_MAX: usize = 65536;
