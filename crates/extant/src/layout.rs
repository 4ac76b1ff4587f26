//! Geometry and features: what the superblock says and what never changes while mounted.

use extant_disk::csum::Crc32c;
use extant_units::{BlockSize, Pblk};

/// The fixed shape of the file system.
pub(crate) struct Layout {
    /// Block size.
    pub(crate) block_size: BlockSize,
    /// One past the last block.
    pub(crate) end: Pblk,
    /// First block of group 0: 1 with 1 KiB blocks, else 0.
    pub(crate) first_data_block: Pblk,
    /// Blocks in a full group.
    pub(crate) blocks_per_group: u32,
    /// Inodes in a group.
    pub(crate) inodes_per_group: u32,
    /// Number of groups.
    pub(crate) groups: u32,
    /// Bytes of an inode in the table.
    pub(crate) inode_size: u16,
    /// Inodes in all.
    pub(crate) inodes_count: u32,
    /// The seed of all metadata checksums; `None` without metadata_csum.
    pub(crate) csum_seed: Option<Crc32c>,
}
