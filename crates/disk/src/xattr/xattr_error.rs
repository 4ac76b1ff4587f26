//! Damage of attributes on disk.

/// Damage of a table of extended attributes. Offsets are bytes from the start of the area
/// or block.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
        /// Byte at which the entry starts.
        offset: usize,
    },
    /// A name with a NUL inside, or none at all.
    #[error("attribute entry at byte {offset} has an impossible name")]
    Name {
        /// Byte at which the entry starts.
        offset: usize,
    },
    /// A value that overlaps the table or runs past the end.
    #[error("attribute entry at byte {offset} has a value of {size} bytes out of bounds")]
    Value {
        /// Byte at which the entry starts.
        offset: usize,
        /// `e_value_size`.
        size: u32,
    },
    /// A value in an inode of its own (`ea_inode`).
    #[error("attribute entry at byte {offset} keeps its value in inode {inode}")]
    ValueInode {
        /// Byte at which the entry starts.
        offset: usize,
        /// `e_value_inum`.
        inode: u32,
    },
}
