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

pub use block::{BlockHeader, XATTR_REFCOUNT_MAX, block_checksum, check_block, seal_block};
pub use entries::{Entries, Entry, area_entries, block_entries};
pub use name::{NameIndex, XattrName};
pub use set::{Fit, XattrSet};

/// `h_magic` of both forms.
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Bytes of the longest name behind its prefix, and of the longest full name.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes of the longest value that Linux passes on.
pub const XATTR_VALUE_MAX: usize = 65536;

/// What is wrong with a table of extended attributes. Offsets are bytes from the start of the area
/// or block.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrError {
    /// The block does not start with the magic number.
    #[error("bad attribute block magic {found:#010x}")]
    Magic {
        /// As stored.
        found: u32,
    },
    /// `h_blocks` is not one.
    #[error("attribute block claims {found} blocks")]
    Blocks {
        /// As stored.
        found: u32,
    },
    /// A reference count of zero, or more than can be.
    #[error("attribute block with reference count {found}")]
    RefCount {
        /// As stored.
        found: u32,
    },
    /// The stored checksum is not that of the bytes.
    #[error("bad attribute block checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The table has no end within its space.
    #[error("attribute entry at byte {offset} runs past the end")]
    Entry {
        /// Where the entry starts.
        offset: usize,
    },
    /// A name with a NUL inside, or none at all.
    #[error("attribute entry at byte {offset} has an impossible name")]
    Name {
        /// Where the entry starts.
        offset: usize,
    },
    /// A value that overlaps the table or runs past the end.
    #[error("attribute entry at byte {offset} has a value of {size} bytes out of bounds")]
    Value {
        /// Where the entry starts.
        offset: usize,
        /// `e_value_size`.
        size: u32,
    },
    /// A value in an inode of its own (`ea_inode`).
    #[error("attribute entry at byte {offset} keeps its value in inode {inode}")]
    ValueInode {
        /// Where the entry starts.
        offset: usize,
        /// `e_value_inum`.
        inode: u32,
    },
}
