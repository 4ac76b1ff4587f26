//! fs-verity: the descriptor of a file whose data a Merkle tree verifies, and the tree's shape.
//!
//! ext4 keeps both behind the end of the file's data. The tree begins at the first multiple of
//! [`TREE_ALIGN`] at or behind the end, with its root level first; the descriptor begins in a block
//! of its own behind the tree, and the last four bytes of the last block are its length. A hash is
//! of one tree block, or of one block of data as long as that, zeros behind the end; the salt comes
//! before it, padded to what the hash function takes at once.

use core::mem::{offset_of, size_of};

use extant_units::{BlockSize, exact_u32};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The tree begins at a multiple of this many bytes.
pub const TREE_ALIGN: u64 = 1 << 16;
/// The most bytes of a descriptor, its signature included.
pub const MAX_DESCRIPTOR: usize = 16384;
/// The most levels of a tree.
pub const MAX_LEVELS: usize = 8;
/// The most bytes of a digest.
pub const MAX_DIGEST: usize = 64;
/// The most bytes of a salt.
pub const MAX_SALT: usize = 32;
/// The most bytes of a signature.
pub const MAX_SIGNATURE: usize = MAX_DESCRIPTOR - size_of::<RawDescriptor>();

/// The least size of a tree block, as a power of two.
const MIN_LOG_BLOCK: u8 = 10;
/// The largest: a page of most machines.
const MAX_LOG_BLOCK: u8 = 12;

/// `struct fsverity_descriptor`. Its signature follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct RawDescriptor {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    sig_size: U32,
    data_size: U64,
    root_hash: [u8; MAX_DIGEST],
    salt: [u8; MAX_SALT],
    reserved: [u8; 144],
}

const _: () = assert!(size_of::<RawDescriptor>() == 256);
const _: () = assert!(offset_of!(RawDescriptor, data_size) == 8);
const _: () = assert!(offset_of!(RawDescriptor, salt) == 80);

/// The hash function of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TreeHash {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl TreeHash {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Its name, as the command fsverity has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Its number, on disk and in system calls.
    pub const fn number(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// The function with a number.
    pub fn of_number(number: u32) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|hash| u32::from(hash.number()) == number)
    }

    /// Bytes of a digest.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that the function takes at once: a salt is padded to them.
    pub const fn input_bytes(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// How a file is to be protected.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VerityParams {
    /// The hash function.
    pub hash: TreeHash,
    /// Bytes of a tree block: a power of two from 1024 on, at most 4096 and the volume's blocks.
    pub block_size: u32,
    /// The salt, at most [`MAX_SALT`] bytes.
    pub salt: Vec<u8>,
    /// A signature of the digest, at most [`MAX_SIGNATURE`] bytes: stored, and not judged.
    pub signature: Vec<u8>,
}

impl Default for VerityParams {
    fn default() -> Self {
        Self {
            hash: TreeHash::default(),
            block_size: 1 << MAX_LOG_BLOCK,
            salt: Vec::new(),
            signature: Vec::new(),
        }
    }
}

/// Fault of a descriptor.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Hash, Debug)]
pub enum VerityError {
    /// There is no room for one, or none was found.
    #[error("no fs-verity descriptor behind the data")]
    Missing,
    /// Its length cannot be right.
    #[error("an fs-verity descriptor of {bytes} bytes")]
    Length {
        /// The length.
        bytes: usize,
    },
    /// A field with an impossible value.
    #[error("fs-verity descriptor: {field} is {value}")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// It is of a file of another size.
    #[error("fs-verity descriptor of a file of {described} bytes, this one has {size}")]
    Size {
        /// The size that it has.
        described: u64,
        /// The file's.
        size: u64,
    },
    /// The tree would have too many levels.
    #[error("a Merkle tree of more than 8 levels")]
    TooHigh,
    /// The tree reaches into the descriptor, or past the last block.
    #[error("the Merkle tree has no room before the descriptor")]
    TreeTooLong,
}

/// A checked descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerityDescriptor {
    /// The hash function.
    pub hash: TreeHash,
    /// Bytes of a tree block, as a power of two.
    pub log_block: u8,
    /// The salt, padded; empty if there is none.
    pub salt: Vec<u8>,
    /// The digest of the root level, or of the only block of data.
    pub root: Vec<u8>,
    /// Bytes of the file.
    pub data_size: u64,
}

impl VerityDescriptor {
    /// Checks the descriptor `bytes` of a file of `size` bytes.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(bytes: &[u8], size: u64, block_size: BlockSize) -> Result<Self, VerityError> {
        let length = VerityError::Length { bytes: bytes.len() };
        if bytes.len() > MAX_DESCRIPTOR {
            return Err(length);
        }
        let Ok((raw, signature)) = RawDescriptor::ref_from_prefix(bytes) else {
            return Err(length);
        };
        let field = |field, value| Err(VerityError::Field { field, value });
        if raw.version != 1 {
            return field("version", raw.version.into());
        }
        let Some(hash) = TreeHash::of_number(raw.hash_algorithm.into()) else {
            return field("hash_algorithm", raw.hash_algorithm.into());
        };
        if !is_tree_block(raw.log_blocksize, block_size) {
            return field("log_blocksize", raw.log_blocksize.into());
        }
        let Some(salt) = raw.salt.get(..usize::from(raw.salt_size)) else {
            return field("salt_size", raw.salt_size.into());
        };
        let sig_size = raw.sig_size.get();
        if sig_size as usize > signature.len() {
            return field("sig_size", sig_size.into());
        }
        if raw.reserved.iter().any(|&byte| byte != 0) {
            return field("a reserved byte", 1);
        }
        let described = raw.data_size.get();
        if described != size {
            return Err(VerityError::Size { described, size });
        }
        Ok(Self {
            hash,
            log_block: raw.log_blocksize,
            salt: padded(salt, hash),
            root: raw.root_hash[..hash.digest_bytes()].to_vec(),
            data_size: size,
        })
    }

    /// The descriptor that a file of `size` bytes is about to have, without a root yet.
    ///
    /// # Errors
    /// [`VerityError::Field`] if a file on a volume with such blocks cannot have these parameters.
    pub fn planned(
        params: &VerityParams,
        size: u64,
        block_size: BlockSize,
    ) -> Result<Self, VerityError> {
        let field = |field, value| Err(VerityError::Field { field, value });
        let log_block = params.block_size.checked_ilog2().unwrap_or_default();
        let log_block = u8::try_from(log_block).unwrap_or_default();
        if !params.block_size.is_power_of_two() || !is_tree_block(log_block, block_size) {
            return field("block size", params.block_size.into());
        }
        if params.salt.len() > MAX_SALT {
            return field("length of the salt", params.salt.len() as u64);
        }
        if params.signature.len() > MAX_SIGNATURE {
            return field("length of the signature", params.signature.len() as u64);
        }
        Ok(Self {
            hash: params.hash,
            log_block,
            salt: padded(&params.salt, params.hash),
            root: Vec::new(),
            data_size: size,
        })
    }

    /// Bytes of a tree block.
    pub const fn block_bytes(&self) -> usize {
        1 << self.log_block
    }

    /// The stored form, with the salt and the signature of `params`, by which it was
    /// [planned](VerityDescriptor::planned).
    pub fn encode(&self, params: &VerityParams) -> Vec<u8> {
        let mut raw = RawDescriptor::new_zeroed();
        raw.version = 1;
        raw.hash_algorithm = self.hash.number();
        raw.log_blocksize = self.log_block;
        debug_assert!(params.salt.len() <= MAX_SALT, "its length was checked");
        raw.salt_size = u8::try_from(params.salt.len()).unwrap_or_default();
        raw.sig_size.set(exact_u32(params.signature.len() as u64));
        raw.data_size.set(self.data_size);
        raw.root_hash[..self.root.len()].copy_from_slice(&self.root);
        raw.salt[..params.salt.len()].copy_from_slice(&params.salt);
        [raw.as_bytes(), &params.signature].concat()
    }
}

/// Returns whether a volume with such blocks can have a tree with blocks of 2^`log` bytes.
fn is_tree_block(log: u8, block_size: BlockSize) -> bool {
    let largest = MAX_LOG_BLOCK.min(block_size.log2().try_into().unwrap_or(MAX_LOG_BLOCK));
    (MIN_LOG_BLOCK..=largest).contains(&log)
}

/// A salt as it is hashed.
fn padded(salt: &[u8], hash: TreeHash) -> Vec<u8> {
    let mut padded = salt.to_vec();
    padded.resize(salt.len().next_multiple_of(hash.input_bytes()), 0);
    padded
}

/// The part of the checked descriptor `bytes` whose digest is the file's: all but the signature.
///
/// # Errors
/// [`VerityError::Length`].
pub fn measured_part(bytes: &[u8]) -> Result<Vec<u8>, VerityError> {
    let length = || VerityError::Length { bytes: bytes.len() };
    let (raw, _) = RawDescriptor::ref_from_prefix(bytes).map_err(|_| length())?;
    let measured = RawDescriptor {
        sig_size: U32::ZERO,
        ..*raw
    };
    Ok(measured.as_bytes().to_vec())
}

/// The signature of the checked descriptor `bytes`: empty if it has none.
pub fn signature_of(bytes: &[u8]) -> &[u8] {
    let Ok((raw, behind)) = RawDescriptor::ref_from_prefix(bytes) else {
        return &[];
    };
    behind.get(..raw.sig_size.get() as usize).unwrap_or(&[])
}

/// The bytes that lie behind a tree: the descriptor `bytes` in whole blocks, with its length at the
/// end of the last.
pub fn descriptor_blocks(bytes: &[u8], block_size: BlockSize) -> Vec<u8> {
    let mut blocks = bytes.to_vec();
    blocks.resize(
        (bytes.len() + 4).next_multiple_of(block_size.bytes()) - 4,
        0,
    );
    blocks.extend(exact_u32(bytes.len() as u64).to_le_bytes());
    blocks
}

/// One level of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeLevel {
    /// Its first block, from the beginning of the tree.
    pub start: u64,
    /// The number of its blocks.
    pub blocks: u64,
}

/// The shape of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeShape {
    /// The levels, that of the data's digests first. None for a file of at most one block.
    pub levels: Vec<TreeLevel>,
    /// Digests in one block.
    pub per_block: u64,
    /// Blocks of all levels.
    pub blocks: u64,
}

impl TreeShape {
    /// The shape of the tree that `descriptor` describes.
    ///
    /// # Errors
    /// [`VerityError::TooHigh`].
    pub fn of(descriptor: &VerityDescriptor) -> Result<Self, VerityError> {
        let per_block = (descriptor.block_bytes() / descriptor.hash.digest_bytes()) as u64;
        let mut levels = Vec::new();
        let mut below = descriptor.data_size.div_ceil(1 << descriptor.log_block);
        while below > 1 {
            if levels.len() == MAX_LEVELS {
                return Err(VerityError::TooHigh);
            }
            below = below.div_ceil(per_block);
            levels.push(TreeLevel {
                start: 0,
                blocks: below,
            });
        }
        let mut next = 0;
        for level in levels.iter_mut().rev() {
            level.start = next;
            next += level.blocks;
        }
        Ok(Self {
            levels,
            per_block,
            blocks: next,
        })
    }
}

/// The place of a descriptor: its first byte in a file whose last block ends at byte `end`, and its
/// length, whose stored form is `stored`.
///
/// # Errors
/// [`VerityError::Length`], or [`VerityError::TreeTooLong`] if it would lie in front of byte
/// `tree`, where the tree begins.
pub fn descriptor_place(
    end: u64,
    stored: u32,
    tree: u64,
    block_size: BlockSize,
) -> Result<(u64, usize), VerityError> {
    let bytes = stored as usize;
    if !(size_of::<RawDescriptor>()..=MAX_DESCRIPTOR).contains(&bytes) {
        return Err(VerityError::Length { bytes });
    }
    let before = (end.checked_sub(4)).and_then(|at| at.checked_sub(bytes as u64));
    let at = before.ok_or(VerityError::Missing)? & !(block_size.bytes_u64() - 1);
    match at >= tree {
        true => Ok((at, bytes)),
        false => Err(VerityError::TreeTooLong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockSize = BlockSize::KIB4;

    fn raw(size: u64) -> RawDescriptor {
        RawDescriptor {
            version: 1,
            hash_algorithm: 1,
            log_blocksize: 12,
            salt_size: 4,
            sig_size: U32::ZERO,
            data_size: U64::new(size),
            root_hash: [7; MAX_DIGEST],
            salt: [9; 32],
            reserved: [0; 144],
        }
    }

    fn parsed(change: impl FnOnce(&mut RawDescriptor)) -> Result<VerityDescriptor, VerityError> {
        let mut raw = raw(5000);
        change(&mut raw);
        VerityDescriptor::parse(raw.as_bytes(), 5000, BLOCK)
    }

    #[test]
    fn a_salt_is_padded_to_what_the_hash_takes() {
        let found = parsed(|_| {}).unwrap();
        assert_eq!(found.salt.len(), 64);
        assert_eq!(found.salt[..5], [9, 9, 9, 9, 0]);
        assert_eq!(found.root, [7; 32]);
        assert_eq!(parsed(|raw| raw.salt_size = 0).unwrap().salt, []);
        assert_eq!(
            parsed(|raw| raw.hash_algorithm = 2).unwrap().salt.len(),
            128
        );
    }

    #[test]
    fn each_field_is_checked() {
        let faults: [fn(&mut RawDescriptor); 9] = [
            |raw| raw.version = 2,
            |raw| raw.hash_algorithm = 3,
            |raw| raw.log_blocksize = 9,
            |raw| raw.log_blocksize = 13,
            |raw| raw.salt_size = 33,
            |raw| raw.sig_size = U32::new(1),
            |raw| raw.sig_size = U32::new(u32::MAX),
            |raw| raw.data_size = U64::new(5001),
            |raw| raw.reserved[143] = 1,
        ];
        for fault in faults {
            assert!(parsed(fault).is_err());
        }
        let bytes = raw(5000);
        let short = &bytes.as_bytes()[1..];
        assert!(VerityDescriptor::parse(short, 5000, BLOCK).is_err());
    }

    #[test]
    fn the_root_level_comes_first() {
        let shape = |size, log_block| {
            let mut raw = raw(size);
            raw.log_blocksize = log_block;
            let descriptor = VerityDescriptor::parse(raw.as_bytes(), size, BLOCK).unwrap();
            let shape = TreeShape::of(&descriptor).unwrap();
            let levels: Vec<_> = shape.levels.iter().map(|l| (l.start, l.blocks)).collect();
            (levels, shape.blocks)
        };
        assert_eq!(shape(0, 12), (vec![], 0));
        assert_eq!(shape(4096, 12), (vec![], 0));
        assert_eq!(shape(4097, 12), (vec![(0, 1)], 1));
        assert_eq!(shape(129 << 12, 12), (vec![(1, 2), (0, 1)], 3));
        assert_eq!(shape(33 << 10, 10), (vec![(1, 2), (0, 1)], 3));
    }

    #[test]
    fn a_tree_that_is_too_high_is_refused() {
        let mut raw = raw(u64::MAX);
        raw.log_blocksize = 10;
        raw.hash_algorithm = 2;
        let descriptor = VerityDescriptor::parse(raw.as_bytes(), u64::MAX, BLOCK).unwrap();
        assert_eq!(TreeShape::of(&descriptor), Err(VerityError::TooHigh));
    }

    #[test]
    fn a_descriptor_that_was_made_is_read_back() {
        let params = VerityParams {
            hash: TreeHash::Sha512,
            block_size: 1024,
            salt: vec![3; 32],
            signature: vec![5; 700],
        };
        let mut made = VerityDescriptor::planned(&params, 5000, BLOCK).unwrap();
        made.root = vec![8; 64];
        let bytes = made.encode(&params);
        assert_eq!(VerityDescriptor::parse(&bytes, 5000, BLOCK), Ok(made));
        assert_eq!(signature_of(&bytes), [5; 700]);
        let measured = measured_part(&bytes).unwrap();
        assert_eq!(measured[4..8], [0; 4]);
        assert_eq!(
            (&measured[..4], &measured[8..]),
            (&bytes[..4], &bytes[8..256])
        );
        for (len, blocks) in [(256, 1), (4092, 1), (4093, 2)] {
            let behind = descriptor_blocks(&vec![1; len], BLOCK);
            assert_eq!(behind.len(), blocks * 4096);
            let stored = u32::from_le_bytes(*behind.last_chunk().unwrap());
            let end = (1 << 16) + behind.len() as u64;
            assert_eq!(
                descriptor_place(end, stored, 1 << 16, BLOCK),
                Ok((1 << 16, len))
            );
        }
    }

    #[test]
    fn parameters_that_linux_refuses_are_refused() {
        let planned = |change: fn(&mut VerityParams), blocks| {
            let mut params = VerityParams::default();
            change(&mut params);
            VerityDescriptor::planned(&params, 1, blocks).is_ok()
        };
        assert!(planned(|_| {}, BLOCK));
        assert!(planned(|params| params.block_size = 1024, BlockSize::KIB1));
        assert!(planned(|params| params.salt = vec![0; 32], BLOCK));
        assert!(planned(|params| params.signature = vec![0; 16128], BLOCK));
        assert!(!planned(|_| {}, BlockSize::KIB1));
        assert!(!planned(|params| params.block_size = 0, BLOCK));
        assert!(!planned(|params| params.block_size = 512, BLOCK));
        assert!(!planned(|params| params.block_size = 3000, BLOCK));
        assert!(!planned(|params| params.block_size = 8192, BLOCK));
        assert!(!planned(|params| params.salt = vec![0; 33], BLOCK));
        assert!(!planned(|params| params.signature = vec![0; 16129], BLOCK));
    }

    #[test]
    fn a_descriptor_begins_in_a_block_behind_the_tree() {
        let place = |end, stored| descriptor_place(end, stored, 1 << 16, BLOCK);
        let end = (1 << 16) + 3 * 4096;
        assert_eq!(place(end, 256), Ok((end - 4096, 256)));
        assert_eq!(place(end, 4093), Ok((end - 8192, 4093)));
        assert_eq!(place(end, 255), Err(VerityError::Length { bytes: 255 }));
        assert!(place(end, 16385).is_err());
        assert_eq!(place(1 << 16, 256), Err(VerityError::TreeTooLong));
        assert_eq!(place(100, 256), Err(VerityError::Missing));
    }
}
