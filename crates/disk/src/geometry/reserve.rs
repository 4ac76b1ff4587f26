//! The resize inode: what its blocks hold, and how many it has.
//!
//! Its double indirect block leads to the blocks that are reserved behind the descriptor table.
//! Each of these leads to its copies in the groups that begin with one.

use super::Geometry;

impl Geometry {
    /// The blocks that are reserved behind the descriptor table, in order.
    pub fn reserved_descriptors(&self) -> core::ops::Range<u64> {
        let start = self.superblock_block() + 1 + u64::from(self.desc_blocks);
        start..start + u64::from(self.reserved_gdt)
    }

    /// The numbers in the double indirect block of the resize inode.
    pub fn resize_inode_map(&self) -> Vec<u64> {
        let len = self.addresses_per_block();
        let mut numbers = vec![0; extant_units::index(len)];
        for block in self.reserved_descriptors() {
            // The slot is the block's number in the table of descriptors and their reserve.
            let slot = (block - self.superblock_block() - 1) % len;
            numbers[extant_units::index(slot)] = block;
        }
        numbers
    }

    /// The numbers in `block`, which is reserved for descriptors: of its copies, as many as a block
    /// has room for. They are whole groups further on. With `bigalloc` and blocks of 1 KiB that is
    /// one block past the copy, because group 0 alone begins with the boot block. So e2fsprogs has
    /// it.
    pub fn copies_of_reserved(&self, block: u64) -> Vec<u64> {
        let copies = self.copies();
        copies
            .map(|group| self.group_start(group) + (block - self.first_block()))
            .collect()
    }

    fn copies(&self) -> impl Iterator<Item = u32> {
        let most = extant_units::index(self.addresses_per_block());
        self.backup_groups().take(most)
    }

    /// The size of the resize inode: all that its map could hold with one double indirect block.
    pub fn resize_inode_size(&self) -> u64 {
        let per_block = self.addresses_per_block();
        (per_block * per_block + per_block + 12) * self.block_size.bytes_u64()
    }

    /// Blocks that the resize inode has in all. With `bigalloc` each of them counts as a cluster.
    pub fn resize_inode_blocks(&self) -> u64 {
        let own = 1 + u64::from(self.reserved_gdt) * (1 + self.copies().count() as u64);
        own << self.cluster_bits
    }
}
