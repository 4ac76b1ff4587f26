//! A Merkle tree in the making: takes a file's blocks in order, and gives out the tree's.
//!
//! One block of each level is in memory. It is given out once it is full, and its digest goes to
//! the level above.

use extant_disk::verity::{TreeShape, VerityDescriptor};

use crate::state::file::merkle_tree::Salted;
use crate::types::error::Result;

/// Receiver of the tree's blocks: of a block's number within the tree, and its bytes.
pub(crate) type TreeBlocks<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// The tree of a file whose blocks are still coming.
pub(crate) struct MerkleBuilder {
    salted: Salted,
    block_bytes: usize,
    /// Of each level, that of the data's digests first: where it is to begin, the number of blocks
    /// that were given out, and the one that fills.
    levels: Vec<(u64, u64, Vec<u8>)>,
    /// The digest of a block of zeros.
    of_zeros: Vec<u8>,
    root: Vec<u8>,
}

impl MerkleBuilder {
    /// Begins the tree of a file that `planned` describes, which has the shape `shape`.
    pub(crate) fn new(planned: &VerityDescriptor, shape: &TreeShape) -> Self {
        let salted = Salted::new(planned.hash, &planned.salt);
        let block_bytes = planned.block_bytes();
        let levels = shape.levels.iter();
        Self {
            of_zeros: salted.digest(&vec![0; block_bytes]),
            salted,
            block_bytes,
            levels: levels.map(|level| (level.start, 0, Vec::new())).collect(),
            // That of an empty file.
            root: vec![0; planned.hash.digest_bytes()],
        }
    }

    /// Takes the file's next bytes: whole blocks, the last one with zeros behind the end.
    ///
    /// # Errors
    /// Those of `give`.
    pub(crate) fn add(&mut self, bytes: &[u8], give: &mut TreeBlocks<'_>) -> Result<()> {
        debug_assert!(bytes.len().is_multiple_of(self.block_bytes), "whole blocks");
        for block in bytes.chunks(self.block_bytes) {
            let digest = self.salted.digest(block);
            self.put(0, &digest, give)?;
        }
        Ok(())
    }

    /// Takes `count` blocks of zeros.
    ///
    /// # Errors
    /// Those of `give`.
    pub(crate) fn add_zeros(&mut self, count: u64, give: &mut TreeBlocks<'_>) -> Result<()> {
        let digest = std::mem::take(&mut self.of_zeros);
        let done = (0..count).try_for_each(|_| self.put(0, &digest, give));
        self.of_zeros = digest;
        done
    }

    /// Gives out what is left. Returns the root's digest.
    ///
    /// # Errors
    /// Those of `give`.
    pub(crate) fn finish(mut self, give: &mut TreeBlocks<'_>) -> Result<Vec<u8>> {
        for level in 0..self.levels.len() {
            if !self.levels[level].2.is_empty() {
                self.end_block(level, give)?;
            }
        }
        Ok(self.root)
    }

    /// Adds a digest to a block of `level`; above all levels, it is the root's.
    fn put(&mut self, level: usize, digest: &[u8], give: &mut TreeBlocks<'_>) -> Result<()> {
        let Some((.., block)) = self.levels.get_mut(level) else {
            self.root = digest.to_vec();
            return Ok(());
        };
        block.extend_from_slice(digest);
        match block.len() == self.block_bytes {
            true => self.end_block(level, give),
            false => Ok(()),
        }
    }

    /// Gives out the block of `level` that fills.
    fn end_block(&mut self, level: usize, give: &mut TreeBlocks<'_>) -> Result<()> {
        let (start, count, block) = &mut self.levels[level];
        block.resize(self.block_bytes, 0);
        give(*start + *count, block)?;
        *count += 1;
        let digest = self.salted.digest(block);
        block.clear();
        self.put(level + 1, &digest, give)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::file::MerkleTree;
    use extant_disk::verity::{TreeHash, VerityParams};
    use extant_units::{BlockSize, index};

    /// A tree passes the check, whatever the number of its levels; holes are blocks of zeros.
    #[test]
    fn a_tree_that_was_made_vouches_for_its_data() {
        for (size, hash) in [
            (0, TreeHash::Sha256),
            (1, TreeHash::Sha256),
            (1024, TreeHash::Sha512),
            (1025, TreeHash::Sha256),
            (33 << 10, TreeHash::Sha256),
            ((1100 << 10) + 1, TreeHash::Sha256),
            (300 << 10, TreeHash::Sha512),
        ] {
            let params = VerityParams {
                hash,
                block_size: 1024,
                salt: b"some salt".to_vec(),
                ..VerityParams::default()
            };
            let mut planned =
                VerityDescriptor::planned(&params, size as u64, BlockSize::KIB1).unwrap();
            let shape = TreeShape::of(&planned).unwrap();
            let mut data: Vec<u8> = (1..=250).cycle().take(size).collect();
            data.resize(size.next_multiple_of(1024), 0);
            let hole = 5 << 10..20 << 10;
            if let Some(hole) = data.get_mut(hole.clone()) {
                hole.fill(0);
            }
            let mut tree = vec![0xee; index(shape.blocks) * 1024];
            let mut given = 0;
            let mut give = |number: u64, block: &[u8]| {
                given += 1;
                tree[index(number) * 1024..][..1024].copy_from_slice(block);
                Ok(())
            };
            let mut builder = MerkleBuilder::new(&planned, &shape);
            match data.len() > hole.end {
                true => {
                    builder.add(&data[..hole.start], &mut give).unwrap();
                    builder.add_zeros(15, &mut give).unwrap();
                    builder.add(&data[hole.end..], &mut give).unwrap();
                }
                false => builder.add(&data, &mut give).unwrap(),
            }
            planned.root = builder.finish(&mut give).unwrap();
            assert_eq!(given, shape.blocks, "each block once");
            let checker = MerkleTree::new(planned, shape);
            let read = |at: u64, buf: &mut [u8]| {
                buf.copy_from_slice(&tree[index(at)..][..buf.len()]);
                Ok(())
            };
            checker.check(0, &data, read).unwrap();
        }
    }
}
