//! Files of quotas: what each user, group or project uses, and may use.
//!
//! A volume with the feature `quota` has up to three hidden files, which the superblock names. Each
//! is an array of blocks of [`BLOCK`] bytes, whatever the volume's blocks are, in the layout that
//! Linux calls `vfsv1`:
//!
//! ```text
//! block 0      header: magic, version, grace times, number of blocks, heads of two lists
//! block 1      root of a tree of four levels; a byte of the id chooses one of 256 references
//! ...          nodes of the tree, and blocks of entries: a header and 14 entries
//! ```
//!
//! A reference of 0 leads nowhere. Blocks of entries that have room are a doubly linked list from
//! the header; blocks without use are a singly linked one. An entry of zeros is free; one that has
//! nothing to say, of id 0, says so with a time of 1.
//!
//! # Invariants
//! - Every number of a block is checked against the header's count before it is followed.
//! - A walk visits no node twice, and no block of entries more often than it has entries.

mod entry;
mod entry_block;
mod header;
mod kind;
mod memory_file;
mod quota_error;
mod quota_tree;
mod quota_walk;
#[cfg(test)]
mod tests;

pub use entry::{QuotaEntry, QuotaLimits, QuotaUsage, set_usage};
pub use header::{QuotaHeader, QuotaTimes};
pub use kind::QuotaKind;
pub use memory_file::MemoryQuotas;
pub use quota_error::QuotaError;
pub use quota_tree::{
    EntryPlace, INSERT_BLOCKS, QuotaBlocks, QuotaBlocksMut, begin, entry_at, find, insert,
};
pub use quota_walk::{first_from, salvage, walk};

/// Bytes of a block of such a file.
pub const BLOCK: usize = 1024;

/// One block of such a file.
pub type QuotaBlock = [u8; BLOCK];
