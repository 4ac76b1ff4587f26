//! The Merkle tree of a file that fs-verity protects: checks blocks of data against it.
//!
//! Of each level the block that was verified last stays in memory. A reader in order hashes each
//! block of the tree once.
//!
//! # Locks
//! One, over those blocks; the tree's other blocks are read under it. Below it come the map's locks
//! and block content.

use extant_disk::verity::{TreeHash, TreeShape, VerityDescriptor};
use extant_sync::Mutex;
use extant_units::index;
use sha2::{Digest, Sha256, Sha512};

use crate::types::error::{Error, Result};

/// Digests of blocks: the salt, which comes before each, has been taken in.
#[derive(Clone)]
pub(crate) enum Salted {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Salted {
    pub(crate) fn new(hash: TreeHash, salt: &[u8]) -> Self {
        match hash {
            TreeHash::Sha256 => Self::Sha256(Sha256::new_with_prefix(salt)),
            TreeHash::Sha512 => Self::Sha512(Sha512::new_with_prefix(salt)),
        }
    }

    pub(crate) fn digest(&self, block: &[u8]) -> Vec<u8> {
        match self.clone() {
            Self::Sha256(hash) => hash.chain_update(block).finalize().to_vec(),
            Self::Sha512(hash) => hash.chain_update(block).finalize().to_vec(),
        }
    }
}

/// A block of the tree that was verified.
struct Verified {
    /// Its number within its level.
    number: u64,
    bytes: Vec<u8>,
}

/// The tree of one file.
pub(crate) struct MerkleTree {
    salted: Salted,
    descriptor: VerityDescriptor,
    shape: TreeShape,
    /// The last verified block of each level, that of the data's digests first.
    path: Mutex<Vec<Option<Verified>>>,
}

impl MerkleTree {
    pub(crate) fn new(descriptor: VerityDescriptor, shape: TreeShape) -> Self {
        let levels = shape.levels.len();
        Self {
            salted: Salted::new(descriptor.hash, &descriptor.salt),
            descriptor,
            shape,
            path: Mutex::new((0..levels).map(|_| None).collect()),
        }
    }

    /// Checks whole blocks of the file from byte `pos` on, with zeros behind its end. `read` reads
    /// the tree from a byte of it on.
    ///
    /// # Errors
    /// An I/O error if they differ from what the tree says, or the tree itself is altered; those of
    /// `read`.
    pub(crate) fn check(
        &self,
        pos: u64,
        bytes: &[u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let block_bytes = self.descriptor.block_bytes();
        debug_assert!(pos.is_multiple_of(block_bytes as u64), "whole blocks");
        let mut path = self.path.lock();
        let first = pos >> self.descriptor.log_block;
        for (number, block) in (first..).zip(bytes.chunks(block_bytes)) {
            if number << self.descriptor.log_block >= self.descriptor.data_size {
                break;
            }
            let expected = self.digest_of(0, number, &mut path, &mut read)?;
            if self.salted.digest(block) != expected {
                let at = number << self.descriptor.log_block;
                return Err(altered(&format!("the data at byte {at}")));
            }
        }
        Ok(())
    }

    /// The digest of block `number` below level `level`, from a verified block of that level.
    fn digest_of(
        &self,
        level: usize,
        number: u64,
        path: &mut [Option<Verified>],
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let Some(place) = self.shape.levels.get(level) else {
            return Ok(self.descriptor.root.clone());
        };
        let (above, at) = (number / self.shape.per_block, number % self.shape.per_block);
        debug_assert!(above < place.blocks, "the level covers all blocks below it");
        if path[level]
            .as_ref()
            .is_none_or(|block| block.number != above)
        {
            let mut bytes = vec![0; self.descriptor.block_bytes()];
            read(
                (place.start + above) << self.descriptor.log_block,
                &mut bytes,
            )?;
            let expected = self.digest_of(level + 1, above, path, read)?;
            if self.salted.digest(&bytes) != expected {
                return Err(altered(&format!(
                    "block {above} of level {level} of the tree"
                )));
            }
            path[level] = Some(Verified {
                number: above,
                bytes,
            });
        }
        let block = path[level].as_ref().expect("it was just verified");
        let len = self.descriptor.hash.digest_bytes();
        Ok(block.bytes[index(at) * len..][..len].to_vec())
    }
}

/// The error of a reader of what was altered.
fn altered(what: &str) -> Error {
    Error::Io(format!("fs-verity: {what} is not what the file's digest vouches for").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_units::BlockSize;

    /// A file of `size` bytes with a tree of blocks of 1 KiB: the data, the tree, its descriptor.
    fn made(size: usize) -> (Vec<u8>, Vec<u8>, MerkleTree) {
        let salted = Salted::new(TreeHash::Sha256, &[]);
        let mut data: Vec<u8> = (0..=250).cycle().take(size).collect();
        data.resize(size.next_multiple_of(1024), 0);
        let mut levels = vec![];
        let mut below = data.clone();
        while below.len() > 1024 {
            let mut level: Vec<u8> = below.chunks(1024).flat_map(|b| salted.digest(b)).collect();
            level.resize(level.len().next_multiple_of(1024), 0);
            levels.push(level.clone());
            below = level;
        }
        let mut root = [0; 64];
        root[..32].copy_from_slice(&salted.digest(&below));
        let mut raw = [0; 256];
        raw[..3].copy_from_slice(&[1, 1, 10]);
        raw[8..16].copy_from_slice(&(size as u64).to_le_bytes());
        raw[16..80].copy_from_slice(&root);
        let descriptor = VerityDescriptor::parse(&raw, size as u64, BlockSize::KIB1).unwrap();
        let shape = TreeShape::of(&descriptor).unwrap();
        let tree: Vec<u8> = levels.into_iter().rev().flatten().collect();
        assert_eq!(tree.len() as u64, shape.blocks * 1024);
        (data, tree, MerkleTree::new(descriptor, shape))
    }

    fn reader(tree: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<()> {
        |at, buf| {
            buf.copy_from_slice(&tree[index(at)..][..buf.len()]);
            Ok(())
        }
    }

    #[test]
    fn data_passes_as_it_was_and_no_other() {
        for size in [1, 1024, 1025, 40 << 10, (40 << 10) + 1, 1100 << 10] {
            let (mut data, tree, of) = made(size);
            of.check(0, &data, reader(&tree)).unwrap();
            for at in [0, size / 2, size - 1] {
                data[at] ^= 1;
                let from = at / 1024 * 1024;
                let block = &data[from..from + 1024];
                assert!(of.check(from as u64, block, reader(&tree)).is_err(), "{at}");
                data[at] ^= 1;
            }
        }
    }

    #[test]
    fn a_tree_that_was_altered_vouches_for_nothing() {
        let (data, tree, _) = made(1100 << 10);
        for block in 0..tree.len() / 1024 {
            let mut tree = tree.clone();
            tree[block * 1024 + 5] ^= 0x80;
            let (.., of) = made(1100 << 10);
            assert!(of.check(0, &data, reader(&tree)).is_err(), "{block}");
        }
    }

    #[test]
    fn each_block_of_the_tree_is_read_once_in_order() {
        let (data, tree, of) = made(1100 << 10);
        let mut reads = 0;
        for (number, block) in data.chunks(4096).enumerate() {
            let counted = |at, buf: &mut [u8]| {
                reads += 1;
                reader(&tree)(at, buf)
            };
            of.check(number as u64 * 4096, block, counted).unwrap();
        }
        assert_eq!(reads, tree.len() / 1024);
    }

    #[test]
    fn blocks_behind_the_end_are_not_asked_for() {
        let (mut data, tree, of) = made(3 << 10);
        data.resize(4 << 10, 0);
        of.check(0, &data, reader(&tree)).unwrap();
    }
}
